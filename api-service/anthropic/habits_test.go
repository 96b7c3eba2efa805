package anthropic_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/call/calltest"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A habit is a part of a body that clients send: what it adds to the request, and the fields that
// are left out.
type habit struct{ body, want, left string }

// check parses the body, which follows hi, and compares its request with that of hi and want.
func (c habit) check(t *testing.T) {
	t.Helper()
	in := &strict.Reading{}
	got, err := anthropic.Parse([]byte("{"+hi+c.body+"}"), in)
	if err != nil {
		t.Errorf("%s: %v", c.body, err)
		return
	}
	calltest.WantRequest(t, c.body, got.Request, `{"model":"m","messages":[{"role":"user","content":"Hi"}],"sampling":{"maxTokens":9}`+c.want+`}`)
	if in.Header() != c.left {
		t.Errorf("%s: %q is left out, want %q", c.body, in.Header(), c.left)
	}
}

// on and off are what thinking adds to a request.
const (
	on  = `,"templateVariables":"{\"enable_thinking\":true,\"thinking\":true}"`
	off = `,"templateVariables":"{\"enable_thinking\":false,\"thinking\":false}"`
)

func TestNullEmptyAndZeroAreAbsence(t *testing.T) {
	for _, field := range strings.Fields(`thinking temperature top_p top_k stop_sequences stream system tools tool_choice metadata service_tier speed output_config output_format
		fallbacks thread container mcp_servers inference_geo diagnostics context_management cache_control user_profile_id workspace_id novelty`) {
		habit{body: `,"` + field + `":null`}.check(t)
	}
	for _, body := range []string{
		`"thinking":{}`, `"stop_sequences":[]`, `"stop_sequences":[""]`, `"stop_sequences":""`, `"tools":[]`, `"tool_choice":{}`, `"metadata":{}`, `"metadata":{"user_id":null}`, `"output_config":{}`,
		`"output_config":{"format":null,"effort":null,"task_budget":null}`, `"output_config":{"format":{},"effort":""}`, `"output_format":{"type":"text"}`, `"service_tier":""`,
		`"mcp_servers":[]`, `"container":""`, `"system":""`, `"system":[]`, `"thread":{}`, `"betas":[]`, `"fallbacks":[]`,
	} {
		habit{body: "," + body}.check(t)
	}
	for _, c := range []habit{
		{`,"thinking":{"type":"adaptive"}`, on, ""},
		{`,"thinking":{"type":"adaptive","budget_tokens":0}`, on, ""},
		{`,"thinking":{"type":"adaptive","budget_tokens":null,"display":null}`, on, ""},
		{`,"thinking":{"type":"disabled","budget_tokens":0}`, off, ""},
		{`,"thinking":{"type":"enabled","budget_tokens":null}`, on, ""},
		{`,"thinking":{"type":"disabled","budget_tokens":4096}`, off, "thinking.budget_tokens"},
		{`,"tool_choice":{"type":"auto"}`, `,"toolChoice":{"mode":"TOOL_MODE_AUTO"}`, ""},
		{`,"diagnostics":{"previous_message_id":null}`, "", "diagnostics"},
	} {
		c.check(t)
	}
	_, err := anthropic.Parse([]byte("{"+hi+`,"thinking":{"type":"enabled","budget_tokens":0}}`), nil)
	if streamerr.As(err).Param != "thinking.budget_tokens" {
		t.Errorf("thinking without a budget for it: %v", err)
	}
}

