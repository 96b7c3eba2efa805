package openai_test

import (
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/call/calltest"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A habit is a part of a request as clients send it, what it becomes, and what is left out.
type habit struct{ sent, want, left string }

const askedGet = `{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":"{}"}}]}`

// TestOddMessagesDoNotEndAConversation parses messages that clients have in their histories.
func TestOddMessagesDoNotEndAConversation(t *testing.T) {
	const called = `{"role":"assistant","toolCalls":[{"id":"c1","name":"get","arguments":"{}"}]}`
	for _, h := range []habit{
		// Assistants without content.
		{`{"role":"assistant"}`, `{"role":"assistant"}`, ""},
		{`{"role":"assistant","content":null}`, `{"role":"assistant"}`, ""},
		{`{"role":"assistant","content":[]}`, `{"role":"assistant"}`, ""},
		{`{"role":"assistant","content":"","tool_calls":[]}`, `{"role":"assistant"}`, ""},
		{`{"role":"assistant","content":null,"refusal":"I cannot."}`, `{"role":"assistant","content":"I cannot."}`, ""},
		{`{"role":"user","content":[{"type":"text","text":""}]}`, `{"role":"user"}`, ""},
		{`{"role":"user","content":[]}`, `{"role":"user"}`, ""},
		{`{"role":"user","content":["a",{"text":"b"}]}`, `{"role":"user","content":"ab"}`, ""},
		{`{"role":"user","content":null},{"role":"user","content":{"type":"text","text":"b"}}`, `{"role":"user"},{"role":"user","content":"b"}`, ""},
		{`{"role":"assistant","tool_calls":[{"id":"c1","name":"get","arguments":"{}"}]}`, called, ""},
		// Calls and results.
		{`{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":"{\"city\": \"Par"}}]}`,
			`{"role":"assistant","toolCalls":[{"id":"c1","name":"get","arguments":"{\"city\": \"Par"}]}`, ""},
		{`{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":{"a":1}}},{"id":"c1","function":{"name":"get","arguments":[1]}}]}`,
			`{"role":"assistant","toolCalls":[{"id":"c1","name":"get","arguments":"{\"a\":1}"},{"id":"c1","name":"get","arguments":"[1]"}]}`, ""},
		{`{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":null}},{"id":"c2","type":"function","function":{}}]}`,
			`{"role":"assistant","toolCalls":[{"id":"c1","name":"get","arguments":"{}"},{"id":"c2","name":"unknown","arguments":"{}"}]}`, ""},
		{`{"role":"assistant","tool_calls":[{"id":"","type":"function","function":{"name":"get","arguments":"{}"}},{"type":"function","function":{"name":"put","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"","content":"y"},{"role":"tool","content":"z"}`,
			`{"role":"assistant","toolCalls":[{"id":"call_1_0","name":"get","arguments":"{}"},{"id":"call_1_1","name":"put","arguments":"{}"}]},
			{"role":"tool","toolCallId":"call_1_0","content":"y"},{"role":"tool","toolCallId":"call_1_1","content":"z"}`, ""},
		{`{"role":"tool","tool_call_id":"c9","content":"orphan"},{"role":"tool","content":"orphan"}`, `{"role":"tool","toolCallId":"c9","content":"orphan"},{"role":"tool","content":"orphan"}`, ""},
		{`{"role":"assistant","content":null,"function_call":{"name":"get","arguments":"{}"}},{"role":"function","name":"get","content":"y"}`,
			`{"role":"assistant","toolCalls":[{"id":"call_1","name":"get","arguments":"{}"}]},{"role":"tool","name":"get","toolCallId":"call_1","content":"y"}`, ""},
		{`{"role":"assistant","tool_calls":[{"id":"c1","type":"custom","custom":{"name":"patch","input":"a\n\"b\""}}]}`,
			`{"role":"assistant","toolCalls":[{"id":"c1","name":"patch","arguments":"{\"input\":\"a\\n\\\"b\\\"\"}"}]}`, ""},
		{`{"role":"assistant","tool_calls":[{"id":"c1","type":"web_search","web_search":{}}]}`, `{"role":"assistant"}`, "messages[].tool_calls[]"},
		{askedGet + `,{"role":"tool","tool_call_id":"c1","name":"get","content":{"temperature":20}}`, called + `,{"role":"tool","toolCallId":"c1","name":"get","content":"{\"temperature\":20}"}`, ""},
		{askedGet + `,{"role":"tool","tool_call_id":"c1"}`, called + `,{"role":"tool","toolCallId":"c1"}`, ""},
		// The objects of SDKs and gateways.
		{`{"role":"assistant","content":"{}","refusal":null,"tool_calls":null,"parsed":{"a":"b"}}`, `{"role":"assistant","content":"{}"}`, "messages[].parsed"},
		{`{"role":"assistant","content":null,"parsed":null,"tool_calls":[{"id":"c1","type":"function","index":0,"function":{"name":"get","arguments":"{}","parsed_arguments":{"a":"b"}}}]}`,
			called, "messages[].tool_calls[].function.parsed_arguments"},
		{`{"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.text","text":"r"},{"type":"reasoning.encrypted","data":"?"}]}`, `{"role":"assistant","content":"x","reasoning":"r"}`, ""},
		{`{"role":"assistant","content":"x","reasoning_content":"r","thinking_blocks":[{"type":"thinking","thinking":"r"}],"provider_specific_fields":{"a":1}}`,
			`{"role":"assistant","content":"x","reasoning":"r"}`, "messages[].provider_specific_fields, messages[].thinking_blocks"},
		{`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"r"}]},{"type":"text","text":"x"}]}`, `{"role":"assistant","content":"x","reasoning":"r"}`, ""},
		{`{"role":"assistant","content":"x","annotations":[],"audio":null,"function_call":null,"prefix":false}`, `{"role":"assistant","content":"x"}`, ""},
		{`{"role":"assistant","content":"x","audio":{"id":"audio_1"},"annotations":[{}]}`, `{"role":"assistant","content":"x"}`, "messages[].annotations, messages[].audio"},
		{`{"role":"user","id":"m1","cache_control":{"type":"ephemeral"},"content":"x","tool_calls":[{}],"tool_call_id":"c1","extra":1}`, `{"role":"user","content":"x"}`,
			"messages[].cache_control, messages[].extra, messages[].id, messages[].tool_call_id, messages[].tool_calls"},
		{`{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}`, `{"role":"user","content":"a"}`, "messages[].content[].cache_control"},
		// Parts that no model gets here.
		{`{"role":"user","content":[{"type":"text","text":"a "},{"type":"input_audio","input_audio":{"data":"x","format":"wav"}},{"type":"text","text":" b"}]}`,
			`{"role":"user","content":"a [input_audio omitted] b"}`, "messages[].content[].input_audio"},
		{`{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"x"}}]}`, `{"role":"user","content":"[file omitted: a.pdf]"}`, "messages[].content[].file"},
		{`{"role":"user","content":{}},{"role":"assistant","content":"x","tool_calls":{}}`, `{"role":"user"},{"role":"assistant","content":"x"}`, ""}, // Lua's empty arrays
		{`{"role":"user","content":[{"type":"hologram"}]}`, `{"role":"user","content":"[hologram omitted]"}`, "messages[].content[]"},
		{`{"role":"system","content":[{"type":"image_url","image_url":{"url":"https://a/1"}}]}`, `{"role":"system","content":"[image omitted]"}`, "messages[].content[].image_url"},
		{askedGet + `,{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"shot"},{"type":"image_url","image_url":"data:image/png;base64,AA=="},{"type":"image","data":"AA==","mimeType":"image/png"}]}`,
			called + `,{"role":"tool","toolCallId":"c1","content":"shot","images":[{"image":{},"offset":4},{"image":{},"offset":4}]}`, ""},
	} {
		check(t, `{"model":"m","messages":[{"role":"user","content":"Hi"},`+h.sent+`]}`, `{"model":"m","sampling":{},"messages":[{"role":"user","content":"Hi"},`+h.want+`]}`, h.left)
	}
}

// TestFieldsOfOtherServices parses fields in the forms of OpenAI's older API, vLLM and others.
func TestFieldsOfOtherServices(t *testing.T) {
	const tool, get = `{"type":"function","function":{"name":"get"}}`, `"tools":[{"name":"get"}]`
	for _, h := range []habit{
		// Absence.
		{`"stop":""`, ``, ""}, {`"stop":[]`, ``, ""}, {`"stop":["","x"]`, `"stop":["x"]`, ""}, {`"logit_bias":{}`, ``, ""}, {`"tools":[],"functions":[]`, ``, ""},
		{`"max_tokens":0`, ``, ""}, {`"max_tokens":-1`, ``, ""}, {`"max_tokens":6,"max_completion_tokens":5`, `"sampling":{"maxTokens":5}`, "max_tokens"}, {`"max_completion_tokens":0,"max_tokens":5`, `"sampling":{"maxTokens":5}`, ""},
		{`"stream_options":{}`, ``, ""}, {`"stream_options":{"include_usage":true}`, ``, ""}, {`"stream_options":{"include_usage":null,"include_obfuscation":false}`, ``, ""},
		{`"response_format":{}`, ``, ""}, {`"tool_choice":"auto"`, `"toolChoice":{"mode":"TOOL_MODE_AUTO"}`, ""}, {`"tool_choice":""`, ``, ""}, {`"modalities":[]`, ``, ""}, {`"timeout":0`, ``, ""},
		{`"top_k":-1`, `"sampling":{"topK":0}`, ""}, {`"repetition_penalty":0`, ``, ""}, {`"top_logprobs":5`, ``, "top_logprobs"}, {`"request_id":"","chat_template":"","documents":[]`, ``, ""},
		{`"verbosity":"loud","service_tier":"scale"`, ``, "service_tier, verbosity"}, {`"priority":1,"echo":true`, ``, "echo, priority"},
		{`"stop":[null,"x"],"max_tokens":5.0,"seed":1e1`, `"stop":["x"],"sampling":{"maxTokens":5,"seed":"10"}`, ""}, {`"modalities":["TEXT"],"audio":{"voice":"a"}`, ``, "audio"},
		{`"user":7,"prompt_cache_key":{},"reasoning":"high","thinking":true,"reasoning_effort":5,"request_id":[1]`, ``, "prompt_cache_key, reasoning, reasoning_effort, request_id, thinking, user"},
		{`"logit_bias":[],"chat_template_kwargs":[],"stream_options":[]`, `"templateVariables":"{}"`, ""}, // PHP's empty objects
		{`"stop":{},"tools":{},"functions":{},"n":0`, ``, ""}, // Lua's empty arrays
		// Tools.
		{`"tools":[` + tool + `,` + tool + `,{"type":"custom","name":"get"}],"functions":[{"name":"get"}]`, get, "tools[], tools[].function"},
		{`"tools":[{"name":"get","description":"d","input_schema":[]}]`, `"tools":[{"name":"get","description":"d","parameters":"{}"}]`, ""},
		{`"tools":[` + tool + `,{"google_search":{}},{"function_declarations":[{"name":"a"}]}]`, get, "tools[]"},
		{`"tools":[` + tool + `],"tool_choice":"get"`, get + `,"toolChoice":{"mode":"TOOL_MODE_REQUIRED","name":"get"}`, ""},
		{`"tools":[` + tool + `,{"type":"web_search"},{"type":"mcp","server_label":"x"},{"type":"hologram"}]`, get, "tools[], tools[].mcp, tools[].web_search"},
		{`"tools":[{"type":"function","name":"get","cache_control":{}}]`, get, ""},
		{`"tools":[{"type":"custom","custom":{"name":"patch","description":"d","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"start: x"}}}}]`,
			`"tools":[{"name":"patch","description":"d\n\nThe input follows this grammar (lark):\nstart: x",` + inputSchema + `}]`, "tools[].custom.format"},
		{`"functions":[{"name":"get"}],"function_call":"auto"`, get + `,"toolChoice":{"mode":"TOOL_MODE_AUTO"},"parallelToolCalls":false`, ""},
		{`"functions":[{"name":"get"}],"function_call":{"name":"get"}`, get + `,"toolChoice":{"mode":"TOOL_MODE_REQUIRED","name":"get"},"parallelToolCalls":false`, ""},
		{`"tools":[` + tool + `],"tool_choice":"any"`, get + `,"toolChoice":{"mode":"TOOL_MODE_REQUIRED"}`, ""},
		{`"tools":[` + tool + `],"tool_choice":{"type":"function","name":"get"}`, get + `,"toolChoice":{"mode":"TOOL_MODE_REQUIRED","name":"get"}`, ""},
		{`"tools":[` + tool + `],"tool_choice":{"type":"any"}`, get + `,"toolChoice":{"mode":"TOOL_MODE_REQUIRED"}`, ""},
		{`"tools":[{"type":"function","function":{"name":"put"}},` + tool + `],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[` + tool + `]}}`,
			get + `,"toolChoice":{"mode":"TOOL_MODE_REQUIRED"}`, ""},
		{`"tools":[` + tool + `],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"get"}]}`, get + `,"toolChoice":{"mode":"TOOL_MODE_AUTO"}`, ""},
		{`"tools":[` + tool + `],"tool_choice":"required","response_format":{"type":"json_object"}`, get + `,"toolChoice":{"mode":"TOOL_MODE_REQUIRED"}`, ""},
		// Forms of the answer.
		{`"response_format":{"type":"json_object","schema":{"type": "string"}}`, stringGuide, ""}, {`"response_format":{"type":"json_object","value":{"type":"string"}}`, stringGuide, ""},
		{`"response_format":{"type":"json","value":{"type":"string"}}`, stringGuide, ""}, {`"response_format":{"type":"json_schema","schema":{"type":"string"}}`, stringGuide, ""},
		{`"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"string"}}}`, stringGuide, ""}, {`"response_format":{"type":"json_schema","json_schema":{"type":"string"}}`, stringGuide, ""},
		{`"structured_outputs":{"json":{"type":"string"},"regex":null,"json_object":false}`, stringGuide, ""}, {`"structured_outputs":{"json":"{\"type\":\"string\"}"}`, stringGuide, ""},
		{`"guided_json":{"type":"string"},"guided_decoding_backend":"xgrammar"`, stringGuide, "guided_decoding_backend"}, {`"json_schema":{"type":"string"},"grammar":""`, stringGuide, ""},
		{`"structured_outputs":{"regex":"a+"}`, `"sampling":{"guide":{"forms":[{"pattern":"a+"}]}}`, ""}, {`"guided_regex":"a+","regex":""`, `"sampling":{"guide":{"forms":[{"pattern":"a+"}]}}`, ""},
		{`"response_format":{"type":"regex","value":"a+"}`, `"sampling":{"guide":{"forms":[{"pattern":"a+"}]}}`, ""},
		{`"structured_outputs":{"choice":["a","b"]}`, `"sampling":{"guide":{"forms":[{"before":"a"},{"before":"b"}]}}`, ""},
		{`"guided_choice":["a","b"]`, `"sampling":{"guide":{"forms":[{"before":"a"},{"before":"b"}]}}`, ""},
		{`"structured_outputs":{"json_object":true,"whitespace_pattern":" "}`, `"sampling":{"guide":{"forms":[{"schema":"{\"type\":\"object\"}"}]}}`, "structured_outputs.whitespace_pattern"},
		// Reasoning.
		{`"reasoning":{"effort":"none"}`, `"templateVariables":"{\"reasoning_effort\":\"none\"}"`, ""}, {`"reasoning_effort":""`, ``, ""},
		{`"reasoning":{"enabled":false,"max_tokens":100}`, thinkingOff, "reasoning.max_tokens"}, {`"enable_thinking":false`, thinkingOff, ""},
		{`"thinking":{"type":"disabled"}`, thinkingOff, ""}, {`"thinking":{"type":"enabled","budget_tokens":100}`, `"templateVariables":"{\"enable_thinking\":true}"`, "thinking.budget_tokens"},
		{`"think":"low"`, `"templateVariables":"{\"reasoning_effort\":\"low\"}"`, ""}, {`"think":true,"chat_template_kwargs":{"enable_thinking":false}`, thinkingOff, ""},
		// The end of the prompt.
		{`"add_generation_prompt":false,"continue_final_message":true`, `"noGenerationPrompt":true,"continueMessage":true`, ""}, {`"add_generation_prompt":true,"continue_final_message":false`, ``, ""},
	} {
		want := hello
		if h.want != "" {
			want += "," + h.want
		}
		if !strings.Contains(want, `"sampling"`) {
			want += `,"sampling":{}`
		}
		check(t, `{`+hello+`,`+h.sent+`}`, `{`+want+`}`, h.left)
	}
	for sent, param := range map[string]string{
		`"response_format":{"type":"regex"}`: "response_format.value", `"response_format":{"type":"grammar","grammar":"x"}`: "response_format",
		`"structured_outputs":{"regex":5}`: "structured_outputs.regex", `"structured_outputs":{"structural_tag":"{}"}`: "structured_outputs.structural_tag",
		`"guided_regex":["a+"]`: "guided_regex", `"grammar":"root ::= x"`: "grammar", `"bad_words":["x"]`: "bad_words", `"allowed_token_ids":[1]`: "allowed_token_ids",
		`"guided_json":{"type":"string"},"response_format":{"type":"json_object"}`: "response_format", `"guided_choice":[""]`: "guided_choice[0]", `"guided_json":"{"`: "guided_json",
		`"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}`: "tool_choice.type", `"modalities":["text","audio"]`: "modalities", `"documents":[{}]`: "documents",
		`"tools":[],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"put"}}]}}`: "tool_choice.allowed_tools.tools[0].function.name",
	} {
		if _, err := openai.ParseChat([]byte(`{`+hello+`,`+sent+`}`), nil); err == nil || streamerr.As(err).Param != param {
			t.Errorf("%s: %v", sent, err)
		}
	}
}

const (
	inputSchema = `"parameters":"{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},\"required\":[\"input\"],\"additionalProperties\":false}"`
	stringGuide = `"sampling":{"guide":{"forms":[{"schema":"{\"type\":\"string\"}"}]}}`
	thinkingOff = `"templateVariables":"{\"enable_thinking\":false}"`
)

// check parses a body, and compares the request and the names of the fields that were left out.
func check(t *testing.T, body, want, left string) {
	t.Helper()
	in := &strict.Reading{}
	c, err := openai.ParseChat([]byte(body), in)
	if err != nil {
		t.Errorf("%s: %v", body, err)
		return
	}
	calltest.WantRequest(t, body, c.Request, want)
	if in.Header() != left {
		t.Errorf("%s: left out are %q, want %q", body, in.Header(), left)
	}
}

func TestLastMessageWithPrefixIsContinued(t *testing.T) {
	for messages, want := range map[string]bool{
		`{"role":"assistant","content":"a","prefix":true}`: true, `{"role":"assistant","content":"a","prefix":false}`: false,
		`{"role":"assistant","content":"a","prefix":true},{"role":"user","content":"x"}`: false,
	} {
		c, err := openai.ParseChat([]byte(`{"model":"m","messages":[`+messages+`]}`), nil)
		if err != nil || c.Request.GetContinueMessage() != want {
			t.Errorf("%s: %v, %v", messages, c, err)
		}
	}
}

func TestRequestIDNamesTheStream(t *testing.T) {
	for sent, want := range map[string][2]string{`"request_id":"x1"`: {"x1", ""}, `"rid":"x2"`: {"x2", ""}, `"request_id":"not valid"`: {"", "request_id"}} {
		in := &strict.Reading{}
		c, err := openai.ParseChat([]byte(`{`+hello+`,`+sent+`}`), in)
		if err != nil || c.Call().ID != want[0] || in.Header() != want[1] {
			t.Errorf("%s: %v, %q", sent, err, in.Header())
		}
	}
}
