package anthropic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/call/calltest"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var parser calltest.Parser = anthropic.Parse

// hi has the fields that a request must have.
const hi = `"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]`

func TestRequestsAreConverted(t *testing.T) {
	for body, want := range map[string]string{
		hi: `{"model":"m","messages":[{"role":"user","content":"Hi"}],"sampling":{"maxTokens":9}}`,
		hi + `,"system":"Be kind.","temperature":0.5,"top_p":0.9,"top_k":40,"stop_sequences":["a","b"]`: `{"model":"m","messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hi"}],
			"sampling":{"maxTokens":9,"temperature":0.5,"topP":0.9,"topK":40},"stop":["a","b"]}`,
		hi + `,"system":[{"type":"text","text":"One.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"Two.","citations":null}]`: `{"model":"m",
			"messages":[{"role":"system","content":"One.\n\nTwo."},{"role":"user","content":"Hi"}],"sampling":{"maxTokens":9}}`,
		`"system":"One.","model":"m","max_tokens":9,"messages":[{"role":"system","content":"Two."},{"role":"user","content":"Hi"}]`: `{"model":"m",
			"messages":[{"role":"system","content":"One.\n\nTwo."},{"role":"user","content":"Hi"}],"sampling":{"maxTokens":9}}`,
		hi + `,"metadata":{"user_id":"u"},"service_tier":"auto","cache_control":{"type":"ephemeral"},"context_management":{"edits":[]},"speed":null,"container":null`: `{"model":"m",
			"messages":[{"role":"user","content":"Hi"}],"sampling":{"maxTokens":9},"session":"u"}`,
		hi + `,"tools":[{"name":"f","description":"d","input_schema":{"type": "object"},"cache_control":null,"strict":true,"defer_loading":false},{"type":"custom","name":"g","input_schema":{}}],
			"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true}`: `{"model":"m","messages":[{"role":"user","content":"Hi"}],"sampling":{"maxTokens":9},
			"tools":[{"name":"f","description":"d","parameters":"{\"type\":\"object\"}"},{"name":"g","parameters":"{}"}],"toolChoice":{"mode":"TOOL_MODE_REQUIRED","name":"f"},"parallelToolCalls":false}`,
		hi + `,"tool_choice":{"type":"any"}`:                                           `{"model":"m","messages":[{"role":"user","content":"Hi"}],"sampling":{"maxTokens":9},"toolChoice":{"mode":"TOOL_MODE_REQUIRED"}}`,
		hi + `,"tool_choice":{"type":"auto","disable_parallel_tool_use":false}`:        `{"model":"m","messages":[{"role":"user","content":"Hi"}],"sampling":{"maxTokens":9},"toolChoice":{"mode":"TOOL_MODE_AUTO"},"parallelToolCalls":true}`,
		hi + `,"thinking":{"type":"enabled","budget_tokens":1024}`:                     `{"model":"m","messages":[{"role":"user","content":"Hi"}],"sampling":{"maxTokens":9},"templateVariables":"{\"enable_thinking\":true,\"thinking\":true}"}`,
		hi + `,"thinking":{"type":"disabled"},"output_config":{"effort":"low"}`:        `{"model":"m","messages":[{"role":"user","content":"Hi"}],"sampling":{"maxTokens":9},"templateVariables":"{\"enable_thinking\":false,\"reasoning_effort\":\"low\",\"thinking\":false}"}`,
		hi + `,"output_config":{"format":{"type":"json_schema","schema":{"type": 1}}}`: `{"model":"m","messages":[{"role":"user","content":"Hi"}],"sampling":{"maxTokens":9,"guide":{"forms":[{"schema":"{\"type\":1}"}]}}}`,
	} {
		c := parser.Parse(t, "{"+body+"}")
		calltest.WantRequest(t, body, c.Request, want)
		if c.Stream {
			t.Errorf("%s is streamed", body)
		}
	}
	if !parser.Parse(t, "{"+hi+`,"stream":true}`).Stream {
		t.Error("the field stream is lost")
	}
}

func TestTheLastMessageOfTheAssistantIsContinued(t *testing.T) {
	const fields = `"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"It is"}]}]`
	calltest.WantRequest(t, fields, parser.Parse(t, `{"max_tokens":9,`+fields+`}`).Request, `{`+strings.Replace(fields, `[{"type":"text","text":"It is"}]`, `"It is"`, 1)+`,"sampling":{"maxTokens":9},"continueMessage":true}`)
	if got, err := anthropic.ParseCount([]byte(`{`+fields+`}`), nil); err != nil || !got.Request.GetContinueMessage() || got.Request.GetAddGenerationPrompt() {
		t.Errorf("the tokens of %v are counted: %v", got, err)
	}
}

