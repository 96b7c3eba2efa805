package responses_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/call/calltest"
	"github.com/whence-dev/whence/api-service/responses"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var parser calltest.Parser = responses.Parser(false)

// hi has the fields that a request must have.
const hi = `"model":"m","input":"Hi"`

func TestRequestsAreConverted(t *testing.T) {
	const user = `"model":"m","messages":[{"role":"user","content":"Hi"}]`
	for body, want := range map[string]string{
		hi: user + `,"sampling":{}`,
		hi + `,"instructions":"Be kind.","temperature":0.5,"top_p":0.9,"max_output_tokens":9,"max_tool_calls":3`: `"model":"m","messages":[{"role":"system","content":"Be kind."},
			{"role":"user","content":"Hi"}],"sampling":{"temperature":0.5,"topP":0.9,"maxTokens":9}`,
		hi + `,"instructions":""`: user + `,"sampling":{}`,
		hi + `,"top_p":0`:         user + `,"sampling":{"topP":1e-45}`,
		hi + `,"top_logprobs":0`:  user + `,"sampling":{}`,
		hi + `,"top_logprobs":2`:  user + `,"sampling":{"logprobs":2}`,
		hi + `,"store":false,"background":false,"truncation":"disabled","previous_response_id":null,"conversation":null,"prompt":null,"include":[]`: user + `,"sampling":{}`,
		hi + `,"include":["message.output_text.logprobs","reasoning.encrypted_content"]`:                                                            user + `,"sampling":{"logprobs":0}`,
		hi + `,"include":["message.output_text.logprobs"],"top_logprobs":5`:                                                                         user + `,"sampling":{"logprobs":5}`,
		hi + `,"user":"u","prompt_cache_key":"k"`:                                                                                                   user + `,"sampling":{},"session":"k"`,
		hi + `,"user":"u","prompt_cache_key":""`:                                                                                                    user + `,"sampling":{},"session":"u"`,
		hi + `,"service_tier":"priority"`:                                                                                                           user + `,"sampling":{},"claim":{"tier":"TIER_PRIORITY"}`,
		hi + `,"reasoning":{"effort":"low","summary":"auto"}`:                                                                                       user + `,"sampling":{},"templateVariables":"{\"reasoning_effort\":\"low\"}"`,
		hi + `,"reasoning":{"effort":null,"summary":null}`:                                                                                          user + `,"sampling":{}`,
		hi + `,"text":{"format":{"type":"text"},"verbosity":"low"}`:                                                                                 user + `,"sampling":{}`,
		hi + `,"text":{"format":{"type":"json_object"}}`:                                                                                            user + `,"sampling":{"guide":{"forms":[{"schema":"{\"type\":\"object\"}"}]}}`,
		hi + `,"text":{"format":{"type":"json_schema","name":"n","description":null,"strict":true,"schema":{"type": "object"}}}`:                    user + `,"sampling":{"guide":{"forms":[{"schema":"{\"type\":\"object\"}"}]}}`,
		hi + `,"metadata":{"a":"b"},"client_metadata":{"x":1},"safety_identifier":"s","prompt_cache_retention":"24h","stream_options":{"include_obfuscation":true}`: user + `,"sampling":{}`,
		hi + `,"parallel_tool_calls":false,"tool_choice":"required","tools":[{"type":"function","name":"f","description":"d","parameters":{"type": "object"},"strict":false},{"type":"function","name":"g","parameters":null,"strict":null}]`: user + `,"sampling":{},
			"tools":[{"name":"f","description":"d","parameters":"{\"type\":\"object\"}"},{"name":"g"}],"toolChoice":{"mode":"TOOL_MODE_REQUIRED"},"parallelToolCalls":false`,
		hi + `,"tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}],"tool_choice":{"type":"function","name":"g"}`: user + `,"sampling":{},
			"tools":[{"name":"f"},{"name":"g"}],"toolChoice":{"mode":"TOOL_MODE_REQUIRED","name":"g"}`,
		hi + `,"tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]}`: user + `,"sampling":{},
			"tools":[{"name":"g"}],"toolChoice":{"mode":"TOOL_MODE_AUTO"}`,
		hi + `,"tools":[{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f","description":"e"},{"type":"function","name":"g"}]},{"type":"function","name":"f"}]`: user + `,"sampling":{},
			"tools":[{"name":"n__f","description":"d\n\ne"},{"name":"n__g"},{"name":"f"}]`,
		`"model":"m","input":[{"role":"developer","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"c"},{"role":"developer","content":"d"}]`: `"model":"m","messages":[{"role":"developer","content":"a\n\nb"},
			{"role":"user","content":"c"},{"role":"developer","content":"d"}],"sampling":{}`,
	} {
		c := parser.Parse(t, "{"+body+"}")
		calltest.WantRequest(t, body, c.Request, "{"+want+"}")
		if c.Stream {
			t.Errorf("%s is streamed", body)
		}
	}
	if !parser.Parse(t, "{"+hi+`,"stream":true}`).Stream {
		t.Error("stream is lost")
	}
}

