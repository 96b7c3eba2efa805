package edge_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A storedResponse is a response object.
type storedResponse struct {
	ID, Status string
	Store      bool
	Background bool
	Previous   string `json:"previous_response_id"`
	Output     []struct {
		Content []struct{ Text string }
	}
	Error struct{ Code, Message, Param string }
}

func (r storedResponse) text() string {
	var all strings.Builder
	for _, item := range r.Output {
		for _, part := range item.Content {
			all.WriteString(part.Text)
		}
	}
	return all.String()
}

// fetch sends a request about responses, and checks the status.
func fetch(t *testing.T, method, url, body string, status int, headers ...string) (r storedResponse) {
	t.Helper()
	resp := ask(t, method, url, body, headers...)
	answer := whole(t, resp)
	if err := json.Unmarshal([]byte(answer), &r); resp.StatusCode != status || err != nil {
		t.Fatalf("%s %s: %d %s", method, url, resp.StatusCode, answer)
	}
	return r
}

// awaitStatus waits for a response to have a status.
func awaitStatus(t *testing.T, url, status string, headers ...string) storedResponse {
	t.Helper()
	var r storedResponse
	polltest.Eventually(t, url+" has the status "+status, func() bool {
		r = fetch(t, http.MethodGet, url, "", http.StatusOK, headers...)
		return r.Status == status
	})
	return r
}

func TestABackgroundResponseIsPolled(t *testing.T) {
	base, chat := start(t, nil)
	made := fetch(t, http.MethodPost, base+"/v1/responses", response("start m say hel hold x say lo end x", `,"background":true`), http.StatusOK)
	if made.Status != "in_progress" || !made.Store || !made.Background {
		t.Errorf("%+v", made)
	}
	at := base + "/v1/responses/" + made.ID
	polltest.Eventually(t, "the response grows", func() bool { return fetch(t, http.MethodGet, at, "", http.StatusOK).text() == "hel" })
	close(chat.release)
	if got := awaitStatus(t, at, "completed"); got.text() != "hello" || got.ID != made.ID {
		t.Errorf("%+v", got)
	}
	if got := fetch(t, http.MethodPost, at+"/cancel", "", http.StatusOK); got.Status != "completed" {
		t.Errorf("a response that had ended was cancelled: %+v", got)
	}
}

// TestABackgroundStreamIsResumed: a client leaves in mid-stream, and resumes after its last event.
func TestABackgroundStreamIsResumed(t *testing.T) {
	base, chat := start(t, nil)
	resp := ask(t, http.MethodPost, base+"/v1/responses", response("start m say hel hold x say lo end x", `,"background":true,"stream":true`))
	var id string
	last := -1
	for lines := bufio.NewScanner(resp.Body); last < 4 && lines.Scan(); {
		var e struct {
			Sequence int `json:"sequence_number"`
			Response struct{ ID string }
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), &e); err != nil || e.Sequence != last+1 {
				t.Fatalf("after %d: %s", last, data)
			}
			last = e.Sequence
			id += e.Response.ID
		}
	}
	_ = resp.Body.Close()
	close(chat.release)
	id = id[:len(id)/2] // created and in_progress have the id
	at := base + "/v1/responses/" + id
	awaitStatus(t, at, "completed")
	all := whole(t, ask(t, http.MethodGet, at+"?stream=true", ""))
	blocks := strings.SplitAfter(all, "\n\n")
	for after := range len(blocks) - 1 {
		if got, want := whole(t, ask(t, http.MethodGet, fmt.Sprint(at, "?stream=true&starting_after=", after), "")), strings.Join(blocks[after+1:], ""); got != want {
			t.Errorf("after %d: %q, want %q", after, got, want)
		}
	}
	if e := lastOf(t, all); e.Type != "response.completed" || e.Response.Output[0].Content[0].Text != "hello" || last != 4 {
		t.Errorf("event %d: %s", last, all)
	}
	for query, status := range map[string]int{"starting_after=99": 400, "starting_after=x": 400, "starting_after=-1": 400, "starting_after=1000000000": 409} {
		if got := fetch(t, http.MethodGet, at+"?stream=true&"+query, "", status); got.Error.Param != "starting_after" {
			t.Errorf("%s: %+v", query, got)
		}
	}
	fetch(t, http.MethodGet, at+"?stream=maybe", "", http.StatusBadRequest)
	if got := whole(t, ask(t, http.MethodGet, at, `{"stream":true}`)); got != all { // openai-go sends such a request
		t.Errorf("%q, want %q", got, all)
	}
}

