package conversation

import (
	"encoding/json"
	"strings"

	"github.com/whence-dev/whence/api-service/strict"
)

// ToolSearch is the name of the tool that finds tools, as the model knows it.
const ToolSearch = "tool_search"

// AtClient reports whether a tool search, or a call or result of it, runs at the client, and not at
// OpenAI's servers.
func AtClient(members map[string]json.RawMessage) bool {
	return string(members["execution"]) == `"client"`
}

// addTools adds the tools of an item that is nothing else.
func (c *items) addTools(at string, members map[string]json.RawMessage) error {
	if err := c.in.Only(at, members, "type", "id", "status", "role", "tools"); err != nil {
		return err
	}
	c.offer(at+".tools", members["tools"])
	return nil
}

func (c *items) offer(at string, tools json.RawMessage) {
	if !strict.Empty(tools) {
		c.offers = append(c.offers, Offer{at, tools})
	}
}

// addFound adds the result of a tool search. Its tools can be called from now on.
func (c *items) addFound(at string, members map[string]json.RawMessage) error {
	if err := c.in.Only(at, members, "type", "id", "status", "execution", "call_id", "tools", passthrough); err != nil {
		return err
	}
	c.offer(at+".tools", members["tools"])
	result := "No tools were found."
	if names := namesOf(members["tools"]); len(names) > 0 {
		result = "These tools can be called now: " + strings.Join(names, ", ")
	}
	return c.addResult(at, at+".tools", members, marshal(result))
}

// namesOf returns the names by which the model knows tools.
func namesOf(tools json.RawMessage) (all []string) {
	var list []struct {
		Name  string
		Tools []struct{ Name string }
	}
	_ = json.Unmarshal(tools, &list) // of another form, which has no names
	for _, tool := range list {
		if tool.Tools == nil {
			all = append(all, tool.Name)
		}
		for _, inner := range tool.Tools {
			all = append(all, Flat(tool.Name, inner.Name))
		}
	}
	return all
}
