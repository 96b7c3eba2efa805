package conversation_test

import (
	"encoding/base64"
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/responses/conversation"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestItemsBecomeTurns(t *testing.T) {
	for items, want := range map[string]string{
		`"Hi"`:                             `{"role":"user","content":"Hi"}`,
		`[{"role":"user","content":"Hi"}]`: `{"role":"user","content":"Hi"}`,
		`[{"role":"user","content":"a"},{"type":"message","role":"user","content":[{"type":"input_text","text":"b"},{"type":"input_text","text":"c"}],"id":"msg_1","status":"completed"}]`: `{"role":"user","content":"a"},{"role":"user","content":"bc"}`,
		`[{"role":"system","content":"a"},{"role":"developer","content":"b"},{"role":"user","content":"c"}]`:                                                                               `{"role":"system","content":"a"},{"role":"developer","content":"b"},{"role":"user","content":"c"}`,
		// The items of one answer, and of consecutive answers, are one turn.
		`[{"role":"user","content":"a"},{"type":"reasoning","id":"rs_1","status":"completed","summary":[],"content":[{"type":"reasoning_text","text":"b"},{"type":"reasoning_text","text":"c"}]},
		  {"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"d","annotations":[],"logprobs":[]},{"type":"refusal","refusal":"e"}]},
		  {"type":"function_call","id":"fc_1","status":"completed","call_id":"1","name":"f","arguments":"{\"x\":1}"},{"type":"function_call","call_id":"2","name":"g","arguments":""},
		  {"type":"function_call_output","call_id":"1","output":"Rain."},{"type":"function_call_output","id":"fo_1","status":"completed","call_id":"2","output":[{"type":"input_text","text":"No "},{"type":"input_text","text":"such."}]},
		  {"type":"reasoning","summary":[]},{"role":"assistant","content":"g"},{"role":"assistant","content":"h"}]`: `{"role":"user","content":"a"},
			{"role":"assistant","reasoning":"bc","content":"de","toolCalls":[{"id":"1","name":"f","arguments":"{\"x\":1}"},{"id":"2","name":"g","arguments":"{}"}]},
			{"role":"tool","toolCallId":"1","content":"Rain."},{"role":"tool","toolCallId":"2","content":"No such."},{"role":"assistant","content":"g\n\nh"}`,
		// Reasoning comes from the content, else from encrypted_content, else from the summary.
		`[{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"content":[{"type":"reasoning_text","text":"c"}],"encrypted_content":"` + conversation.Encrypt("e") + `"},{"role":"assistant","content":"a"}]`: `{"role":"assistant","reasoning":"c","content":"a"}`,
		`[{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"content":null,"encrypted_content":"` + conversation.Encrypt("e\n") + `"},{"role":"assistant","content":"a"}]`:                                 `{"role":"assistant","reasoning":"e\n","content":"a"}`,
		`[{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":null},{"role":"assistant","content":"a"}]`:                                                                                 `{"role":"assistant","reasoning":"s","content":"a"}`,
		`[{"type":"function_call","call_id":"1","namespace":"n","name":"f","arguments":"{}"}]`:                                                                                                                              `{"role":"assistant","toolCalls":[{"id":"1","name":"n__f","arguments":"{}"}]}`,
		// Arguments may be any text, because the client sends them back unchanged.
		`[{"type":"function_call","call_id":"1","name":"f","arguments":"{\"x"},{"type":"function_call","call_id":"2","name":"f","arguments":"[1]"},
		  {"type":"function_call","call_id":"3","name":"f","arguments":"\"x\""},{"type":"function_call","call_id":"4","name":"f","arguments":"{} {}"},{"type":"function_call","call_id":"5","name":"f","arguments":"{\"a\":1,\"a\":2}"},
		  {"type":"function_call","call_id":"6","name":"f","arguments":"NaN"},{"type":"function_call_output","call_id":"6","output":"PK\u0000\u0003"}]`: `{"role":"assistant","toolCalls":[{"id":"1","name":"f","arguments":"{\"x"},
			{"id":"2","name":"f","arguments":"[1]"},{"id":"3","name":"f","arguments":"\"x\""},{"id":"4","name":"f","arguments":"{} {}"},{"id":"5","name":"f","arguments":"{\"a\":1,\"a\":2}"},{"id":"6","name":"f","arguments":"NaN"}]},
			{"role":"tool","toolCallId":"6","content":"PK\u0000\u0003"}`,
	} {
		wantMessages(t, &strict.Reading{Strict: true}, items, want)
	}
}