// codex is a request as Codex sends it in the middle of a turn, without the tools that can be
// switched off in its configuration.
const codex = `{"model":"m","instructions":"You are Codex.","input":[
	{"type":"message","role":"developer","content":[{"type":"input_text","text":"<permissions>"}]},
	{"type":"message","role":"user","content":[{"type":"input_text","text":"# AGENTS.md"},{"type":"input_text","text":"<environment_context>"}],"internal_chat_message_metadata_passthrough":{"turn_id":"t"}},
	{"type":"message","role":"user","content":[{"type":"input_text","text":"List the files."}]},
	{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"I run ls."}],"encrypted_content":null},
	{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look."}],"phase":"commentary"},
	{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"ls\"}","call_id":"call_1"},
	{"type":"function_call_output","call_id":"call_1","output":"README.md"}],
	"tools":[{"type":"function","name":"exec_command","description":"Runs a command.","strict":false,"parameters":{"type":"object","properties":{"cmd":{"type":"string"}},"required":["cmd"],"additionalProperties":false}}],
	"tool_choice":"auto","parallel_tool_calls":true,"reasoning":{"effort":"medium","summary":"auto"},"store":false,"stream":true,"include":["reasoning.encrypted_content"],
	"prompt_cache_key":"0199","text":{"verbosity":"medium"},"client_metadata":{"x-codex-installation-id":"i"}}`

func TestCodexIsUnderstood(t *testing.T) {
	calltest.WantRequest(t, codex, parser.Parse(t, codex).Request, `{"model":"m","messages":[
		{"role":"system","content":"You are Codex.\n\n<permissions>"},
		{"role":"user","content":"# AGENTS.md<environment_context>"},
		{"role":"user","content":"List the files."},
		{"role":"assistant","reasoning":"I run ls.","content":"I look.","toolCalls":[{"id":"call_1","name":"exec_command","arguments":"{\"cmd\":\"ls\"}"}]},
		{"role":"tool","toolCallId":"call_1","content":"README.md"}],
		"tools":[{"name":"exec_command","description":"Runs a command.","parameters":"{\"type\":\"object\",\"properties\":{\"cmd\":{\"type\":\"string\"}},\"required\":[\"cmd\"],\"additionalProperties\":false}"}],
		"toolChoice":{"mode":"TOOL_MODE_AUTO"},"parallelToolCalls":true,"sampling":{},"templateVariables":"{\"reasoning_effort\":\"medium\"}","session":"0199"}`)
}

