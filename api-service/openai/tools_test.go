package openai_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestToolsReachTheRequest(t *testing.T) {
	c, err := openai.ParseChat([]byte(`{"model":"m",
		"messages":[
			{"role":"user","content":"Rain?"},
			{"role":"assistant","reasoning_content":"hm","tool_calls":[{"id":"call_1","type":"function","index":0,"function":{"name":"f","arguments":"{\"a\": 1}"}},
				{"id":"call_2","type":"function","function":{"name":"g","arguments":""}}]},
			{"role":"tool","tool_call_id":"call_1","content":[{"type":"text","text":"no"}]},
			{"role":"tool","tool_call_id":"call_2","content":"yes"},
			{"role":"assistant","content":"ok","reasoning":"so","tool_calls":null}],
		"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type": "object", "properties": {"z": {}, "a": {}}},"strict":true}},
			{"type":"function","function":{"name":"g","description":null}}],
		"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,
		"chat_template_kwargs":{"enable_thinking": false},"reasoning_effort":"low","separate_reasoning":false}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &chatv1.ChatRequest{
		Model: "m", Sampling: &llmv1.Sampling{},
		Messages: []*chatv1.Message{
			{Role: "user", Content: "Rain?"},
			{Role: "assistant", Reasoning: "hm", ToolCalls: []*chatv1.ToolCall{{Id: "call_1", Name: "f", Arguments: `{"a": 1}`}, {Id: "call_2", Name: "g", Arguments: "{}"}}},
			{Role: "tool", ToolCallId: "call_1", Content: "no"}, {Role: "tool", ToolCallId: "call_2", Content: "yes"},
			{Role: "assistant", Content: "ok", Reasoning: "so"},
		},
		Tools: []*chatv1.Tool{
			{Name: "f", Description: "d", Parameters: `{"type":"object","properties":{"z":{},"a":{}}}`}, {Name: "g"},
		},
		ToolChoice:        &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED, Name: "f"},
		ParallelToolCalls: proto.Bool(false), SeparateReasoning: proto.Bool(false), TemplateVariables: `{"enable_thinking":false,"reasoning_effort":"low"}`,
	}
	if !proto.Equal(c.Request, want) {
		t.Errorf("got  %v\nwant %v", c.Request, want)
	}
	for inner, outer := range map[string]string{
		"tools[0].name": "tools[0].function.name", "tools": "tools", "messages[1].tool_calls[0].arguments": "messages[1].tool_calls[0].function.arguments",
		"sampling.guide": "tool_choice", "template_variables": "chat_template_kwargs", "messages[1].tool_calls[0].id": "messages[1].tool_calls[0].id",
	} {
		if got := c.Param(inner); got != outer {
			t.Errorf("%s is called %s, want %s", inner, got, outer)
		}
	}
}

func TestResponseFormatBecomesAGuide(t *testing.T) {
	for format, schema := range map[string]string{
		`{"type":"text"}`: "-", `{"type":"json_object"}`: `{"type":"object"}`, `{"type":"json_schema","json_schema":{"name":"n"}}`: `{"type":"object"}`,
		`{"type":"json_schema","json_schema":{"name":"n","strict":true,"description":"d","schema":{ "type": "string" }}}`: `{"type":"string"}`,
	} {
		c, err := openai.ParseChat([]byte(`{`+hello+`,"response_format":`+format+`}`), nil)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		forms := c.Request.GetSampling().GetGuide().GetForms()
		if schema == "-" && len(forms) != 0 || schema != "-" && (len(forms) != 1 || forms[0].GetSchema() != schema) {
			t.Errorf("%s: %v", format, forms)
		}
		if schema != "-" && c.Param("sampling.guide") != "response_format" {
			t.Error(c.Param("sampling.guide"))
		}
	}
}

func TestBadToolsAreRefusedByName(t *testing.T) {
	messages := func(more string) string {
		return `{"model":"m","messages":[{"role":"user","content":"x"},` + more + `]}`
	}
	tool := func(more string) string { return `{` + hello + `,"tools":[` + more + `]}` }
	for body, want := range map[string]struct{ param, message string }{
		messages(`{"role":"assistant","content":"x","tool_calls":{"a":1}}`):                                                {"messages[1].tool_calls", "must be an array"},
		messages(`{"role":"assistant","content":"x","tool_calls":[{}]}`):                                                   {"messages[1].tool_calls[0].type", "missing"},
		messages(`{"role":"assistant","tool_calls":[{"type":"custom"}]}`):                                                  {"messages[1].tool_calls[0].custom", "missing"},
		messages(`{"role":"assistant","tool_calls":[{"type":"function","id":"a"}]}`):                                       {"messages[1].tool_calls[0].function", "missing"},
		messages(`{"role":"assistant","tool_calls":[{"type":"function","id":"a","function":{"name":"f","argument":""}}]}`): {"messages[1].tool_calls[0].function.argument", "unknown field"},
		messages(`{"role":"assistant","tool_calls":[{"type":"function","id":"a","x":1,"function":{}}]}`):                   {"messages[1].tool_calls[0].x", "unknown field"},
		messages(`{"role":"assistant","content":"x","reasoning_content":5}`):                                               {"messages[1].reasoning_content", "must be a string"},
		messages(`{"role":"user","content":"x","tool_call_id":"a"}`):                                                       {"messages[1].tool_call_id", "not supported"},
		messages(`{"role":"user","content":[{"type":"text","text":"x"},{"type":"input_audio","input_audio":{}}]}`):         {"messages[1].content[1].input_audio", "not supported"},
		tool(`5`):                                 {"tools[0]", "must be an object"},
		tool(`{}`):                                {"tools[0].type", "missing"},
		tool(`{"type":"custom","custom":{}}`):     {"tools[0].custom.name", "missing"},
		tool(`{"type":"function"}`):               {"tools[0].function", "missing"},
		tool(`{"type":"function","function":{}}`): {"tools[0].function.name", "missing"},
		tool(`{"type":"function","function":{"name":"f","parameters":[1]}}`):                               {"tools[0].function.parameters", "must be an object"},
		tool(`{"type":"function","function":{"name":"f","description":5}}`):                                {"tools[0].function.description", "must be a string"},
		tool(`{"type":"function","function":{"name":"f","strict":"yes"}}`):                                 {"tools[0].function.strict", "must be a boolean"},
		tool(`{"type":"function","function":{"name":"f","color":"red"}}`):                                  {"tools[0].function.color", "unknown field"},
		`{` + hello + `,"tool_choice":"always"}`:                                                           {"tool_choice", `"always"`},
		`{` + hello + `,"tool_choice":5}`:                                                                  {"tool_choice", "must be an object"},
		`{` + hello + `,"tool_choice":{"type":"function"}}`:                                                {"tool_choice.function", "missing"},
		`{` + hello + `,"tool_choice":{"type":"allowed_tools"}}`:                                           {"tool_choice.mode", "missing"},
		`{` + hello + `,"parallel_tool_calls":1}`:                                                          {"parallel_tool_calls", "must be a boolean"},
		`{` + hello + `,"functions":[{}]}`:                                                                 {"functions[0].name", "missing"},
		`{` + hello + `,"response_format":"json"}`:                                                         {"response_format", "must be an object"},
		`{` + hello + `,"response_format":{"type":"xml"}}`:                                                 {"response_format.type", `"xml"`},
		`{` + hello + `,"response_format":{"type":"json_schema"}}`:                                         {"response_format.json_schema", "missing"},
		`{` + hello + `,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":[1]}}}`: {"response_format.json_schema.schema", "must be an object"},
		`{` + hello + `,"chat_template_kwargs":[1]}`:                                                       {"chat_template_kwargs", "must be an object"},
		`{` + hello + `,"separate_reasoning":"no"}`:                                                        {"separate_reasoning", "must be a boolean"},
		`{` + hello + `,"reasoning_effort":5}`:                                                             {"reasoning_effort", "must be a string"},
	} {
		_, err := openai.ParseChat([]byte(body), &strict.Reading{Strict: true})
		e := streamerr.As(err)
		if err == nil || e.Reason != streamerr.Invalid || e.Param != want.param || !strings.Contains(e.Message, want.message) {
			t.Errorf("%.160s\n got param %q, %v\nwant param %q, %s", body, e.Param, e, want.param, want.message)
		}
	}
}