func TestMessagesBecomeTurns(t *testing.T) {
	for messages, want := range map[string]string{
		`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral","ttl":"1h"}}]}`: `{"role":"user","content":"ab"}`,
		// Consecutive messages of one role are one turn.
		`{"role":"user","content":"a"},{"role":"user","content":"b"}`: `{"role":"user","content":"a\n\nb"}`,
		`{"role":"user","content":"Weather?"},
		 {"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s"},{"type":"text","text":"I look."},
			{"type":"tool_use","id":"1","name":"f","input":{"city": "Paris"},"caller":{"type":"direct"}},{"type":"tool_use","id":"2","name":"g","input":{}}]},
		 {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"Rain."},
			{"type":"tool_result","tool_use_id":"2","is_error":true,"content":[{"type":"text","text":"No "},{"type":"text","text":"such."}]},
			{"type":"tool_result","tool_use_id":"3"},{"type":"text","text":"And?"}]}`: `{"role":"user","content":"Weather?"},
			{"role":"assistant","content":"I look.","reasoning":"Hm.","toolCalls":[{"id":"1","name":"f","arguments":"{\"city\":\"Paris\"}"},{"id":"2","name":"g","arguments":"{}"}]},
			{"role":"tool","toolCallId":"1","content":"Rain."},{"role":"tool","toolCallId":"2","content":"No such."},{"role":"tool","toolCallId":"3"},{"role":"user","content":"And?"}`,
		// Empty messages are left out, also between messages of one role.
		`{"role":"user","content":"a"},{"role":"user","content":[]},{"role":"assistant","content":""},{"role":"user","content":"b"},{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"c"},{"type":"text","text":"d"}]}`: `{"role":"user","content":"a\n\nb\n\ncd"}`,
		`{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"1"},{"type":"text","text":"2"}]},
		 {"role":"assistant","content":[{"type":"thinking","thinking":"3"},{"type":"thinking","thinking":"4"},{"type":"text","text":"5"}]},{"role":"user","content":"b"}`: `{"role":"user","content":"a"},
			{"role":"assistant","reasoning":"1\n\n34","content":"2\n\n5"},{"role":"user","content":"b"}`,
		`{"role":"user","content":"a"},{"role":"assistant","content":""},{"role":"system","content":"b"},{"role":"user","content":"c"}`: `{"role":"user","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"c"}`,
	} {
		body := `{"model":"m","max_tokens":1,"messages":[` + messages + `]}`
		calltest.WantRequest(t, body, parser.Parse(t, body).Request, `{"model":"m","sampling":{"maxTokens":1},"messages":[`+want+`]}`)
	}
}