func TestUnknownWordsOfHintsAreAbsence(t *testing.T) {
	for _, c := range []habit{
		{`,"thinking":{"type":"adaptive","display":"updates"}`, on, ""}, // as summarized
		{`,"thinking":{"type":"adaptive","display":"raw"}`, on, "thinking.display"},
		{`,"thinking":{"type":"adaptive","display":7}`, on, "thinking.display"},
		{`,"thinking":{"type":"between_tools"}`, "", "thinking.type"},
		{`,"output_config":{"effort":"xhigh"}`, `,"templateVariables":"{\"reasoning_effort\":\"xhigh\"}"`, ""},
		{`,"output_config":{"effort":"ultra"}`, "", "output_config.effort"},
		{`,"output_config":{"effort":3,"task_budget":{"type":"tokens","total":9},"novelty":1}`, "", "output_config.effort, output_config.novelty, output_config.task_budget"},
		{`,"thinking":{"type":"adaptive","block_binding":{"type":"strict"}}`, on, ""},
		{`,"billing_policy":{"type":"billing_policy"},"fallback_credit_token":"x","compaction":null`, "", "billing_policy, fallback_credit_token"},
		{`,"metadata":{"user_id":7}`, "", "metadata.user_id"},
		{`,"metadata":"x"`, "", "metadata"},
		{`,"tool_choice":"auto"`, `,"toolChoice":{"mode":"TOOL_MODE_AUTO"}`, ""},
		{`,"tool_choice":{"type":"required"}`, `,"toolChoice":{"mode":"TOOL_MODE_REQUIRED"}`, ""},
		{`,"service_tier":"priority","speed":"fast"`, "", "service_tier, speed"},
		{`,"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["a"],"betas":["b"]`, "", "anthropic_beta, anthropic_version, betas"},
		{`,"fallbacks":[{"model":"n"}],"inference_geo":"eu","container":{"id":"c"}`, "", "container, fallbacks, inference_geo"},
	} {
		c.check(t)
	}
}