func TestUnsupportedFieldsAreRefusedByName(t *testing.T) {
	for body, param := range map[string]string{
		`"input":"Hi"`:                                                        "model",
		`"model":"m"`:                                                         "input",
		`"model":"m","input":[]`:                                              "input",
		`"model":"m","input":7`:                                               "input",
		hi + `,"n":2`:                                                         "n",
		hi + `,"messages":[]`:                                                 "messages",
		hi + `,"max_tokens":9`:                                                "max_tokens",
		hi + `,"stop":"a"`:                                                    "stop",
		hi + `,"stream":1`:                                                    "stream",
		hi + `,"temperature":2.5`:                                             "temperature",
		hi + `,"top_p":1.5`:                                                   "top_p",
		hi + `,"top_logprobs":21`:                                             "top_logprobs",
		hi + `,"store":"true"`:                                                "store",
		hi + `,"store":false,"background":true`:                               "background",
		hi + `,"background":"true"`:                                           "background",
		hi + `,"truncation":"auto"`:                                           "truncation",
		hi + `,"previous_response_id":1`:                                      "previous_response_id",
		hi + `,"conversation":"conv_1"`:                                       "conversation",
		hi + `,"prompt":{"id":"p"}`:                                           "prompt",
		hi + `,"context_management":[1]`:                                      "context_management",
		hi + `,"max_output_tokens":-2`:                                        "max_output_tokens",
		hi + `,"service_tier":"scale"`:                                        "service_tier",
		hi + `,"include":["web_search_call.results"]`:                         "include[0]",
		hi + `,"include":"reasoning.encrypted_content"`:                       "include",
		hi + `,"stream_options":{"include_usage":true}`:                       "stream_options.include_usage",
		hi + `,"metadata":{"a":"` + strings.Repeat("x", 513) + `"}`:           "metadata.a",
		hi + `,"reasoning":{"effort":1}`:                                      "reasoning.effort",
		hi + `,"reasoning":{"summary":"long"}`:                                "reasoning.summary",
		hi + `,"reasoning":{"max_tokens":1}`:                                  "reasoning.max_tokens",
		hi + `,"text":{"verbosity":"mute"}`:                                   "text.verbosity",
		hi + `,"text":{"format":{"type":"grammar"}}`:                          "text.format.type",
		hi + `,"text":{"format":{"type":"text","name":"n"}}`:                  "text.format.name",
		hi + `,"text":{"format":{"type":"json_schema","name":7,"schema":{}}}`: "text.format.name",
		hi + `,"text":{"format":{"type":"json_schema","name":"n"}}`:           "text.format.schema",
		hi + `,"tools":[{"name":"f"}]`:                                        "tools[0].type",
		hi + `,"tools":[{"type":"function"}]`:                                 "tools[0].name",
		hi + `,"tools":[{"type":"function","name":"f","parameters":[1]}]`:     "tools[0].parameters",
		hi + `,"tools":[{"type":"function","name":"f","defer_loading":1}]`:    "tools[0].defer_loading",
		hi + `,"tools":[{"type":"function","name":"f","output_schema":{}}]`:   "tools[0].output_schema",
		hi + `,"tools":[{"type":"web_search","external_web_access":false}]`:   "tools[0].web_search",
		hi + `,"tools":[{"type":"hologram"}]`:                                 "tools[0]",
		hi + `,"tools":[{"type":"custom","name":"apply_patch","format":{"type":"grammar"}}]`:                  "tools[0].format",
		hi + `,"tools":[{"type":"custom"}]`:                                                                   "tools[0].name",
		hi + `,"tools":[{"type":"local_shell"}]`:                                                              "tools[0].local_shell",
		hi + `,"tools":[{"type":"namespace","name":"mcp"}]`:                                                   "tools[0].tools",
		hi + `,"tools":[{"type":"namespace","tools":[]}]`:                                                     "tools[0].name",
		hi + `,"tools":[{"type":"namespace","name":"mcp","tools":[{"type":"local_shell"}]}]`:                  "tools[0].tools[0].local_shell",
		hi + `,"tools":[{"type":"namespace","name":"mcp","tools":[{"type":"function"}]}]`:                     "tools[0].tools[0].name",
		hi + `,"tool_choice":"each"`:                                                                          "tool_choice",
		hi + `,"tool_choice":{"type":"web_search"}`:                                                           "tool_choice",
		hi + `,"tool_choice":{"type":"hologram"}`:                                                             "tool_choice.type",
		hi + `,"tool_choice":{"type":"function"}`:                                                             "tool_choice.name",
		hi + `,"tool_choice":{"type":"allowed_tools","mode":"auto"}`:                                          "tool_choice.tools",
		hi + `,"tool_choice":{"type":"allowed_tools","mode":"none","tools":[]}`:                               "tool_choice.mode",
		hi + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp"}]}`:                 "tool_choice.tools[0].mcp",
		hi + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}`: "tool_choice.tools[0].name",
	} {
		_, err := responses.Parser(false)([]byte("{"+body+"}"), &strict.Reading{Strict: true})
		if err == nil || streamerr.As(err).Param != param || streamerr.As(err).Reason != streamerr.Invalid || !strings.Contains(err.Error(), param) {
			t.Errorf("%s: %v, want %s", body, err, param)
		}
	}
}

func TestUnsupportedFieldsAreLeftOutAndNamed(t *testing.T) {
	const body = `{` + hi + `,"moderation":{"x":1},"novelty":1,"tools":[{"type":"web_search"},{"type":"function","name":"f"},{"type":"local_shell"}]}`
	in := &strict.Reading{}
	c, err := responses.Parser(false)([]byte(body), in)
	if err != nil || in.Header() != "moderation, novelty, tools[].local_shell, tools[].web_search" {
		t.Fatalf("%q, %v", in.Header(), err)
	}
	if tools := c.Request.GetTools(); len(tools) != 1 || tools[0].GetName() != "f" || c.Param("tools[0].name") != "tools[1].name" {
		t.Errorf("the tools are %v, and the first one is %s", tools, c.Param("tools[0].name"))
	}
}

// TestHabitsOfClientsAreAnswered covers fields that clients send by default or by habit.
func TestHabitsOfClientsAreAnswered(t *testing.T) {
	const user = `"model":"m","messages":[{"role":"user","content":"Hi"}],"sampling":{}`
	const f = `{"type":"function","name":"f"}`
	forced := user + `,"tools":[{"name":"f"}],"toolChoice":{"mode":"TOOL_MODE_REQUIRED","name":"f"}`
	custom := `{"name":"p","parameters":"{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},\"required\":[\"input\"],\"additionalProperties\":false}"}`
	for body, want := range map[string]struct{ request, left string }{
		// Defaults and empty values.
		`,"max_output_tokens":0,"max_tool_calls":-1,"previous_response_id":"","reasoning":{"effort":"","summary":""},"text":{"format":{},"verbosity":""},"truncation":"","service_tier":"","tool_choice":"","tools":[],"include":[],"metadata":{},"stream_options":{}`: {user, ""},
		`,"max_output_tokens":null,"tools":null,"tool_choice":null,"text":null,"reasoning":null,"include":null,"metadata":null,"truncation":null,"temperature":null,"store":null,"novelty":null`:                                                                       {user, ""},
		`,"max_output_tokens":16.0,"reasoning":"high","user":7,"safety_identifier":[1],"metadata":{"a":1,"b":null},"truncation":true,"service_tier":1`: {
			strings.Replace(user, `"sampling":{}`, `"sampling":{"maxTokens":16}`, 1), "metadata, reasoning, safety_identifier, service_tier, truncation, user",
		},
		// Unknown words of hints.
		`,"include":["web_search_call.results","file_search_call.results"],"truncation":"auto","service_tier":"scale","text":{"verbosity":"mute"},"reasoning":{"summary":"long"}`: {user, "include[], reasoning.summary, service_tier, text.verbosity, truncation"},
		// Tools of OpenAI's servers.
		`,"tools":[{"type":"web_search","external_web_access":true}],"tool_choice":"auto"`: {user, "tools[].web_search"},
		`,"tools":[{"type":"web_search_preview"},{"type":"file_search"},{"type":"mcp"},{"type":"code_interpreter","container":{}},{"type":"image_generation"},{"type":"local_shell"},{"type":"shell"},{"type":"computer_use_preview"},{"type":"apply_patch"},{"type":"tool_search"},{"type":"hologram"},` + f + `]`: {
			user + `,"tools":[{"name":"f"}]`, "tools[], tools[].apply_patch, tools[].code_interpreter, tools[].computer_use_preview, tools[].file_search, tools[].image_generation, tools[].local_shell, tools[].mcp, tools[].shell, tools[].tool_search, tools[].web_search_preview",
		},
		`,"tools":[{"type":"function","name":"f","defer_loading":true,"output_schema":{}}]`: {user + `,"tools":[{"name":"f"}]`, "tools[].defer_loading, tools[].output_schema"},
		`,"tools":[{"type":"function","function":{"name":"f","strict":null}}]`:              {user + `,"tools":[{"name":"f"}]`, ""},
		`,"tools":[{"type":"custom","name":"p","description":"d","format":{"type":"text"}},{"type":"custom","name":"p"},{"type":"function","name":"p"}]`: {
			user + `,"tools":[` + strings.Replace(custom, `"p"`, `"p","description":"d"`, 1) + `]`, "tools[]",
		},
		`,"tools":[{"type":"custom","name":"p","format":{"type":"grammar","syntax":"lark","definition":"x"}}]`: {
			user + `,"tools":[` + strings.Replace(custom, `"p"`, `"p","description":"The input follows this grammar (lark):\nx"`, 1) + `]`, "tools[].format",
		},
		// Choices.
		`,"tools":[` + f + `],"tool_choice":"any"`:                                       {user + `,"tools":[{"name":"f"}],"toolChoice":{"mode":"TOOL_MODE_REQUIRED"}`, ""},
		`,"tools":[` + f + `],"tool_choice":{"type":"auto"}`:                             {user + `,"tools":[{"name":"f"}],"toolChoice":{"mode":"TOOL_MODE_AUTO"}`, ""},
		`,"tools":[` + f + `],"tool_choice":{"type":"function","function":{"name":"f"}}`: {forced, ""},
		`,"tools":[{"type":"custom","name":"p"}],"tool_choice":{"type":"custom","name":"p"}`: {
			user + `,"tools":[` + custom + `],"toolChoice":{"mode":"TOOL_MODE_REQUIRED","name":"p"}`, "",
		},
		`,"tools":[` + f + `,{"type":"web_search"}],"tool_choice":{"type":"allowed_tools","tools":[` + f + `,{"type":"web_search"}]}`: {
			user + `,"tools":[{"name":"f"}],"toolChoice":{"mode":"TOOL_MODE_AUTO"}`, "tool_choice.tools[].web_search, tools[].web_search",
		},
		`,"tools":[` + f + `,{"type":"mcp"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp","server_label":"s"}]}`: {user, "tool_choice.tools[].mcp, tools[].mcp"},
		`,"text":{"format":{"type":"json_schema","schema":{"type":"object"}}}`:                                                                 {strings.Replace(user, `"sampling":{}`, `"sampling":{"guide":{"forms":[{"schema":"{\"type\":\"object\"}"}]}}`, 1), ""},
		`,"text":{"format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"x":1}}}`:                                {strings.Replace(user, `"sampling":{}`, `"sampling":{"guide":{"forms":[{"schema":"{\"type\":\"object\"}"}]}}`, 1), "text.format.json_schema.x"},
		// A forced call overrides the format of the text.
		`,"tools":[` + f + `],"tool_choice":{"type":"function","name":"f"},"text":{"format":{"type":"json_schema","name":"x","schema":{"type":"object"},"strict":true}}`: {forced, ""},
		`,"prompt_cache_key":"` + strings.Repeat("k", 257) + `"`: {user + `,"session":"` + hashOf(strings.Repeat("k", 257)) + `"`, ""},
		`,"presence_penalty":0.5,"frequency_penalty":-1`:         {strings.Replace(user, `"sampling":{}`, `"sampling":{"presencePenalty":0.5,"frequencyPenalty":-1}`, 1), ""},
	} {
		in := &strict.Reading{}
		c, err := responses.Parser(false)([]byte("{"+hi+body+"}"), in)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		calltest.WantRequest(t, body, c.Request, "{"+want.request+"}")
		if in.Header() != want.left {
			t.Errorf("%s: left out are %q, want %q", body, in.Header(), want.left)
		}
	}
}

// TestToolsOfTheConversation: items offer tools beside the field, each name once.
func TestToolsOfTheConversation(t *testing.T) {
	const f, more = `{"type":"function","name":"f"}`, `{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"g"},{"type":"namespace","name":"n","tools":[{"type":"custom","name":"h"}]}]}`
	const search = `{"type":"tool_search","execution":"client","description":"d","parameters":{"type":"object"}}`
	const found = `{"type":"tool_search_output","execution":"client","call_id":"1","tools":[{"type":"function","name":"f","description":"later"},{"type":"web_search"},{"type":"function","name":"g"}]}`
	const hey = `{"role":"user","content":"a"}`
	for body, want := range map[string]struct{ names, left string }{
		`"input":[` + more + `,` + hey + `]`: {"g n__h", ""},
		`"input":[` + more + `,` + hey + `],"tools":[` + f + `],"tool_choice":{"type":"function","name":"g"}`:          {"f g n__h", ""},
		`"input":[` + hey + `,` + found + `,` + found + `],"tools":[` + search + `,` + f + `]`:                         {"tool_search f g", "input[].tools[].web_search"},
		`"input":[` + hey + `,{"type":"additional_tools","tools":[{"type":"custom","name":"f"}]}],"tools":[` + f + `]`: {"f", ""},
		`"input":[` + hey + `],"tools":[` + f + `,` + f + `]`:                                                          {"f", "tools[]"},
	} {
		in := &strict.Reading{}
		c, err := responses.Parser(false)([]byte(`{"model":"m",`+body+`}`), in)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		var names []string
		for _, tool := range c.Request.GetTools() {
			names = append(names, tool.GetName())
		}
		if got := strings.Join(names, " "); got != want.names || in.Header() != want.left || c.Request.GetTools()[0].GetDescription() == "later" {
			t.Errorf("%s: the tools are %s, left out are %q", body, got, in.Header())
		}
	}
	c := parser.Parse(t, `{"model":"m","previous_response_id":"resp_s","input":[`+found+`],"tools":[`+search+`]}`)
	if _, err := c.Continue([]json.RawMessage{[]byte(more), []byte(hey)}, nil); err != nil {
		t.Fatal(err)
	}
	if tools := c.Request.GetTools(); len(tools) != 4 || tools[1].GetName() != "f" || tools[2].GetName() != "g" || tools[3].GetName() != "n__h" || c.Param("tools[3].name") != "previous_response_id.tools[1].tools[0].name" {
		t.Errorf("after an earlier response, the tools are %v", tools)
	}
}

func hashOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// TestAForcedCallOfAToolThatIsLeftOutIsRefused: an answer without the call would mean something else.
func TestAForcedCallOfAToolThatIsLeftOutIsRefused(t *testing.T) {
	for _, body := range []string{
		`,"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}`, `,"tools":[{"type":"mcp"}],"tool_choice":{"type":"mcp","server_label":"s"}`,
		`,"tools":[{"type":"web_search"}],"tool_choice":"required"`, `,"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"image_generation"}`,
		`,"tools":[{"type":"mcp"}],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"mcp"}]}`,
	} {
		if _, err := responses.Parser(false)([]byte("{"+hi+body+"}"), &strict.Reading{}); err == nil || streamerr.As(err).Param != "tool_choice" {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestErrorsOfInnerHopsGetTheNamesOfTheBody(t *testing.T) {
	c := parser.Parse(t, `{"model":"m","instructions":"i","user":"u","top_logprobs":1,"text":{"format":{"type":"json_object"}},"input":[{"role":"system","content":"s"},{"role":"user","content":"a"},
		{"type":"reasoning","summary":[],"content":[]},{"type":"message","role":"assistant","content":"b"},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"c"}],
		"tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]}}`)
	for inner, want := range map[string]string{
		"messages": "input", "prompt": "input", "messages[0].content": "instructions", "messages[1].content": "input[1]", "messages[2].content": "input[3]",
		"messages[2].tool_calls[0].name": "input[4].name", "messages[3].content": "input[5]", "messages[9]": "messages[9]", "tools[0].parameters": "tools[1].parameters",
		"sampling.max_tokens": "max_output_tokens", "sampling.guide": "text.format", "session": "user", "template_variables": "reasoning.effort",
		"sampling.logprobs": "top_logprobs", "tool_choice": "tool_choice", "sampling.temperature": "temperature",
	} {
		if got := c.Param(inner); got != want {
			t.Errorf("%s is %s, want %s", inner, got, want)
		}
	}
}

func TestAReleasedRequestFreesItsInput(t *testing.T) {
	const size = 2 << 20
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	c := parser.Parse(t, `{"model":"m","input":"`+strings.Repeat("s", size)+`","prompt_cache_key":"k"}`)
	events, whole := c.Events(), c.Whole()
	c.ReleaseRequest()
	if after := heap(); after > before+size/2 {
		t.Errorf("a request with an input of %d bytes holds %d bytes", size, after-before)
	}
	runtime.KeepAlive(events)
	runtime.KeepAlive(whole)
	runtime.KeepAlive(c)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{` + hi + `}`))
	f.Add([]byte(codex))
	f.Add([]byte(`{"model":"m","input":[{"type":"reasoning","encrypted_content":"whence-1:SG0"},{"role":"user","content":[]}],"text":{"format":{"type":"json_schema"}},"tools":[{}]}`))
	f.Add([]byte(`{"model":"m","input":[{"id":"msg_1"},{"type":"custom_tool_call","name":"p","input":null},{"type":"mcp_call","name":"f","output":[{"text":"x"}]},
		{"type":"function_call_output","output":{"type":"input_file","file_data":"data:,%20"}}],"tools":[{"type":"custom","name":"p"}],"tool_choice":{"type":"custom","name":"p"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parse := range []calltest.Parser{responses.Parser(true), responses.ParseCompact, responses.ParseCount} {
			c, err := parse(body, nil)
			continues := err == nil && (c.Earlier != "" || len(c.References) > 0)
			if continues {
				_, err = c.Continue([]json.RawMessage{json.RawMessage(`{"role":"user","content":"Hi"}`)}, map[string]json.RawMessage{"msg_1": json.RawMessage(`{"role":"assistant","content":"Hi"}`)})
			}
			switch {
			case err != nil && streamerr.As(err).Reason != streamerr.Invalid:
				t.Errorf("%q: %v", body, err)
			case err == nil && len(c.Request.GetMessages()) == 0:
				t.Errorf("%q: %v", body, c.Request)
			case err == nil && c.Store != nil:
				if memo, err := responses.ParseMemo(c.Store.Memo(time.Now())); err != nil || len(memo.Input) == 0 {
					t.Errorf("%q: %v, %v", body, memo, err)
				}
			}
		}
	})
}
