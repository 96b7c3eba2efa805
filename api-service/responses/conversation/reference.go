package conversation

import (
	"encoding/json"

	"github.com/whence-dev/whence/api-service/strict"
)

// missing is the note for an item that is not kept, or no longer.
const missing = "[An item of the conversation is missing here: it was not stored, or its time is over.]"

// addReference adds an item that is kept elsewhere. Parse collects its id. ParseAfter gets only
// references that nobody could resolve.
func (c *items) addReference(at string, members map[string]json.RawMessage) error {
	id, err := strict.Member(at, "id", members)
	if err != nil {
		return err
	}
	if c.collects {
		c.references = append(c.references, id)
		return nil
	}
	if err := c.in.Unsupported(at + ".item_reference"); err != nil {
		return err
	}
	t := c.Continue(at, assistant)
	t.Content.Separate()
	t.Content.Write(missing)
	t.Content.Separate()
	return nil
}

// Resolve replaces the references of a conversation that Parse accepts by the items that they name.
func Resolve(raw json.RawMessage, found map[string]json.RawMessage) json.RawMessage {
	if len(found) == 0 || raw[0] == '"' {
		return raw
	}
	all := Items(raw)
	for i, item := range all {
		var members map[string]json.RawMessage
		if json.Unmarshal(item, &members) != nil { // cannot fail: Parse has accepted it
			continue
		}
		var id string
		kind, err := kindOf("", members)
		if err != nil || kind != "item_reference" || json.Unmarshal(members["id"], &id) != nil {
			continue
		}
		if kept, ok := found[id]; ok {
			all[i] = kept
		}
	}
	return marshal(all)
}