func TestUnsupportedFieldsAreRefusedByName(t *testing.T) {
	user := func(content string) string {
		return `"model":"m","max_tokens":9,"messages":[{"role":"user","content":` + content + `}]`
	}
	for body, param := range map[string]string{
		`"model":"m","messages":[{"role":"user","content":"Hi"}]`:                     "max_tokens",
		`"max_tokens":9,"messages":[{"role":"user","content":"Hi"}]`:                  "model",
		`"model":"m","max_tokens":9`:                                                  "messages",
		`"model":"m","max_tokens":9,"messages":[]`:                                    "messages",
		`"model":"m","max_tokens":9,"messages":[{"content":"a"}]`:                     "messages[0].role",
		`"model":"m","max_tokens":9,"messages":[{"role":"tool","content":"a"}]`:       "messages[0].role",
		hi + `,"max_tokens":0`:                                                        "max_tokens",
		hi + `,"stream":1`:                                                            "stream",
		hi + `,"temperature":1.5`:                                                     "temperature",
		hi + `,"stop_sequences":"a"`:                                                  "stop_sequences",
		hi + `,"n":2`:                                                                 "n",
		hi + `,"container":"c"`:                                                       "container",
		hi + `,"mcp_servers":[1]`:                                                     "mcp_servers",
		hi + `,"inference_geo":"eu"`:                                                  "inference_geo",
		hi + `,"speed":"fast"`:                                                        "speed",
		hi + `,"service_tier":"priority"`:                                             "service_tier",
		hi + `,"metadata":{"user":"u"}`:                                               "metadata.user",
		hi + `,"thinking":{"type":"between_tools"}`:                                   "thinking.type",
		hi + `,"thinking":{"type":"enabled","budget_tokens":-1}`:                      "thinking.budget_tokens",
		hi + `,"thinking":{"type":"adaptive","display":"raw"}`:                        "thinking.display",
		hi + `,"output_config":{"task_budget":{"type":"tokens"}}`:                     "output_config.task_budget",
		hi + `,"output_config":{"format":{"type":"regex"}}`:                           "output_config.format.type",
		hi + `,"output_config":{"format":{"type":"json_schema"}}`:                     "output_config.format.schema",
		hi + `,"system":[{"type":"image"}]`:                                           "system[0].image",
		hi + `,"tools":[{"type":"web_search_20250305","name":"web_search"}]`:          "tools[0].web_search",
		hi + `,"tools":[{"name":"f","input_schema":[1]}]`:                             "tools[0].input_schema",
		hi + `,"tools":[{"input_schema":{}}]`:                                         "tools[0].name",
		hi + `,"tools":[{"name":"f","input_schema":{},"input_examples":[{}]}]`:        "tools[0].input_examples",
		hi + `,"tools":[{"name":"f","input_schema":{},"allowed_callers":["nobody"]}]`: "tools[0].allowed_callers",
		hi + `,"tool_choice":"perhaps"`:                                               "tool_choice.type",
		hi + `,"tool_choice":{"type":"tool"}`:                                         "tool_choice.name",
		hi + `,"tool_choice":{"type":"any","name":"f"}`:                               "tool_choice.name",
		user(`7`):              "messages[0].content",
		user(`[{"text":"a"}]`): "messages[0].content[0]",
		user(`[{"type":"text","text":"a","x":1}]`):                                                                         "messages[0].content[0].x",
		user(`[{"type":"image"}]`):                                                                                         "messages[0].content[0].image",
		user(`[{"type":"image","source":{"type":"file","file_id":"1"}}]`):                                                  "messages[0].content[0].image",
		user(`[{"type":"image","source":{"type":"url","url":7}}]`):                                                         "messages[0].content[0].source.url",
		user(`[{"type":"image","source":{"type":"base64","media_type":"image/bmp","data":"x"}}]`):                          "messages[0].content[0].image",
		user(`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"x","name":1}}]`):                 "messages[0].content[0].source.name",
		user(`[{"type":"document"}]`):                                                                                      "messages[0].content[0].document",
		user(`[{"type":"thinking","thinking":"a"}]`):                                                                       "messages[0].content[0].thinking",
		user(`[{"type":"tool_result","tool_use_id":"1","content":[{"type":"image"}]}]`):                                    "messages[0].content[0].content[0].image",
		`"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"}]}]`: "messages[0].content[0].redacted_thinking",
	} {
		_, err := anthropic.Parse([]byte("{"+body+"}"), &strict.Reading{Strict: true})
		if err == nil || streamerr.As(err).Param != param || streamerr.As(err).Reason != streamerr.Invalid || !strings.Contains(err.Error(), param) {
			t.Errorf("%s: %v, want %s", body, err, param)
		}
	}
}

func TestAnInputThatIsNotAnObjectCanBeSentBack(t *testing.T) {
	for arguments, want := range map[string]string{
		``: `{}`, " ": `{}`, ` {"x": 1}`: `{"x":1}`, `{"x": "1`: `{"INVALID_JSON":"{\"x\": \"1"}`, `[1]`: `{"INVALID_JSON":"[1]"}`, `null`: `{"INVALID_JSON":"null"}`,
	} {
		gather := parser.Parse(t, "{"+hi+"}").Whole()
		gather(begin)
		gather(calltest.Delta(&chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Id: "a", Name: "f", Arguments: arguments}}}))
		var answer struct{ Content json.RawMessage }
		if err := json.Unmarshal(gather(calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_LENGTH})), &answer); err != nil {
			t.Fatal(err)
		}
		next := parser.Parse(t, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":`+string(answer.Content)+`},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}]}`)
		if got := next.Request.GetMessages()[1].GetToolCalls()[0].GetArguments(); got != want {
			t.Errorf("%q comes back as %s, want %s", arguments, got, want)
		}
	}
}

func TestUnsupportedFieldsAreLeftOutAndNamed(t *testing.T) {
	const body = `{` + hi + `,"container":"c","novelty":1,"mcp_servers":[],"user_profile_id":null}`
	in := &strict.Reading{}
	if _, err := anthropic.Parse([]byte(body), in); err != nil || in.Header() != "container, novelty" {
		t.Errorf("%q, %v", in.Header(), err)
	}
}

