package conversation

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/whence-dev/whence/api-service/customtool"
)

// foreignCalls are calls of tools that run at the client. The model sees them as calls of functions.
var foreignCalls = map[string]struct {
	name      string   // of the function; "" means that the item has the name
	arguments []string // the member that has the arguments: the first one that is there
}{
	"custom_tool_call": {"", []string{"input"}},
	"local_shell_call": {"local_shell", []string{"action"}},
	"shell_call":       {"shell", []string{"action"}},
	"apply_patch_call": {"apply_patch", []string{"operation"}},
	"computer_call":    {"computer", []string{"action", "actions"}},
}

// foreignOutputs are the results of foreignCalls.
var foreignOutputs = []string{"custom_tool_call_output", "local_shell_call_output", "shell_call_output", "apply_patch_call_output", "computer_call_output"}

// hosted are calls of tools that run at OpenAI's servers, and have their results in the same item.
var hosted = map[string]struct{ arguments, results []string }{
	"mcp_call":              {[]string{"arguments"}, []string{"output", "error"}},
	"code_interpreter_call": {[]string{"code"}, []string{"outputs"}},
	"file_search_call":      {[]string{"queries"}, []string{"results"}},
	"web_search_call":       {[]string{"action"}, []string{"results"}},
	"image_generation_call": {[]string{"revised_prompt"}, nil},
	"mcp_approval_request":  {[]string{"arguments"}, nil},
}

// dropped are items that tell a model nothing here.
var dropped = []string{
	"mcp_list_tools", "tool_search_call", "tool_search_output", "compaction_trigger", "context_compaction", "ghost_snapshot",
}

// addForeign adds an item that means something only to OpenAI's servers or models, as far as it can
// be converted. in gets the name of its kind.
func (c *items) addForeign(at, kind string, members map[string]json.RawMessage) error {
	named := at + "." + kind
	_, isCall := foreignCalls[kind]
	_, isHosted := hosted[kind]
	switch {
	case kind == ToolSearch+"_call" && AtClient(members):
		return c.call(at, ToolSearch, members, members["arguments"])
	case kind == ToolSearch+"_output" && AtClient(members):
		return c.addFound(at, members)
	case isCall:
		c.in.Ignore(named)
		return c.addForeignCall(at, kind, members)
	case slices.Contains(foreignOutputs, kind):
		c.in.Ignore(named)
		if kind == "local_shell_call_output" && members["call_id"] == nil {
			members["call_id"] = members["id"] // which is the id of the call
		}
		return c.addResult(at, at+".output", members, members["output"])
	case isHosted:
		c.in.Ignore(named)
		return c.addHosted(at, kind, members)
	case kind == "mcp_approval_response":
		c.in.Ignore(named)
		note := "[The call is not approved.]"
		if string(members["approve"]) == "true" {
			note = "[The call is approved.]"
		}
		c.Begin(at, user).Content.Write(note)
		return nil
	case kind == "compaction" || kind == "compaction_summary":
		return c.addCompaction(at, members)
	case slices.Contains(dropped, kind):
		return c.in.Unsupported(named)
	default:
		return c.in.Unsupported(at)
	}
}

// addForeignCall adds a call of a tool that is not a function.
func (c *items) addForeignCall(at, kind string, members map[string]json.RawMessage) (err error) {
	of := foreignCalls[kind]
	name := of.name
	if name == "" {
		if name, err = called(at, members); err != nil {
			return err
		}
	}
	raw := first(members, of.arguments)
	if kind == "custom_tool_call" {
		raw = marshal(customtool.Arguments(textOf(raw)))
	}
	return c.call(at, name, members, raw)
}

// addHosted adds a call of a tool of OpenAI's servers with its result, or a note about a call whose
// result only those servers have.
func (c *items) addHosted(at, kind string, members map[string]json.RawMessage) error {
	name, err := optional(at, "name", members)
	if err != nil {
		return err
	}
	of := hosted[kind]
	arguments, results := first(members, of.arguments), first(members, of.results)
	if results == nil {
		t := c.Continue(at, assistant)
		t.Content.Separate()
		t.Content.Write("[" + strings.Join(strings.Fields(strings.TrimSuffix(kind, "_call")+" "+name+" "+textOf(arguments)), " ") + "]")
		t.Content.Separate()
		return nil
	}
	if name == "" {
		name = strings.TrimSuffix(kind, "_call")
		arguments = marshal(map[string]json.RawMessage{of.arguments[0]: arguments})
	}
	if err := c.call(at, name, members, arguments); err != nil {
		return err
	}
	t := c.Begin(at, "tool")
	t.Message.ToolCallId = c.pending[len(c.pending)-1]
	c.pending = c.pending[:len(c.pending)-1]
	t.Content.Write(resultText(results))
	return nil
}

// resultText returns the texts of the results of a hosted call, or all of the results as JSON.
func resultText(raw json.RawMessage) string {
	var parts []struct{ Text, Logs *string }
	if json.Unmarshal(raw, &parts) != nil {
		return textOf(raw)
	}
	var all []string
	for _, p := range parts {
		for _, text := range []*string{p.Text, p.Logs} {
			if text != nil {
				all = append(all, *text)
			}
		}
	}
	if all == nil {
		return textOf(raw)
	}
	return strings.Join(all, "\n")
}

// first returns the first member that is there.
func first(members map[string]json.RawMessage, names []string) json.RawMessage {
	for _, name := range names {
		if raw := members[name]; raw != nil {
			return raw
		}
	}
	return nil
}

func marshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: strings and valid JSON
	}
	return b
}

// summaryIntroduction precedes the summary of a compacted conversation.
const summaryIntroduction = "This is a summary of the conversation so far:\n\n"

// addCompaction adds a compacted part of the conversation: the user tells its summary. Only Encrypt
// has made one that can be read here.
func (c *items) addCompaction(at string, members map[string]json.RawMessage) error {
	if err := c.in.Only(at, members, "type", "id", "encrypted_content", "created_by", "status", passthrough); err != nil {
		return err
	}
	text, ours := "", false
	if raw, ok := members["encrypted_content"]; ok {
		var err error
		if text, ours, err = decrypt(at+".encrypted_content", raw); err != nil {
			return err
		}
	}
	if !ours {
		if err := c.in.Unsupported(at + ".compaction"); err != nil {
			return err
		}
		text = "[An earlier part of the conversation was compacted by another service, and cannot be read here.]"
	} else {
		text = summaryIntroduction + text
	}
	c.summary = c.Begin(at, user)
	c.summary.Content.Write(text)
	return nil
}