func TestBothNamesOfTheFormat(t *testing.T) {
	const (
		format = `{"type":"json_schema","schema":{"type":"object"}}`
		get    = `"tools":[{"name":"get","input_schema":{"type":"object"}}]`
		tools  = `,"tools":[{"name":"get","parameters":"{\"type\":\"object\"}"}]`
		guide  = `,"sampling":{"maxTokens":9,"guide":{"forms":[{"schema":"{\"type\":\"object\"}"}]}}`
	)
	for body, want := range map[string]string{
		`"output_format":` + format: guide,
		get + `,"tool_choice":{"type":"any"},"output_config":{"format":` + format + `}`: tools + guide + `,"toolChoice":{"mode":"TOOL_MODE_REQUIRED"}`,
	} {
		c := parser.Parse(t, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}],`+body+`}`)
		calltest.WantRequest(t, body, c.Request, `{"model":"m","messages":[{"role":"user","content":"Hi"}]`+want+`}`)
	}
	for body, param := range map[string]string{
		`"output_format":{"type":"regex","pattern":"a"}`: "output_format.type", `"output_config":{"format":{"type":"grammar"}}`: "output_config.format.type",
	} {
		if _, err := anthropic.Parse([]byte("{"+hi+","+body+"}"), nil); streamerr.As(err).Param != param {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// TestToolsOfServersAreLeftOut also checks which deferred tools the prompt has.
func TestToolsOfServersAreLeftOut(t *testing.T) {
	tool := func(name, more string) string {
		return `{"name":"` + name + `","input_schema":{"type":"object"}` + more + `}`
	}
	changed := func(blocks string) string {
		return `{"role":"user","content":"Hi"},{"role":"system","content":[` + blocks + `]},{"role":"user","content":"Go"}`
	}
	get, later, other := tool("get", ""), tool("later", `,"defer_loading":true`), tool("other", `,"defer_loading":true`)
	const (
		hello     = `{"role":"user","content":"Hi"}`
		called    = `,{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"later","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"}]}`
		reference = `,{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"get","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"tool_reference","tool_name":"later"}]}]}`
		found     = `,{"role":"assistant","content":[{"type":"tool_search_tool_result","tool_use_id":"1","content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"later"}]}}]},{"role":"user","content":"x"}`
	)
	for _, c := range []struct{ tools, messages, more, want, left string }{
		{tools: `{"type":"web_search_20250305","name":"web_search","max_uses":5},{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e"},{"type":"computer_20251124","name":"c"},` +
			`{"type":"memory_20250818","name":"m"},{"type":"mcp_toolset","mcp_server_name":"s"},{"type":"code_execution_20260120","name":"x"},{"type":"web_fetch_20250910","name":"w"},{"type":"novelty_20310101"},` + get,
			messages: hello, want: "get",
			left: "tools[], tools[].bash, tools[].code_execution, tools[].computer, tools[].mcp_toolset, tools[].memory, tools[].text_editor, tools[].web_fetch, tools[].web_search"},
		{tools: tool("get", `,"type":null,"description":null,"defer_loading":null,"allowed_callers":null,"toolset_name":null`), messages: hello, want: "get"},
		{tools: tool("get", `,"allowed_callers":["code_execution_20250825"],"input_examples":[{"a":1}],"novelty":1`), messages: hello, want: "get", left: "tools[].allowed_callers, tools[].input_examples, tools[].novelty"},
		{tools: `{"name":"get"},{"name":"a.b/c","input_schema":[]}`, messages: hello, want: "get a.b/c"},
		{tools: `{"type":"function","function":{"name":"get","parameters":{"type":"object"}}},{"type":"function","name":"put","parameters":null}`, messages: hello, want: "get put"},
		{tools: later, messages: hello, want: "later"}, // nothing could find it
		{tools: get + "," + later, messages: hello, want: "get"},
		{tools: get + "," + later, messages: hello + called, want: "get later"},
		{tools: get + "," + later + "," + other, messages: hello + reference, want: "get later"},
		{tools: get + "," + later + "," + other, messages: hello + found, want: "get later", left: "messages[].content[].tool_search_tool_result"},
		{tools: get + "," + later + "," + other, messages: hello, more: `,"tool_choice":{"type":"tool","name":"other"}`, want: "get other"},
		// The conversation changes its tools.
		{tools: get + "," + later, messages: changed(`{"type":"tool_addition","tool":{"type":"tool_reference","name":"later"}}`), want: "get later"},
		{tools: get + "," + later, messages: strings.Replace(changed(`{"type":"text","text":"x"},{"type":"tool_addition","tool":{"type":"tool_reference","name":"later"}}`), `"role":"system"`, `"role":"system","clear_at":"next_user_message"`, 1), want: "get later"},
		{tools: get + "," + later, messages: changed(`{"type":"tool_removal","tool":{"type":"tool_reference","name":"get"}}`), want: ""},
		{tools: get, messages: changed(`{"type":"tool_removal","tool":{"type":"tool_reference","name":"get"}},{"type":"tool_addition","tool":{"type":"tool_reference","name":"get"}}`), want: "get"},
		{tools: get + "," + later, messages: changed(`{"type":"tool_addition","tool":{"type":"tool_definition","definition":` + other + `}},{"type":"tool_addition","tool":{"type":"tool_definition","definition":` + tool("get", `,"description":"new"`) + `}}`), want: "other get: new"},
		{tools: get, messages: changed(`{"type":"tool_addition","tool":{"type":"mcp_toolset_reference","server_name":"s"}},{"type":"tool_addition"},{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_search_20260318","name":"web_search"}}}`), want: "get",
			left: "messages[].content[].tool.definition.web_search, messages[].content[].tool_addition"},
		{tools: get + "," + later, messages: `{"role":"assistant","content":[{"type":"compaction","content":"Sum.","tool_changes":[{"type":"tool_addition","tool":{"type":"tool_reference","name":"later"}}]}]},{"role":"user","content":"x"}`, want: "get later",
			left: "messages[].content[].compaction"},
		{tools: get + `,{"type":"browser_toolset_20260801"},{"type":"computer_toolset_20260801"}`, messages: hello, want: "get", left: "tools[].browser_toolset, tools[].computer_toolset"},
		{tools: `{"type":"tool_search_tool_regex_20251119","name":"tool_search_tool_regex"},` + get + "," + later, messages: hello, want: "get later", left: "tools[].tool_search_tool_regex"},
	} {
		in := &strict.Reading{}
		got, err := anthropic.Parse([]byte(`{"model":"m","max_tokens":9,"tools":[`+c.tools+`],"messages":[`+c.messages+`]`+c.more+`}`), in)
		if err != nil {
			t.Errorf("%s: %v", c.tools, err)
			continue
		}
		var names []string
		for _, tool := range got.Request.GetTools() {
			name := tool.GetName()
			if tool.GetDescription() != "" {
				name += ": " + tool.GetDescription()
			}
			names = append(names, name)
		}
		if strings.Join(names, " ") != c.want || in.Header() != c.left {
			t.Errorf("%s in %s: the prompt has %v and %q is left out; want %s and %q", c.tools, c.messages, names, in.Header(), c.want, c.left)
		}
	}
}

