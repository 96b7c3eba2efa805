package conversation_test

import (
	"runtime"
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
		// Arguments that are not an object become one, because the client sends them back
		// unchanged.
		`[{"type":"function_call","call_id":"1","name":"f","arguments":"{\"x"},{"type":"function_call","call_id":"2","name":"f","arguments":"[1]"}]`: `{"role":"assistant","toolCalls":[{"id":"1","name":"f","arguments":"{\"INVALID_JSON\":\"{\\\"x\"}"},
			{"id":"2","name":"f","arguments":"{\"INVALID_JSON\":\"[1]\"}"}]}`,
	} {
		messages, origins, _, err := conversation.Parse(nil, "input", []byte(items))
		if err != nil {
			t.Errorf("%s: %v", items, err)
			continue
		}
		got, request := &chatv1.ChatRequest{Messages: messages}, &chatv1.ChatRequest{}
		if err := protojson.Unmarshal([]byte(`{"messages":[`+want+`]}`), request); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, request) || len(origins) != len(messages) {
			t.Errorf("%s\nis %s\nwant %s", items, protojson.Format(got), protojson.Format(request))
		}
	}
}

func TestItemsThatAreNotHonouredAreRefusedByName(t *testing.T) {
	for items, param := range map[string]string{
		`{}`:                                    "input",
		`[7]`:                                   "input[0]",
		`[{"type":7}]`:                          "input[0].type",
		`[{"type":"message"}]`:                  "input[0].role",
		`[{"role":"user"}]`:                     "input[0].content",
		`[{"role":"user","content":null}]`:      "input[0].content",
		`[{"role":"user","content":7}]`:         "input[0].content",
		`[{"role":"tool","content":"a"}]`:       "input[0].role",
		`[{"role":"user","content":"a","x":1}]`: "input[0].x",
		`[{"role":"user","content":[{"text":"a"}]}]`:                                         "input[0].content[0].type",
		`[{"role":"user","content":[{"type":"input_text"}]}]`:                                "input[0].content[0].text",
		`[{"role":"user","content":[{"type":"input_text","text":"a","x":1}]}]`:               "input[0].content[0].x",
		`[{"role":"user","content":[{"type":"input_image"}]}]`:                               "input[0].content[0].image_url",
		`[{"role":"user","content":[{"type":"input_image","image_url":{"url":"data:"}}]}]`:   "input[0].content[0].image_url",
		`[{"role":"user","content":[{"type":"input_image","file_id":"file-1"}]}]`:            "input[0].content[0].file_id",
		`[{"role":"user","content":[{"type":"input_image","image_url":"x","detail":"x"}]}]`:  "input[0].content[0].detail",
		`[{"role":"system","content":[{"type":"input_image","image_url":"data:"}]}]`:         "input[0].content[0]",
		`[{"role":"user","content":[{"type":"input_file"}]}]`:                                "input[0].content[0]",
		`[{"role":"user","content":[{"type":"output_text","text":"a"}]}]`:                    "input[0].content[0]",
		`[{"type":"function_call","name":"f","arguments":"{}"}]`:                             "input[0].call_id",
		`[{"type":"function_call","call_id":"1","arguments":"{}"}]`:                          "input[0].name",
		`[{"type":"function_call","call_id":"1","name":"f"}]`:                                "input[0].arguments",
		`[{"type":"function_call","call_id":"1","name":"f","arguments":"{}","namespace":7}]`: "input[0].namespace",
		`[{"type":"function_call_output","output":"a"}]`:                                     "input[0].call_id",
		`[{"type":"function_call_output","call_id":"1"}]`:                                    "input[0].output",
		`[{"type":"function_call_output","call_id":"1","output":[{"type":"input_image"}]}]`:  "input[0].output[0]",
		`[{"type":"reasoning","content":[{"type":"summary_text","text":"a"}]}]`:              "input[0].content[0]",
		`[{"type":"reasoning","summary":[{"type":"reasoning_text","text":"a"}]}]`:            "input[0].summary[0]",
		`[{"type":"reasoning","summary":[],"encrypted_content":"gAAAAABo"}]`:                 "input[0].encrypted_content",
		`[{"type":"reasoning","summary":[],"encrypted_content":"whence-1:!"}]`:               "input[0].encrypted_content",
		`[{"type":"item_reference","id":"msg_1"}]`:                                           "input[0]",
		`[{"role":"user","content":"a"},{"type":"web_search_call","id":"ws_1"}]`:             "input[1].type",
		`[{"type":"custom_tool_call","call_id":"1","name":"apply_patch","input":"x"}]`:       "input[0].type",
	} {
		_, _, _, err := conversation.Parse(&strict.Reading{Strict: true}, "input", []byte(items))
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
		if _, _, _, err := conversation.Parse(nil, "input", []byte(items)); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		// A joined text of 160 kB that is copied for each of 40,000 parts takes 3 GB.
		if times := (after.TotalAlloc - before.TotalAlloc) / uint64(len(items)); times > 100 {
			t.Errorf("%s: %d times the %d bytes of the items were allocated", name, times, len(items))
		}
	}
}