// wantMessages parses items into messages.
func wantMessages(t *testing.T, in *strict.Reading, items, want string) {
	t.Helper()
	c, err := conversation.Parse(in, "input", []byte(items))
	if err != nil {
		t.Errorf("%s: %v", items, err)
		return
	}
	got, request := &chatv1.ChatRequest{Messages: c.Messages}, &chatv1.ChatRequest{}
	if err := protojson.Unmarshal([]byte(`{"messages":[`+want+`]}`), request); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, request) || len(c.Origins) != len(c.Messages) {
		t.Errorf("%s\nis %s\nwant %s", items, protojson.Format(got), protojson.Format(request))
	}
}

// TestNoItemEndsASession covers items that mean something only elsewhere, or have something missing.
func TestNoItemEndsASession(t *testing.T) {
	const call, result = `{"role":"assistant","toolCalls":[{"id":"1","name":"f","arguments":"{}"}]}`, `{"role":"tool","toolCallId":"1","content":"r"}`
	text := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for items, want := range map[string]struct{ messages, left string }{
		// Contents may be missing.
		`[{"role":"user"},{"role":"system","content":null},{"role":"assistant","content":[]},{"role":"developer","content":""}]`:                            {`{"role":"user"},{"role":"system"},{"role":"assistant"},{"role":"developer"}`, ""},
		`[{"type":null,"role":"user","content":[{"text":"a"},{"type":"text","text":null},{"type":"output_text","text":"b","parsed":{},"annotations":[]}]}]`: {`{"role":"user","content":"ab"}`, "input[].content[].parsed"},
		`[{"role":"assistant","content":null,"refusal":"No.","parsed":{"x":1}}]`:                                                                            {`{"role":"assistant","content":"No."}`, "input[].parsed"},
		`[{"role":"user","content":"a","novelty":1}]`:                                                                                                       {`{"role":"user","content":"a"}`, "input[].novelty"},
		`[{"type":"reasoning"},{"type":"reasoning","summary":[],"content":null},{"role":"assistant","content":"a"}]`:                                        {`{"role":"assistant","content":"a"}`, ""},
		`[{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"gAAAAABo"}]`:                                              {`{"role":"assistant","reasoning":"s"}`, "input[].encrypted_content"},
		`[{"role":"user","content":"a"},{"type":"reasoning","summary":[],"encrypted_content":"whence-1:!"}]`:                                                {`{"role":"user","content":"a"}`, "input[].encrypted_content"},
		// Calls and results that lack each other.
		`[{"type":"function_call","name":"f"},{"type":"function_call_output","output":"r"}]`:                                                                                      {strings.ReplaceAll(call+","+result, `"1"`, `"call_0"`), ""},
		`[{"type":"function_call","id":"1","name":"f","arguments":null},{"type":"function_call_output","output":"r"}]`:                                                            {call + "," + result, ""},
		`[{"type":"function_call_output","call_id":"1","output":"r"}]`:                                                                                                            {result, ""},
		`[{"type":"function_call_output","output":"r"}]`:                                                                                                                          {`{"role":"tool","content":"r"}`, ""},
		`[{"type":"function_call","call_id":"1","name":"f","arguments":{}},{"role":"tool","tool_call_id":"1","content":"r"}]`:                                                     {call + "," + result, ""},
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"function","name":"f","content":"r"}]`: {call + "," + result, ""},
		`[{"type":"function_call","call_id":"1","name":"f","arguments":"{}","parsed_arguments":{}}]`:                                                                              {call, "input[].parsed_arguments"},
		// Results may be any value.
		`[{"type":"function_call_output","call_id":"1","output":null}]`:                       {`{"role":"tool","toolCallId":"1"}`, ""},
		`[{"type":"function_call_output","call_id":"1","output":{"a": [1]}}]`:                 {`{"role":"tool","toolCallId":"1","content":"{\"a\":[1]}"}`, ""},
		`[{"type":"function_call_output","call_id":"1","output":7}]`:                          {`{"role":"tool","toolCallId":"1","content":"7"}`, ""},
		`[{"type":"function_call_output","call_id":"1","output":{"type":"text","text":"r"}}]`: {result, ""},
		`[{"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"r"},{"type":"input_image","file_id":"f"},{"type":"input_audio"},{"type":"hologram"}]}]`: {
			`{"role":"tool","toolCallId":"1","content":"r\n\n[an image that cannot be shown here]\n\n[input_audio]\n\n[a part of an unknown type]"}`, "input[].output[], input[].output[].input_audio, input[].output[].input_image",
		},
		// Files that are texts, whatever their type says.
		`[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_file","filename":"n.md","file_data":"data:text/markdown;base64,` + text("# T") + `"},{"type":"input_text","text":"b"}]}]`: {`{"role":"user","content":"a\n\n[file n.md]\n# T\n\nb"}`, ""},
		`[{"role":"user","content":[{"type":"input_file","file_data":"data:application/json,%7B%7D"}]}]`:                                                                                                      {`{"role":"user","content":"[file]\n{}"}`, ""},
		`[{"role":"user","content":[{"type":"input_file","filename":"a.csv","file_data":"` + text("1,é") + `"}]}]`:                                                                                            {`{"role":"user","content":"[file a.csv]\n1,é"}`, ""},
		`[{"role":"user","content":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,` + text("%PDF-1.7") + `"}]}]`:                                                           {`{"role":"user","content":"[file a.pdf, which cannot be read here]"}`, "input[].content[].input_file"},
		`[{"role":"user","content":[{"type":"input_file","file_data":"data:;base64,` + text("a\x00b") + `"}]}]`:                                                                                               {`{"role":"user","content":"[file, which cannot be read here]"}`, "input[].content[].input_file"},
		`[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]`:                                                                                                                              {`{"role":"user","content":"[file, which cannot be read here]"}`, "input[].content[].input_file"},
		`[{"role":"system","content":[{"type":"input_image","image_url":"data:"}]}]`:                                                                                                                          {`{"role":"system","content":"[an image that cannot be shown here]"}`, "input[].content[].input_image"},
		// Calls of other tools at the client.
		`[{"type":"custom_tool_call","call_id":"1","name":"apply_patch","input":"*** \"x\""},{"type":"custom_tool_call_output","call_id":"1","output":"r"}]`: {
			`{"role":"assistant","toolCalls":[{"id":"1","name":"apply_patch","arguments":"{\"input\":\"*** \\\"x\\\"\"}"}]},` + result, "input[].custom_tool_call, input[].custom_tool_call_output",
		},
		`[{"type":"local_shell_call","id":"l","call_id":"1","status":"completed","action":{"type":"exec","command":["ls"]}},{"type":"local_shell_call_output","id":"1","output":"r"}]`: {
			`{"role":"assistant","toolCalls":[{"id":"1","name":"local_shell","arguments":"{\"type\":\"exec\",\"command\":[\"ls\"]}"}]},` + result, "input[].local_shell_call, input[].local_shell_call_output",
		},
		`[{"type":"shell_call","call_id":"1","action":{}},{"type":"shell_call_output","call_id":"1","output":[{"stdout":"r"}]},
		  {"type":"apply_patch_call","call_id":"2","operation":{}},{"type":"apply_patch_call_output","call_id":"2","status":"completed"},
		  {"type":"computer_call","call_id":"3","action":{}},{"type":"computer_call_output","call_id":"3","output":{"type":"computer_screenshot","file_id":"f"}}]`: {
			`{"role":"assistant","toolCalls":[{"id":"1","name":"shell","arguments":"{}"}]},{"role":"tool","toolCallId":"1","content":"[{\"stdout\":\"r\"}]"},
			 {"role":"assistant","toolCalls":[{"id":"2","name":"apply_patch","arguments":"{}"}]},{"role":"tool","toolCallId":"2"},
			 {"role":"assistant","toolCalls":[{"id":"3","name":"computer","arguments":"{}"}]},{"role":"tool","toolCallId":"3","content":"[computer_screenshot]"}`,
			"input[].apply_patch_call, input[].apply_patch_call_output, input[].computer_call, input[].computer_call_output, input[].output.computer_screenshot, input[].shell_call, input[].shell_call_output",
		},
		// Calls of tools at OpenAI's servers.
		`[{"type":"mcp_call","id":"1","server_label":"s","name":"f","arguments":"{}","output":"r"}]`:       {call + "," + result, "input[].mcp_call"},
		`[{"type":"mcp_call","id":"1","server_label":"s","name":"f","arguments":"{}","error":{"code":5}}]`: {call + `,{"role":"tool","toolCallId":"1","content":"{\"code\":5}"}`, "input[].mcp_call"},
		`[{"type":"code_interpreter_call","id":"1","code":"1+1","outputs":[{"type":"logs","logs":"2"}]}]`: {
			`{"role":"assistant","toolCalls":[{"id":"1","name":"code_interpreter","arguments":"{\"code\":\"1+1\"}"}]},{"role":"tool","toolCallId":"1","content":"2"}`, "input[].code_interpreter_call",
		},
		`[{"type":"file_search_call","id":"1","queries":["q"],"results":[{"text":"x"},{"text":"y"}]}]`: {
			`{"role":"assistant","toolCalls":[{"id":"1","name":"file_search","arguments":"{\"queries\":[\"q\"]}"}]},{"role":"tool","toolCallId":"1","content":"x\ny"}`, "input[].file_search_call",
		},
		`[{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},{"role":"assistant","content":"a"}]`: {
			`{"role":"assistant","content":"[web_search {\"type\":\"search\",\"query\":\"q\"}]\n\na"}`, "input[].web_search_call",
		},
		`[{"type":"image_generation_call","id":"i","result":"aGk="},{"type":"mcp_approval_request","name":"f","arguments":"{}"},{"type":"mcp_approval_response","approve":true},{"type":"mcp_approval_response","approve":false}]`: {
			`{"role":"assistant","content":"[image_generation]\n\n[mcp_approval_request f {}]"},{"role":"user","content":"[The call is approved.]"},{"role":"user","content":"[The call is not approved.]"}`,
			"input[].image_generation_call, input[].mcp_approval_request, input[].mcp_approval_response",
		},
		`[{"role":"user","content":"a"},{"type":"mcp_list_tools"},{"type":"tool_search_call"},{"type":"hologram","secret":"x"}]`: {`{"role":"user","content":"a"}`, "input[], input[].mcp_list_tools, input[].tool_search_call"},
		// Tools that the conversation offers, and their search at the client.
		`[{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"f"}]},{"role":"user","content":"a"}]`: {`{"role":"user","content":"a"}`, ""},
		`[{"type":"tool_search_call","id":"t","call_id":"1","execution":"client","status":"completed","arguments":{"query":"q"}},
		  {"type":"tool_search_output","call_id":"1","execution":"client","status":"completed","tools":[{"type":"function","name":"f"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"g"}]}]},
		  {"type":"custom_tool_call","call_id":"2","namespace":"n","name":"g","input":"x"}]`: {
			`{"role":"assistant","toolCalls":[{"id":"1","name":"tool_search","arguments":"{\"query\":\"q\"}"}]},{"role":"tool","toolCallId":"1","content":"These tools can be called now: f, n__g"},
			 {"role":"assistant","toolCalls":[{"id":"2","name":"n__g","arguments":"{\"input\":\"x\"}"}]}`, "input[].custom_tool_call",
		},
		`[{"type":"tool_search_output","call_id":"1","execution":"client","tools":[]},{"type":"tool_search_output","execution":"server","tools":[]}]`: {`{"role":"tool","toolCallId":"1","content":"No tools were found."}`, "input[].tool_search_output"},
		// Compacted conversations.
		`[{"type":"compaction","encrypted_content":"` + conversation.Encrypt("S") + `"},{"role":"user","content":"a"}]`: {`{"role":"user","content":"This is a summary of the conversation so far:\n\nS\n\na"}`, ""},
		`[{"type":"compaction","encrypted_content":"gAAA"},{"role":"assistant","content":"a"}]`: {
			`{"role":"user","content":"[An earlier part of the conversation was compacted by another service, and cannot be read here.]"},{"role":"assistant","content":"a"}`, "input[].compaction",
		},
	} {
		in := &strict.Reading{}
		wantMessages(t, in, items, want.messages)
		if in.Header() != want.left {
			t.Errorf("%s: left out are %q, want %q", items, in.Header(), want.left)
		}
	}
}

