package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// The default and the maximum number of input items in a page.
const (
	defaultPage = 20
	maxPage     = 100
)

// A page is the body of an answer with input items.
type page struct {
	Object string            `json:"object"`
	Data   []json.RawMessage `json:"data"`
	First  *string           `json:"first_id"`
	Last   *string           `json:"last_id"`
	More   bool              `json:"has_more"`
}

// listInput handles GET /v1/responses/{id}/input_items: the items of the conversation that the
// response answers.
func (s *Service) listInput(_ context.Context, q *request) error {
	limit, err := q.limit()
	if err != nil {
		return err
	}
	items, ids, err := identified(q.in.Head().ID, q.loaded.Memo.Input)
	if err != nil {
		return err
	}
	switch order := q.c.Query("order"); order {
	case "", "desc":
		slices.Reverse(items)
		slices.Reverse(ids)
	case "asc":
	default:
		return streamerr.InvalidParam("order", "order is %.64q; it must be asc or desc", order)
	}
	if after := q.c.Query("after"); after != "" {
		at := slices.Index(ids, after)
		if at < 0 {
			return streamerr.InvalidParam("after", "after is %.64q, which is not the id of an input item", after)
		}
		items, ids = items[at+1:], ids[at+1:]
	}
	n := min(limit, len(items))
	p := page{Object: "list", Data: items[:n], More: n < len(items)}
	if n > 0 {
		p.First, p.Last = &ids[0], &ids[n-1]
	}
	body, err := json.Marshal(p)
	if err == nil {
		exchange.JSON(q.c, body)
	}
	return err
}

// limit returns the maximum number of items in the page.
func (q *request) limit() (int, error) {
	text := q.c.Query("limit")
	if text == "" {
		return defaultPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, streamerr.InvalidParam("limit", "limit is %.64q; it must be 1 to %d", text, maxPage)
	}
	return n, nil
}

// complete adds the members of a message that a request may leave out: its type, and the parts of
// its content.
func complete(members map[string]json.RawMessage) {
	if members["type"] == nil {
		members["type"] = json.RawMessage(`"message"`)
	}
	text := members["content"]
	if len(text) == 0 || text[0] != '"' {
		return
	}
	kind := `[{"type":"input_text","text":`
	if string(members["role"]) == `"assistant"` {
		kind = `[{"type":"output_text","annotations":[],"text":`
	}
	members["content"] = slices.Concat(json.RawMessage(kind), text, json.RawMessage("}]"))
}

// identified returns the items with ids, and the ids. An item keeps its own id if that is unique; any other item
// gets an id that is derived from the stream's id.
func identified(stream string, input []json.RawMessage) (items []json.RawMessage, ids []string, err error) {
	known := map[string]bool{}
	for i, raw := range input {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			return nil, nil, err
		}
		var id string
		if json.Unmarshal(members["id"], &id) != nil || id == "" || known[id] {
			id = fmt.Sprintf("item_%s_%d", stream, i)
			members["id"] = json.RawMessage(strconv.Quote(id))
		}
		known[id] = true
		complete(members)
		encoded, err := json.Marshal(members)
		if err != nil {
			return nil, nil, err
		}
		items, ids = append(items, encoded), append(ids, id)
	}
	return items, ids, nil
}
