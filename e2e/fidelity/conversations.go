package main

import (
	"encoding/json"
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// An object keeps the order of its members, like received JSON: templates that write tools show the
// order.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	out := []byte("{")
	for i, m := range o {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

// variables returns random variables of a template: mostly a valid conversation, sometimes one that
// templates refuse.
func (w writer) variables(tokens object) object {
	vars := append(object{}, tokens...)
	tooled := w.IntN(3) == 0
	vars = append(vars, member{"messages", w.conversation(tooled)})
	vars = append(vars, member{"documents", nil})
	if tooled || w.IntN(8) == 0 {
		vars = append(vars, member{"tools", w.tools()})
	} else {
		vars = append(vars, member{"tools", nil})
	}
	vars = append(vars, member{"add_generation_prompt", w.IntN(4) > 0})
	for _, option := range []member{
		{"enable_thinking", w.IntN(2) == 0}, {"thinking", w.IntN(2) == 0}, {"date_string", "26 Jul 2024"},
		{"tools_in_user_message", w.IntN(2) == 0}, {"reasoning_effort", w.pick([]string{"low", "high"})}, {"keep_past_thinking", true},
	} {
		if w.IntN(3) == 0 {
			vars = append(vars, option)
		}
	}
	return vars
}

func (w writer) conversation(tooled bool) []object {
	var list []object
	if w.IntN(2) == 0 {
		list = append(list, object{{"role", "system"}, {"content", w.content()}})
	}
	for range 1 + w.IntN(4) {
		list = append(list, object{{"role", "user"}, {"content", w.content()}})
		if tooled && w.IntN(2) == 0 {
			list = append(list, w.toolTurns()...)
		}
		list = append(list, w.answer())
	}
	if w.IntN(4) > 0 {
		list = append(list, object{{"role", "user"}, {"content", w.content()}})
	}
	if w.IntN(6) == 0 {
		w.spoil(list)
	}
	return list
}

// messages returns turns in random order.
func (w writer) messages() []*chatv1.Message {
	var list []*chatv1.Message
	for range w.IntN(5) {
		role := w.pick([]string{"system", "developer", "user", "user", "assistant", "assistant", "tool", "nobody"})
		list = append(list, &chatv1.Message{Role: role, Content: w.pick([]string{w.content(), w.content(), w.broken(), "\x00"})})
	}
	return list
}

func (w writer) answer() object {
	content := w.content()
	switch w.IntN(5) {
	case 0:
		content = "<think>\n" + w.content() + "\n</think>\n\n" + content
	case 1:
		return object{{"role", "assistant"}, {"content", content}, {"reasoning_content", w.content()}}
	}
	return object{{"role", "assistant"}, {"content", content}}
}

// toolTurns returns calls of one or more tools with their results, sometimes several times.
func (w writer) toolTurns() []object {
	var list []object
	for range 1 + w.IntN(2) {
		var calls []object
		var results []object
		for range 1 + w.IntN(1+w.IntN(3)) {
			id := w.pick([]string{"abcdefghi", "call_0001", "012345678", "x"})
			arguments := w.value(3)
			if w.IntN(3) == 0 {
				text, err := json.Marshal(arguments)
				if err != nil {
					panic(err) // cannot fail: our own value
				}
				arguments = string(text)
			}
			function := object{{"name", w.pick(toolNames)}, {"arguments", arguments}}
			calls = append(calls, object{{"id", id}, {"type", "function"}, {"function", function}})
			result := object{{"role", "tool"}, {"tool_call_id", id}, {"name", w.pick(toolNames)}, {"content", w.content()}}
			results = append(results, result)
		}
		call := object{{"role", "assistant"}}
		switch w.IntN(3) {
		case 0:
			call = append(call, member{"content", w.content()})
		case 1:
			call = append(call, member{"content", nil})
		default:
			call = append(call, member{"content", ""})
		}
		list = append(list, append(call, member{"tool_calls", calls}))
		list = append(list, results...)
	}
	return list
}

// spoil makes one message invalid.
func (w writer) spoil(list []object) {
	m := list[w.IntN(len(list))]
	for i := range m {
		switch {
		case m[i].key == "role" && w.IntN(2) == 0:
			m[i].value = w.pick([]string{"assistant", "user", "system", "tool", "developer", "ipython", "", "nobody"})
		case m[i].key == "content" && w.IntN(2) == 0:
			odd := []any{nil, []object{}, []object{{{"type", "text"}, {"text", w.content()}}, {{"type", "image"}}}, 17, object{{"content", "c"}}, true}
			m[i].value = odd[w.IntN(len(odd))]
		case m[i].key == "tool_calls" && w.IntN(2) == 0:
			m[i].value = []any{nil, []object{}}[w.IntN(2)]
		}
	}
}

func (w writer) tools() []object {
	var list []object
	for range 1 + w.IntN(3) {
		parameters := object{{"type", "object"}, {"properties", object{
			{w.word(languages[0]), object{{"type", "string"}, {"description", w.content()}}},
			{"n", object{{"type", "integer"}, {"default", 3}, {"enum", []any{1, 2.5, -7, nil, true}}}},
			{"deep", w.value(3)},
		}}, {"required", []any{"n"}}}
		list = append(list, object{{"type", "function"}, {"function", object{
			{"name", w.pick(toolNames)}, {"description", w.content()}, {"parameters", parameters},
		}}})
		if w.IntN(3) == 0 {
			last := list[len(list)-1]
			last[1].value = append(last[1].value.(object), member{"return", w.value(2)})
		}
	}
	return list
}

// value returns a random JSON value.
func (w writer) value(depth int) any {
	if depth > 0 {
		switch w.IntN(3) {
		case 0:
			list := make([]any, w.IntN(4))
			for i := range list {
				list[i] = w.value(depth - 1)
			}
			return list
		case 1:
			o := object{}
			for _, key := range []string{"z", "a", "ключ", "key with \"quotes\"", "a.b", "items"} {
				if w.IntN(2) == 0 {
					o = append(o, member{key, w.value(depth - 1)})
				}
			}
			return o
		}
	}
	scalars := []any{nil, true, false, "", w.content(), "<b>&'\"\\/", "\u2028\u007f\u0001\t\n"}
	for _, n := range []json.Number{"0", "-12", "1099511627776", "0.5", "1e-7", "1e22", "-0.25", "100.0", "1e16", "123456789.125", "0.0001"} {
		scalars = append(scalars, n)
	}
	return scalars[w.IntN(len(scalars))]
}

func (w writer) content() string {
	switch w.IntN(10) {
	case 0:
		return ""
	case 1:
		return w.pick([]string{" ", "\n", "  padded  ", "\n\nlines\n\n", "\t", "\u3000wide\u3000", "\u001cseparator\u001c"})
	case 2:
		return w.pick([]string{
			"{{ messages }}", "{% endfor %}", "<think>", "</think>", "a</think>b</think>\n\nc", "<think>x</think>", "<tool_response>x</tool_response>",
			"<|im_end|>\n<|im_start|>system", "it's \"quoted\" \\ and more", "{\"a\": [1, 2.0, null]}", "[INST] [/INST]",
		})
	case 3:
		return w.code()
	case 4:
		return w.emoji()
	default:
		return strings.ToValidUTF8(w.sentence(), "")
	}
}

var toolNames = []string{"get_weather", "search", "run.code", "погода", "a-b"}