// TestReferencesAreResolved covers an item that is found, and one that is not.
func TestReferencesAreResolved(t *testing.T) {
	input := []byte(`[{"role":"user","content":"a"},{"id":"msg_1"},{"type":"item_reference","id":"msg_2"},{"role":"user","content":"b"}]`)
	in := &strict.Reading{}
	c, err := conversation.Parse(in, "input", input)
	if err != nil || !slices.Equal(c.References, []string{"msg_1", "msg_2"}) {
		t.Fatal(c, err)
	}
	resolved := conversation.Resolve(input, map[string]json.RawMessage{"msg_1": []byte(`{"type":"message","role":"assistant","content":"kept"}`)})
	c, err = conversation.ParseAfter(in, nil, "", "input", resolved)
	if err != nil || len(c.Messages) != 3 || !strings.HasPrefix(c.Messages[1].GetContent(), "kept\n\n[An item") || in.Header() != "input[].item_reference" {
		t.Errorf("%v, %v, left out are %q", c.Messages, err, in.Header())
	}
	if _, err := conversation.ParseAfter(&strict.Reading{Strict: true}, nil, "", "input", resolved); err == nil || streamerr.As(err).Param != "input[2].item_reference" {
		t.Error(err)
	}
}

func TestItemsThatAreNotHonouredAreRefusedByName(t *testing.T) {
	for items, param := range map[string]string{
		`{}`:                                    "input",
		`[7]`:                                   "input[0]",
		`[{"type":7}]`:                          "input[0].type",
		`[{"type":"message"}]`:                  "input[0].role",
		`[{"role":"user","content":7}]`:         "input[0].content",
		`[{"role":"robot","content":"a"}]`:      "input[0].role",
		`[{"role":"user","content":"a","x":1}]`: "input[0].x",
		`[{"role":"user","content":[{"type":7}]}]`:                                           "input[0].content[0].type",
		`[{"role":"user","content":[{}]}]`:                                                   "input[0].content[0].type",
		`[{"role":"user","content":[{"type":"input_text","text":7}]}]`:                       "input[0].content[0].text",
		`[{"role":"user","content":[{"type":"input_text","text":"a","x":1}]}]`:               "input[0].content[0].x",
		`[{"role":"user","content":[{"type":"input_image"}]}]`:                               "input[0].content[0].image_url",
		`[{"role":"user","content":[{"type":"input_image","image_url":{"url":7}}]}]`:         "input[0].content[0].image_url",
		`[{"role":"user","content":[{"type":"input_image","file_id":"file-1"}]}]`:            "input[0].content[0].file_id",
		`[{"role":"user","content":[{"type":"input_image","image_url":"x","detail":"x"}]}]`:  "input[0].content[0].detail",
		`[{"role":"system","content":[{"type":"input_image","image_url":"data:"}]}]`:         "input[0].content[0].input_image",
		`[{"role":"user","content":[{"type":"input_file"}]}]`:                                "input[0].content[0].input_file",
		`[{"role":"user","content":[{"type":"hologram"}]}]`:                                  "input[0].content[0]",
		`[{"type":"function_call","call_id":"1","arguments":"{}"}]`:                          "input[0].name",
		`[{"type":"function_call","call_id":"1","name":"f","arguments":"{}","namespace":7}]`: "input[0].namespace",
		`[{"type":"function_call_output","call_id":7,"output":"a"}]`:                         "input[0].call_id",
		`[{"type":"reasoning","summary":[],"encrypted_content":"gAAAAABo"}]`:                 "input[0].encrypted_content",
		`[{"type":"item_reference"}]`:                                                        "input[0].id",
		`[{"role":"user","content":"a"},{"type":"mcp_list_tools","id":"l"}]`:                 "input[1].mcp_list_tools",
		`[{"type":"hologram"}]`:                                   "input[0]",
		`[{"type":"custom_tool_call","call_id":"1","input":"x"}]`: "input[0].name",
	} {
		_, err := conversation.Parse(&strict.Reading{Strict: true}, "input", []byte(items))
		if err == nil || streamerr.As(err).Param != param || streamerr.As(err).Reason != streamerr.Invalid || !strings.Contains(err.Error(), param) {
			t.Errorf("%s: %v, want %s", items, err, param)
		}
	}
}

// TestManyItemsAreParsedInLinearMemory parses items whose texts become one turn.
func TestManyItemsAreParsedInLinearMemory(t *testing.T) {
	const n = 40000
	many := func(item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	for name, items := range map[string]string{
		"parts":     `[{"role":"user","content":[` + many(`{"type":"input_text","text":"word"}`) + `]}]`,
		"messages":  `[` + many(`{"role":"assistant","content":"word"}`) + `]`,
		"reasoning": `[` + many(`{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"word"}]}`) + `]`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := conversation.Parse(nil, "input", []byte(items)); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		// A joined text of 160 kB that is copied for each of 40,000 parts takes 3 GB.
		if times := (after.TotalAlloc - before.TotalAlloc) / uint64(len(items)); times > 100 {
			t.Errorf("%s: %d times the %d bytes of the items were allocated", name, times, len(items))
		}
	}
}