func TestABackgroundResponseIsCancelled(t *testing.T) {
	base, _ := start(t, nil)
	made := fetch(t, http.MethodPost, base+"/v1/responses", response("start m say hel hold x", `,"background":true`), http.StatusOK)
	at := base + "/v1/responses/" + made.ID
	for range 2 {
		if got := fetch(t, http.MethodPost, at+"/cancel", "", http.StatusOK); got.Status != "cancelled" || got.text() != "hel" {
			t.Errorf("%+v", got)
		}
	}
	if got := fetch(t, http.MethodGet, at, "", http.StatusOK); got.Status != "cancelled" {
		t.Errorf("%+v", got)
	}
	foreground := fetch(t, http.MethodPost, base+"/v1/responses", response("start m say hello end x", `,"store":true`), http.StatusOK)
	fetch(t, http.MethodPost, base+"/v1/responses/"+foreground.ID+"/cancel", "", http.StatusBadRequest)
}

func TestADeletedResponseIsGone(t *testing.T) {
	base, chat := start(t, nil)
	for name, more := range map[string]string{"hold x": `,"background":true`, "end x": `,"store":true`} {
		made := fetch(t, http.MethodPost, base+"/v1/responses", response("start m say hel "+name, more), http.StatusOK)
		at := base + "/v1/responses/" + made.ID
		if got := whole(t, ask(t, http.MethodDelete, at, "")); got != `{"id":"`+made.ID+`","object":"response","deleted":true}` {
			t.Errorf("%s: %s", name, got)
		}
		for _, gone := range []string{at, at + "?stream=true", at + "/input_items"} {
			if got := fetch(t, http.MethodGet, gone, "", http.StatusNotFound); got.Error.Message != "Response with id '"+made.ID+"' not found." {
				t.Errorf("%s: %+v", gone, got)
			}
		}
		fetch(t, http.MethodPost, at+"/cancel", "", http.StatusNotFound)
		fetch(t, http.MethodDelete, at, "", http.StatusNotFound)
		got := fetch(t, http.MethodPost, base+"/v1/responses", response("start m end x", `,"previous_response_id":"`+made.ID+`"`), http.StatusBadRequest)
		if got.Error.Code != "previous_response_not_found" || got.Error.Param != "previous_response_id" {
			t.Errorf("%+v", got)
		}
	}
	if err := polltest.Receive(t, "the cause of the stop", chat.causes); !errors.Is(err, streamerr.UserStop) {
		t.Errorf("the deleted stream ended with %v", err)
	}
}

func TestAResponseIsStoredIfItsRequestSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		stores bool
		more   string
		want   bool
	}{
		"store":              {false, `,"store":true`, true},
		"nothing":            {false, "", false},
		"nothing, by a flag": {true, "", true},
		"no store, a flag":   {true, `,"store":false`, false},
	} {
		t.Run(name, func(t *testing.T) {
			base, _ := start(t, func(e *edge.Config) { e.StoreResponses = c.stores })
			made := fetch(t, http.MethodPost, base+"/v1/responses", response("start m say hello end x", c.more), http.StatusOK)
			status := http.StatusNotFound
			if c.want {
				status = http.StatusOK
			}
			if got := fetch(t, http.MethodGet, base+"/v1/responses/"+made.ID, "", status); made.Store != c.want || c.want && (got.text() != "hello" || got.Status != "completed") {
				t.Errorf("%+v, later %+v", made, got)
			}
		})
	}
	base, _ := start(t, nil)
	for more, query := range map[string]string{`,"store":true`: "", `,"store":true,"stream":true`: "?stream=true", `,"background":true,"stream":true`: "?stream=true"} {
		told := ask(t, http.MethodPost, base+"/v1/responses", response("start m say hel call {} say lo end x", more))
		id := told.Header.Get("X-Request-Id")
		if got, want := whole(t, ask(t, http.MethodGet, base+"/v1/responses/resp_"+id+query, "")), whole(t, told); got != want {
			t.Errorf("%s: later requests get\n%s\nthe first one got\n%s", more, got, want)
		}
	}
	fetch(t, http.MethodGet, base+"/v1/responses/"+"resp_"+makeStream(t, base, "start m end x").ID, "", http.StatusNotFound) // not a response
	fetch(t, http.MethodGet, base+"/v1/responses/none", "", http.StatusNotFound)
}