// TestTelemetryOfTheClientIsNotInThePrompt: two conversations that differ in it share their prefix.
func TestTelemetryOfTheClientIsNotInThePrompt(t *testing.T) {
	const header = `x-anthropic-billing-header: cc_version=2.1.330; cch=1234f;`
	for _, c := range []habit{
		{`"system":[{"type":"text","text":"` + header + `"},{"type":"text","text":"You are.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"Two."}]`, `You are.\n\nTwo.`, "system[].x-anthropic-billing-header"},
		{`"system":"` + header + `\nYou are."`, `You are.`, "system.x-anthropic-billing-header"},
		{`"system":"You are. ` + header + `"`, `You are. ` + header, ""},
		{`"system":["One.","Two."]`, `One.\n\nTwo.`, ""},
		{`"system":[{"type":"text","text":"s\u0000"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QQ=="}}]`, "s\\u0000\\n\\n[image omitted]", "system[].image"},
	} {
		in := &strict.Reading{}
		got, err := anthropic.Parse([]byte(`{`+hi+`,`+c.body+`}`), in)
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		calltest.WantRequest(t, c.body, got.Request, `{"model":"m","messages":[{"role":"system","content":"`+c.want+`"},{"role":"user","content":"Hi"}],"sampling":{"maxTokens":9}}`)
		if in.Header() != c.left {
			t.Errorf("%s: %q is left out, want %q", c.body, in.Header(), c.left)
		}
	}
}