func TestErrorsOfInnerHopsGetTheNamesOfTheBody(t *testing.T) {
	c := parser.Parse(t, `{"model":"m","max_tokens":9,"system":"s","tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124","name":"bash"},{"name":"g","input_schema":{}}],"thinking":{"type":"adaptive"},"output_config":{"effort":"low"},"tool_choice":{"type":"any"},"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"},{"type":"text","text":"a"}]}]}`)
	for inner, want := range map[string]string{
		"messages": "messages", "messages[0].role": "system", "messages[1].content": "messages[0].content[0]", "messages[2]": "messages[0]", "messages[9]": "messages[9]",
		"sampling.max_tokens": "max_tokens", "stop": "stop_sequences", "stop[1]": "stop_sequences[1]", "tools[1].parameters": "tools[2].input_schema", "tools[1].name": "tools[2].name", "tools[9].name": "tools[9].name",
		"sampling.guide": "tool_choice", "session": "metadata.user_id", "template_variables": "thinking", "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
	} {
		if got := c.Param(inner); got != want {
			t.Errorf("%s is %s, want %s", inner, got, want)
		}
	}
}

func TestTheFieldThatSetsTemplateVariablesIsNamed(t *testing.T) {
	for body, want := range map[string]string{
		`"thinking":{"type":"adaptive"}`:   "thinking",
		`"output_config":{"effort":"low"}`: "output_config.effort",
	} {
		if got := parser.Parse(t, "{"+hi+","+body+"}").Param("template_variables"); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

func TestALongUserIDIsDigested(t *testing.T) {
	long := strings.Repeat("u", 300)
	got := parser.Parse(t, `{`+hi+`,"metadata":{"user_id":"`+long+`"}}`).Request.GetSession()
	if len(got) != 64 || got != parser.Parse(t, `{`+hi+`,"metadata":{"user_id":"`+long+`"}}`).Request.GetSession() {
		t.Errorf("the session is %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{` + hi + `}`))
	f.Add([]byte(`{"model":"m","max_tokens":9,"system":["x-anthropic-billing-header: a\nb"],"tools":[{"name":"f","input_schema":{},"defer_loading":true}],"messages":[{"role":"system","clear_at":"next_user_message","output_config":{"effort":"low"},
		"content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"g","input_schema":{}}}}]},{"role":"user","content":[{"type":"tool_result","content":[{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"QQ=="}}]},
		{"type":"compaction","content":"c","tool_changes":[{"type":"tool_removal","tool":{"type":"tool_reference","name":"f"}}]},{"type":"web_search_tool_result","content":[{"type":"web_search_result","title":"t"}]}]}]}`))
	f.Add([]byte(`{` + hi + `,"output_config":{"format":{"type":"json_schema"}},"tools":[{}],"system":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := anthropic.Parse(body, nil)
		switch {
		case err != nil && streamerr.As(err).Reason != streamerr.Invalid:
			t.Errorf("%q: %v", body, err)
		case err == nil && (len(c.Request.GetMessages()) == 0 || c.Request.GetSampling().GetMaxTokens() == 0):
			t.Errorf("%q: %v", body, c.Request)
		}
	})
}

func TestImagesKeepTheirPlacesInATurnOfSeveralMessages(t *testing.T) {
	const body = `"messages":[{"role":"user","content":"ab"},{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QQ=="}},
		{"type":"text","text":"c"},{"type":"image","source":{"type":"url","url":"https://a/2"},"cache_control":{"type":"ephemeral"}},{"type":"image","source":{"type":"base64","media_type":"image/jpg","data":"data:image/png;base64,QQ=="}}]}]`
	c, err := anthropic.Parse([]byte(`{"model":"m","max_tokens":9,`+body+`}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := c.Request.GetMessages()[0]
	if m.GetContent() != "ab\n\nc" || len(m.GetImages()) != 3 || m.GetImages()[0].GetOffset() != 4 || m.GetImages()[1].GetOffset() != 5 {
		t.Error(m)
	}
	if len(c.Images) != 3 || c.Images[2].URL != "data:image/png;base64,QQ==" || c.Images[0].Base64 != "QQ==" || c.Images[0].Param != "messages[1].content[0].source.data" || c.Images[1].URL != "https://a/2" || c.Images[1].To != m.GetImages()[1].GetImage() {
		t.Errorf("%+v", c.Images)
	}
	count, err := anthropic.ParseCount([]byte(`{"model":"m",`+body+`}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, takes := range []bool{true, false} {
		if err := count.CheckImages(takes); streamerr.As(err).Param != "messages[1].content[0].source.data" {
			t.Errorf("the tokens of an image of the user are counted: %v", err)
		}
	}
}