// TestTheLeavePolicyDecidesAboutAStoredResponse covers a stored response whose client has left.
func TestTheLeavePolicyDecidesAboutAStoredResponse(t *testing.T) {
	for policy, want := range map[string]string{"": "cancelled", "cancel": "cancelled", "detach": "completed", "drain": "completed", "linger:1h": "completed"} {
		t.Run(policy, func(t *testing.T) {
			base, chat := start(t, nil)
			headers := []string{"X-Request-Id", "mine"}
			if policy != "" {
				headers = append(headers, "X-Leave", policy)
			}
			resp := ask(t, http.MethodPost, base+"/v1/responses", response("start m say hel hold x say lo end x", `,"store":true,"stream":true`), headers...)
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() && !strings.HasPrefix(lines.Text(), "event: response.output_text.delta") {
			}
			_ = resp.Body.Close()
			if want == "completed" {
				chat.release <- struct{}{}
			}
			if got := awaitStatus(t, base+"/v1/responses/resp_mine", want); !strings.HasPrefix(got.text(), "hel") {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestAResponseContinuesAnEarlierOne(t *testing.T) {
	t.Parallel()
	base, chat := start(t, nil)
	first := fetch(t, http.MethodPost, base+"/v1/responses", response("start m say hello end x", `,"store":true`), http.StatusOK)
	second := fetch(t, http.MethodPost, base+"/v1/responses", response("and then", `,"store":true,"previous_response_id":"`+first.ID+`"`), http.StatusOK)
	if second.Previous != first.ID || second.text() != "hello" { // the first message has the script
		t.Errorf("%+v", second)
	}
	var items struct {
		Data []struct {
			ID, Type, Role string
			Content        []struct{ Type, Text string }
		}
		More bool   `json:"has_more"`
		Last string `json:"last_id"`
	}
	at := base + "/v1/responses/" + second.ID + "/input_items"
	var texts []string
	for after := ""; ; after = "&after=" + url.QueryEscape(items.Last) {
		body := whole(t, ask(t, http.MethodGet, at+"?order=asc&limit=2"+after, ""))
		if err := json.Unmarshal([]byte(body), &items); err != nil {
			t.Fatal(body, err)
		}
		for _, item := range items.Data {
			texts = append(texts, item.Type+" "+item.Role+" "+item.Content[0].Type+" "+item.Content[0].Text)
		}
		if !items.More {
			break
		}
	}
	want := []string{"message user input_text start m say hello end x", "message assistant output_text hello", "message user input_text and then"}
	if !slices.Equal(texts, want) {
		t.Errorf("%q", texts)
	}
	for _, query := range []string{"limit=0", "limit=101", "order=up", "after=none"} {
		if got := fetch(t, http.MethodGet, at+"?"+query, "", http.StatusBadRequest); got.Error.Param != query[:strings.IndexByte(query, '=')] {
			t.Errorf("%s: %+v", query, got)
		}
	}
	half := strings.Repeat(" x", 3000)
	first = fetch(t, http.MethodPost, base+"/v1/responses", response("start m end x"+half, `,"store":true`), http.StatusOK)
	if got := fetch(t, http.MethodPost, base+"/v1/responses", response(half, `,"previous_response_id":"`+first.ID+`"`), http.StatusBadRequest); got.Error.Param != "previous_response_id" {
		t.Errorf("%+v", got)
	}
	live := fetch(t, http.MethodPost, base+"/v1/responses", response("start m hold x end x", `,"background":true`), http.StatusOK)
	got := fetch(t, http.MethodPost, base+"/v1/responses", response("and then", `,"previous_response_id":"`+live.ID+`"`), http.StatusBadRequest)
	if got.Error.Param != "previous_response_id" || got.Error.Code == "previous_response_not_found" {
		t.Errorf("%+v", got)
	}
	close(chat.release)
	awaitStatus(t, base+"/v1/responses/"+live.ID, "completed")
}

// TestItemsOfStoredResponsesAreReferredTo: the AI SDK names the items of earlier responses instead of
// sending them.
func TestItemsOfStoredResponsesAreReferredTo(t *testing.T) {
	base, _ := start(t, keyFile(t, twoTenants))
	ids := make([]string, 2)
	more := `,"store":true`
	for i := range ids {
		first := fetch(t, http.MethodPost, base+"/v1/responses", response("start m say one"+fmt.Sprint(i)+" end x", more), http.StatusOK, bearer("me")...)
		ids[i] = "msg_" + strings.TrimPrefix(first.ID, "resp_") + "_0"
	}
	refers := func(of ...string) string {
		items := `{"role":"user","content":"start m say hm end x"}`
		for _, id := range of {
			items += `,{"type":"item_reference","id":"` + id + `"}`
		}
		return `{"model":"m","store":true,"input":[` + items + `,{"role":"user","content":"and then"}]}`
	}
	for name, c := range map[string]struct {
		body, key, left string
		texts           []string
	}{
		"its own":     {refers(ids...), "me", "", []string{"one0", "one1"}},
		"a tenant's":  {refers(ids[0]), "me-too", "", []string{"one0"}},
		"another's":   {refers(ids[0]), "you", "input[].item_reference", nil},
		"unknown":     {refers("msg_none_0", ids[1], "none"), "me", "input[].item_reference", []string{"one1"}},
		"input items": {refers("item_" + strings.TrimSuffix(strings.TrimPrefix(ids[0], "msg_"), "_0") + "_0"), "me", "", []string{"say one0"}},
	} {
		resp := ask(t, http.MethodPost, base+"/v1/responses", c.body, bearer(c.key)...)
		body := whole(t, resp)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("whence-ignored") != c.left {
			t.Errorf("%s: %d %v %s", name, resp.StatusCode, resp.Header, body)
			continue
		}
		items := whole(t, ask(t, http.MethodGet, base+"/v1/responses/resp_"+resp.Header.Get("X-Request-Id")+"/input_items?order=asc", "", bearer(c.key)...))
		for _, text := range c.texts {
			if !strings.Contains(items, text) {
				t.Errorf("%s: no %s in %s", name, text, items)
			}
		}
		if isLeft := strings.Contains(items, "item_reference"); isLeft != (c.left != "") {
			t.Errorf("%s: the items are %s", name, items)
		}
	}
	strict := ask(t, http.MethodPost, base+"/v1/responses", refers("msg_none_0"), append(bearer("me"), "whence-strict", "1")...)
	if body := whole(t, strict); strict.StatusCode != http.StatusBadRequest || !strings.Contains(body, `"param":"input[1].item_reference"`) {
		t.Errorf("%d %s", strict.StatusCode, body)
	}
}

func TestTokensOfAnInputAreCounted(t *testing.T) {
	base, _ := start(t, nil)
	first := fetch(t, http.MethodPost, base+"/v1/responses", response("start m say hello end x", `,"store":true`), http.StatusOK)
	for body, want := range map[string]string{
		`{"model":"m","input":"a b"}`: `{"object":"response.input_tokens","input_tokens":2}`,
		`{"input":[{"role":"user","content":"a"}],"instructions":"b c","tools":[{"type":"function","name":"f"},{"type":"web_search"}]}`: `{"object":"response.input_tokens","input_tokens":4}`,
		`{"model":"m","input":"a","previous_response_id":"` + first.ID + `"}`:                                                           `{"object":"response.input_tokens","input_tokens":8}`,
	} {
		if got := whole(t, ask(t, http.MethodPost, base+"/v1/responses/input_tokens", body)); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	for body, param := range map[string]string{
		`{"model":"m"}`: "input", `{"model":"m","input":"a","previous_response_id":"resp_none"}`: "previous_response_id",
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA=="}]}]}`: "input[0].content[0].image_url",
	} {
		if got := fetch(t, http.MethodPost, base+"/v1/responses/input_tokens", body, http.StatusBadRequest); got.Error.Param != param {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

// TestAConversationIsCompacted: the item that has the summary stands for the conversation.
func TestAConversationIsCompacted(t *testing.T) {
	base, chat := start(t, nil)
	first := fetch(t, http.MethodPost, base+"/v1/responses", response("start m say hello end 9/4", `,"store":true`), http.StatusOK)
	for name, body := range map[string]string{
		"an input":    `{"model":"m","input":[{"role":"user","content":"start m say hello end 9/4"},{"role":"assistant","content":"hello"}],"tools":[{"type":"function","name":"f"}],"tool_choice":"required","store":true,"stream":true}`,
		"a response":  `{"model":"m","input":[],"previous_response_id":"` + first.ID + `"}`,
		"no summary":  `{"model":"m","input":[{"role":"user","content":"start m end 9/4"}]}`,
		"a reference": `{"model":"m","input":[{"role":"user","content":"start m say hello end 9/4"},{"type":"item_reference","id":"` + strings.Replace(first.ID, "resp_", "msg_", 1) + `_0"}]}`,
	} {
		body := whole(t, ask(t, http.MethodPost, base+"/v1/responses/compact", body))
		asked := chat.request.Load()
		last := asked.GetMessages()[len(asked.GetMessages())-1]
		if last.GetRole() != "user" || !strings.Contains(last.GetContent(), "Write a summary") || len(asked.GetTools()) > 0 || asked.GetToolChoice() != nil {
			t.Errorf("%s: the model is asked %v", name, asked)
		}
		var got struct {
			ID, Object string
			Output     json.RawMessage
			Created    int64 `json:"created_at"`
			Usage      struct {
				Input int `json:"input_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || got.Object != "response.compaction" || !strings.HasPrefix(got.ID, "resp_") || got.Created == 0 || got.Usage.Input != 9 {
			t.Errorf("%s: %v %s", name, err, body)
		}
		fetch(t, http.MethodGet, base+"/v1/responses/"+got.ID, "", http.StatusNotFound)
		whole(t, ask(t, http.MethodPost, base+"/v1/responses", `{"model":"m","input":`+strings.TrimSuffix(string(got.Output), "]")+`,{"role":"user","content":"and then"}]}`))
		want := "This is a summary of the conversation so far:\n\nhello\n\nand then"
		if name == "no summary" {
			want = "start m end 9/4"
		}
		if next := chat.request.Load().GetMessages(); next[0].GetRole() != "user" || next[0].GetContent() != want {
			t.Errorf("%s: the next request has %v", name, next)
		}
	}
}

func TestStoredResponsesBelongToTheirTenants(t *testing.T) {
	base, _ := start(t, keyFile(t, twoTenants))
	made := fetch(t, http.MethodPost, base+"/v1/responses", response("start m say hello end x", `,"background":true`), http.StatusOK, bearer("me")...)
	at := base + "/v1/responses/" + made.ID
	awaitStatus(t, at, "completed", bearer("me-too")...)
	for _, of := range []struct{ method, path string }{
		{http.MethodGet, ""}, {http.MethodGet, "?stream=true"}, {http.MethodGet, "/input_items"}, {http.MethodPost, "/cancel"}, {http.MethodDelete, ""},
	} {
		fetch(t, of.method, at+of.path, "", http.StatusNotFound, bearer("you")...)
		fetch(t, of.method, at+of.path, "", http.StatusUnauthorized)
	}
	got := fetch(t, http.MethodPost, base+"/v1/responses", response("x", `,"previous_response_id":"`+made.ID+`"`), http.StatusBadRequest, bearer("you")...)
	if got.Error.Code != "previous_response_not_found" {
		t.Errorf("%+v", got)
	}
	fetch(t, http.MethodGet, at, "", http.StatusOK, bearer("me")...)
}

// TestAResponseThatNeedNotBeStoredIsAlwaysAnswered covers requests that do not ask for storage, where it
// is the default.
func TestAResponseThatNeedNotBeStoredIsAlwaysAnswered(t *testing.T) {
	t.Parallel()
	stores := func(c *edge.Config) { c.StoreResponses = true }
	for name, c := range map[string]struct {
		change  func(*edge.Config)
		more    string
		headers []string
		want    bool
	}{
		"whole":                    {stores, "", nil, true},
		"streamed":                 {stores, `,"stream":true`, nil, true},
		"with a leave policy":      {stores, `,"stream":true`, []string{"X-Leave", "detach"}, true},
		"a key that keeps nothing": {keyFile(t, "keys: [{key: me, tenant: mine, leaves: [cancel, drain]}]"), "", bearer("me"), false},
		"no room":                  {func(c *edge.Config) { c.Replay.Bytes = 1000 }, "", nil, false},
		"no room for a stream":     {func(c *edge.Config) { c.Replay.StreamBytes = 1000 }, `,"stream":true`, nil, false},
		"too long, a leave policy": {func(c *edge.Config) { c.Replay.StreamBytes = 4000 }, `,"stream":true,"instructions":"` + strings.Repeat("x", 3000) + `"`, []string{"X-Leave", "detach"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			base, _ := start(t, func(e *edge.Config) {
				c.change(e)
				stores(e)
			})
			resp := ask(t, http.MethodPost, base+"/v1/responses", response("start m say hello end x", c.more), c.headers...)
			body := whole(t, resp)
			if resp.StatusCode != http.StatusOK || !strings.Contains(body[strings.LastIndex(body, `"status":"completed","completed_at"`):], fmt.Sprintf(`"store":%t`, c.want)) {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			id := "resp_" + resp.Header.Get("X-Request-Id")
			if !c.want {
				fetch(t, http.MethodGet, base+"/v1/responses/"+id, "", http.StatusNotFound, bearer("me")...)
				return
			}
			if next := fetch(t, http.MethodPost, base+"/v1/responses", response("and then", `,"previous_response_id":"`+id+`"`), http.StatusOK); next.text() != "hello" { // the first message has the script
				t.Errorf("%+v", next)
			}
			later := whole(t, ask(t, http.MethodGet, base+"/v1/responses/"+id, ""))
			if c.more == "" && later != body || !strings.Contains(body, later) {
				t.Errorf("later\n%s\nat first\n%s", later, body)
			}
		})
	}
}

// TestAnAnswerIsNotStoredUnderTheIDOfAnother: a request that repeats an id gets another one.
func TestAnAnswerIsNotStoredUnderTheIDOfAnother(t *testing.T) {
	base, _ := start(t, func(c *edge.Config) { c.StoreResponses = true })
	for _, text := range []string{"first", "second"} {
		made := fetch(t, http.MethodPost, base+"/v1/responses", response("start m say "+text+" end x", ""), http.StatusOK, "X-Request-Id", "same")
		if got := fetch(t, http.MethodGet, base+"/v1/responses/"+made.ID, "", http.StatusOK); !made.Store || got.text() != text {
			t.Errorf("%+v, later %+v", made, got)
		}
	}
}

func TestResponsesThatCannotBeStoredAreRefused(t *testing.T) {
	base, _ := start(t, keyFile(t, "keys: [{key: me, tenant: mine, leaves: [cancel, drain]}]"))
	got := fetch(t, http.MethodPost, base+"/v1/responses", response("start m end x", `,"store":true`), http.StatusForbidden, bearer("me")...)
	if got.Error.Param != "store" {
		t.Errorf("%+v", got)
	}
	base, _ = start(t, func(c *edge.Config) { c.Replay.StreamBytes = 4000 })
	long := `{"model":"m","store":true,"input":"start m end x ` + strings.Repeat("x", 3000) + `"}`
	if got := fetch(t, http.MethodPost, base+"/v1/responses", long, http.StatusBadRequest); got.Error.Param != "store" {
		t.Errorf("%+v", got)
	}
	fetch(t, http.MethodPost, base+"/v1/responses", response("fail not_found", `,"background":true`), http.StatusNotFound)
}

// TestAReadTokenIsNoOwner: with the token of a response that has an owner, other callers can only
// read the events.
func TestAReadTokenIsNoOwner(t *testing.T) {
	base, chat := start(t, nil)
	made := fetch(t, http.MethodPost, base+"/v1/responses", response("start m say hel hold x say lo end x", `,"background":true`), http.StatusOK, bearer("me")...)
	at, id := base+"/v1/responses/"+made.ID, strings.TrimPrefix(made.ID, "resp_")
	var token struct {
		Read string `json:"read_token"`
	}
	if err := json.Unmarshal([]byte(whole(t, ask(t, http.MethodPost, base+"/v1/streams/"+id+"/token", "", bearer("me")...))), &token); err != nil || token.Read == "" {
		t.Fatal(token, err)
	}
	for _, of := range []struct{ method, path string }{
		{http.MethodGet, ""}, {http.MethodGet, "/input_items"}, {http.MethodPost, "/cancel"}, {http.MethodDelete, ""},
	} {
		fetch(t, of.method, at+of.path+"?token="+token.Read, "", http.StatusNotFound)
		fetch(t, of.method, at+of.path+"?token="+token.Read, "", http.StatusNotFound, bearer("you")...)
	}
	close(chat.release)
	if got := awaitStatus(t, at, "completed", bearer("me")...); got.text() != "hello" {
		t.Errorf("%+v", got)
	}
	if resp := ask(t, http.MethodGet, base+"/v1/streams/"+id+"/events?token="+token.Read, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("the events: %d %s", resp.StatusCode, whole(t, resp))
	} else if got := whole(t, resp); !strings.Contains(got, "lo") {
		t.Error(got)
	}
}

// TestAReadTokenStandsForAnOwnerWithoutCredentials covers a listener that other machines reach.
func TestAReadTokenStandsForAnOwnerWithoutCredentials(t *testing.T) {
	base, _ := start(t, func(c *edge.Config) { c.TrustForwarded = true })
	resp := ask(t, http.MethodPost, base+"/v1/responses", response("start m say hel hold x", `,"background":true,"stream":true`))
	defer resp.Body.Close()
	at, token := base+"/v1/responses/resp_"+resp.Header.Get("X-Request-Id"), "?token="+resp.Header.Get("X-Read-Token")
	fetch(t, http.MethodGet, at, "", http.StatusNotFound)
	fetch(t, http.MethodGet, at+token, "", http.StatusOK)
	fetch(t, http.MethodGet, at+"/input_items"+token, "", http.StatusOK)
	if got := fetch(t, http.MethodPost, at+"/cancel"+token, "", http.StatusOK); got.Status != "cancelled" {
		t.Errorf("%+v", got)
	}
	fetch(t, http.MethodDelete, at, "", http.StatusNotFound)
	fetch(t, http.MethodDelete, at+token, "", http.StatusOK)
}