func TestOneBadBlockDoesNotEndASession(t *testing.T) {
	const (
		hello = `{"role":"user","content":"Hi"}`
		use   = `,{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"get","input":%s}]},{"role":"user","content":"x"}`
		used  = `,{"role":"assistant","toolCalls":[{"id":"t","name":"get","arguments":"%s"}]},{"role":"user","content":"x"}`
	)
	history := func(blocks string) string {
		return hello + `,{"role":"assistant","content":[` + blocks + `]},{"role":"user","content":"go"}`
	}
	said := func(content string) string {
		return hello + `,{"role":"assistant","content":"` + content + `"},{"role":"user","content":"go"}`
	}
	result := func(content string) string {
		return hello + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"` + content + `}]}`
	}
	told := func(content string) string {
		return hello + `,{"role":"tool","toolCallId":"t","content":"` + content + `"}`
	}
	for _, c := range []habit{
		// calls
		{hello + fmt.Sprintf(use, `{"a": "b"}`), hello + fmt.Sprintf(used, `{\"a\":\"b\"}`), ""},
		{hello + fmt.Sprintf(use, `"{\"a\": \"b"`), hello + fmt.Sprintf(used, `{\"a\": \"b`), ""},
		{hello + fmt.Sprintf(use, `[1, "a"]`), hello + fmt.Sprintf(used, `[1,\"a\"]`), ""},
		{hello + fmt.Sprintf(use, `7`), hello + fmt.Sprintf(used, `7`), ""},
		{hello + fmt.Sprintf(use, `null`), hello + fmt.Sprintf(used, `{}`), ""},
		{hello + fmt.Sprintf(use, `""`), hello + fmt.Sprintf(used, `{}`), ""},
		{history(`{"type":"tool_use","caller":null,"name":"get","toolset_name":null}`), hello + `,{"role":"assistant","toolCalls":[{"name":"get","arguments":"{}"}]},{"role":"user","content":"go"}`, ""},
		{history(`{"type":"tool_use","id":"t","input":{"a":1}}`), said(`[{\"a\":1}]`), "messages[].content[].tool_use"},
		// results
		{result(``), hello + `,{"role":"tool","toolCallId":"t"}`, ""}, // of no call
		{result(`,"content":null,"is_error":true`), told("error"), ""},
		{result(`,"content":"No.","is_error":true`), told("No."), ""},
		{result(`,"content":{"a": [1]}`), told(`{\"a\":[1]}`), ""},
		{result(`,"content":["a",{"type":"text","text":null},{"text":"b"}]`), told(`a\n\nb`), "messages[].content[].content[]"},
		{hello + `,{"role":"user","content":[{"type":"tool_result","content":"r"}]}`, hello + `,{"role":"tool","content":"r"}`, ""},
		{result(`,"content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"abc"}}]`), told("abc"), "messages[].content[].content[].document"},
		{result(`,"content":[{"type":"text","text":"shot"},{"type":"image","source":{"type":"file","file_id":"f"}}]`), told(`shot\n\n[image omitted]`), "messages[].content[].content[].image"},
		{result(`,"content":[{"type":"image","source":null},{"type":"audio","data":"x"}]`), told(`[image omitted]\n\n[audio omitted]`), "messages[].content[].content[], messages[].content[].content[].image"},
		{result(`,"content":[{"type":"search_result","source":"https://a","title":"T","content":[{"type":"text","text":"found"}],"citations":{"enabled":true}}]`), told(`T\nhttps://a\nfound`), "messages[].content[].content[].search_result"},
		{result(`,"content":[{"type":"tool_reference","tool_name":"later"}]`), told(`[tool: later]`), ""},
		// documents
		{`{"role":"user","content":[{"type":"document","title":"T","context":"C","source":{"type":"content","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}},{"type":"text","text":"Sum up."}]}`,
			`{"role":"user","content":"T\nC\na\nb\n\nSum up."}`, "messages[].content[].document"},
		{`{"role":"user","content":[{"type":"document","title":"T","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}},{"type":"document","source":{"type":"file","file_id":"f"}}]}`,
			`{"role":"user","content":"[document omitted: T]\n\n[document omitted]"}`, "messages[].content[].document"},
		{`{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"w6k="}},{"type":"document","title":"U","source":{"type":"url","url":"https://a/b.pdf"}},{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"/w=="}}]}`,
			`{"role":"user","content":"é\n\n[document omitted: U\nhttps://a/b.pdf]\n\n[document omitted]"}`, "messages[].content[].document"},
		{`{"role":"user","content":["Hi",{"type":"container_upload","file_id":"f"},{"type":"novelty","text":"x"},{"type":"novelty","n":1}]}`,
			`{"role":"user","content":"Hi\n\n[file omitted]\n\n[novelty]\nx\n\n[novelty omitted]"}`, "messages[].content[], messages[].content[].container_upload"},
		// reasoning
		{history(`{"type":"redacted_thinking","data":"x"},{"type":"text","text":"x"}`), said("x"), "messages[].content[].redacted_thinking"},
		{history(`{"type":"thinking","thinking":"Hm.","signature":"EqoB"},{"type":"text","text":"x"},{"type":"fallback","from":{"model":"a"}}`),
			hello + `,{"role":"assistant","content":"x","reasoning":"Hm."},{"role":"user","content":"go"}`, "messages[].content[].fallback"},
		{`{"role":"user","content":[{"type":"thinking","thinking":"a"},{"type":"text","text":"Hi"}]}`, hello, "messages[].content[].thinking"},
		// what Anthropic's servers did
		{history(`{"type":"server_tool_use","id":"s","name":"web_search","input":{"query": "x"}},
			{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","url":"https://a","title":"T","encrypted_content":"E","page_age":"1"}]},{"type":"text","text":"So."}`),
			said(`[web_search {\"query\":\"x\"}]\n\n[web_search_tool_result]\nT\nhttps://a\n\nSo.`), "messages[].content[].server_tool_use, messages[].content[].web_search_tool_result"},
		{history(`{"type":"web_fetch_tool_result","content":{"type":"web_fetch_result","url":"https://a","content":{"type":"document","source":{"type":"text","media_type":"text/plain","data":"page"}}}}`),
			said(`[web_fetch_tool_result]\nhttps://a\npage`), "messages[].content[].web_fetch_tool_result"},
		{history(`{"type":"bash_code_execution_tool_result","tool_use_id":"s","content":{"type":"bash_code_execution_result","stdout":"out","stderr":"","return_code":0,"content":[]}},
			{"type":"web_search_tool_result","tool_use_id":"s","content":{"type":"web_search_tool_result_error","error_code":"max_uses_exceeded"}}`),
			said(`[bash_code_execution_tool_result]\nout\n\n[web_search_tool_result]\nmax_uses_exceeded`), "messages[].content[].bash_code_execution_tool_result, messages[].content[].web_search_tool_result"},
		{history(`{"type":"mcp_tool_use","id":"m","name":"echo","server_name":"s","input":{}},{"type":"mcp_tool_result","tool_use_id":"m","is_error":false,"content":[{"type":"text","text":"hello"}]}`),
			said(`[echo {}]\n\n[mcp_tool_result]\nhello`), "messages[].content[].mcp_tool_result, messages[].content[].mcp_tool_use"},
		{history(`{"type":"text","text":"old"},{"type":"compaction","content":"Summary."},{"type":"text","text":"new"}`),
			`{"role":"user","content":"Summary."},{"role":"assistant","content":"new"},{"role":"user","content":"go"}`, "messages[].content[].compaction"},
		{history(`{"type":"text","text":"old"},{"type":"compaction","content":null}`), said(`old`), "messages[].content[].compaction"},
		// messages
		{hello + `,{"role":"assistant"},{"role":"assistant","content":null,"id":"msg_1","stop_reason":"end_turn","usage":{}}`, hello, "messages[].id, messages[].stop_reason, messages[].usage"},
		{hello + `,{"role":"system","content":"BBB"},{"role":"user","content":"y"}`, hello + `,{"role":"system","content":"BBB"},{"role":"user","content":"y"}`, ""},
		{hello + `,{"role":"system","content":"once","clear_at":"next_user_message"},{"role":"system","content":"always","clear_at":"never"},{"role":"user","content":"y"},{"role":"system","content":"now","clear_at":"next_user_message"}`,
			hello + `,{"role":"system","content":"always"},{"role":"user","content":"y"},{"role":"system","content":"now"}`, ""},
		{history(`{"type":"mcp_tool_listing","mcp_server_name":"s","tools":[]},{"type":"text","text":"x"}`), said("x"), "messages[].content[].mcp_tool_listing"},
		{result(`,"toolset_name":"b","content":[{"type":"browser_state","tabs":[{"tab_id":1,"title":"T","url":"https://a"}]}]`), told(`[browser_state]\nT\nhttps://a`), "messages[].content[].content[].browser_state"},
		{`{"role":"user","content":[{"type":"text","text":"Hi","citations":[],"cache_control":{"type":"ephemeral"}}],"novelty":null}`, hello, ""},
	} {
		in := &strict.Reading{}
		got, err := anthropic.Parse([]byte(`{"model":"m","max_tokens":9,"messages":[`+c.body+`]}`), in)
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		calltest.WantRequest(t, c.body, got.Request, `{"model":"m","sampling":{"maxTokens":9},"messages":[`+c.want+`]}`)
		if in.Header() != c.left {
			t.Errorf("%s: %q is left out, want %q", c.body, in.Header(), c.left)
		}
	}
}

func TestAMessageOfTheSystemMaySetTheEffort(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"Hi"},{"role":"system","output_config":{"effort":"max"}},{"role":"system","content":"s","output_config":{"effort":"low"}},{"role":"system","output_config":{"effort":"more"}}]`
	in := &strict.Reading{}
	c, err := anthropic.Parse([]byte(`{"model":"m","max_tokens":9,"output_config":{"effort":"high"},`+messages+`}`), in)
	if err != nil || c.Request.GetTemplateVariables() != `{"reasoning_effort":"low"}` || in.Header() != "messages[].output_config.effort" {
		t.Errorf("%v, %v, left out: %s", c, err, in.Header())
	}
}

func TestASummaryInsteadOfAnAnswerIsRefused(t *testing.T) {
	const fields = hi + `,"compaction":{"type":"summarize"}`
	if _, err := anthropic.Parse([]byte(`{`+fields+`}`), nil); streamerr.As(err).Param != "compaction" {
		t.Error(err)
	}
	if _, err := anthropic.ParseCount([]byte(`{`+fields+`}`), nil); err != nil {
		t.Errorf("a summary is not counted: %v", err)
	}
}

func TestImagesOfAToolResultAreShown(t *testing.T) {
	const shot = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QQ=="}}`
	body := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"look"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"get","input":{}},` + shot + `]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"shot"},` + shot + `],"is_error":true}]}]}`
	c, err := anthropic.Parse([]byte(body), nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := c.Request.GetMessages()[2]
	if seen.GetRole() != "tool" || seen.GetContent() != "shot" || len(seen.GetImages()) != 1 || seen.GetImages()[0].GetOffset() != 4 {
		t.Error(seen)
	}
	if len(c.Images) != 1 || c.Images[0].To != seen.GetImages()[0].GetImage() || c.Images[0].Param != "messages[2].content[0].content[1].source.data" {
		t.Errorf("%+v", c.Images)
	}
	count, err := anthropic.ParseCount([]byte(body), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := count.CheckImages(true); streamerr.As(err).Param != "messages[2].content[0].content[1].source.data" {
		t.Errorf("the tokens of an image are counted: %v", err)
	}
	if err := count.CheckImages(false); err != nil || count.Request.GetMessages()[2].GetContent() == "shot" {
		t.Errorf("the note for an image is not counted: %v, %v", err, count.Request)
	}
	if said := c.Request.GetMessages()[1].GetContent(); said != "[image omitted]" { // models show no images
		t.Error(said)
	}
}
