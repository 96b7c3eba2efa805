package anthropic_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/call/calltest"
	"github.com/whence-dev/whence/api-service/edge/sse"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// begin is the first item of the streams in these tests.
var begin = calltest.Started(&llmv1.Started{StreamId: "s", Model: "m", PromptTokens: 7})

const messageStart = `event: message_start
data: {"type":"message_start","message":{"id":"msg_s","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":7,"cache_creation_input_tokens":0,"cache_read_input_tokens":null,"output_tokens":0,"service_tier":"standard"}}}

`

// A script is a stream, its events after message_start, and its content and stop_reason as one body.
type script struct {
	body   string // more fields of the request
	items  []*chatv1.GenerateResponse
	events string
	whole  string // the body, from content on
}

var scripts = map[string]script{
	"text": {
		items: []*chatv1.GenerateResponse{
			calltest.Delta(&chatv1.Delta{Text: "He"}), calltest.Delta(&chatv1.Delta{Text: "\"y\"\n"}),
			calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_STOP, Usage: &llmv1.Usage{PromptTokens: 7, CachedTokens: new(uint32(4)), CompletionTokens: 3}}),
		},
		events: `content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}
content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"He"}}
content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\"y\"\n"}}
content_block_stop {"type":"content_block_stop","index":0}
message_delta {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":3}}
message_stop {"type":"message_stop"}`,
		whole: `"content":[{"type":"text","text":"He\"y\"\n"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":3,"service_tier":"standard"}}`,
	},
	"reasoning, text and calls": {
		items: []*chatv1.GenerateResponse{
			calltest.Delta(&chatv1.Delta{Reasoning: "Hm"}), calltest.Delta(&chatv1.Delta{Reasoning: ".", Text: "I look."}),
			calltest.Delta(&chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Id: "a", Name: "f"}, {Arguments: `{"city":`}}}),
			calltest.Delta(&chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Arguments: `"Paris"}`}, {Index: 1, Id: "b", Name: "g", Arguments: "{}"}}}),
			calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_TOOL_CALLS, Usage: &llmv1.Usage{PromptTokens: 7, CompletionTokens: 9, ReasoningTokens: new(uint32(2))}}),
		},
		events: `content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}}
content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"."}}
content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}
content_block_stop {"type":"content_block_stop","index":0}
content_block_start {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}
content_block_delta {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"I look."}}
content_block_stop {"type":"content_block_stop","index":1}
content_block_start {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}
content_block_delta {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"city\":"}}
content_block_delta {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"Paris\"}"}}
content_block_stop {"type":"content_block_stop","index":2}
content_block_start {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"b","name":"g","input":{}}}
content_block_delta {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}}
content_block_stop {"type":"content_block_stop","index":3}
message_delta {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":7,"cache_creation_input_tokens":0,"cache_read_input_tokens":null,"output_tokens":9,"output_tokens_details":{"thinking_tokens":2}}}
message_stop {"type":"message_stop"}`,
		whole: `"content":[{"type":"thinking","thinking":"Hm.","signature":"s"},{"type":"text","text":"I look."},{"type":"tool_use","id":"a","name":"f","input":{"city":"Paris"}},{"type":"tool_use","id":"b","name":"g","input":{}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":7,"cache_creation_input_tokens":0,"cache_read_input_tokens":null,"output_tokens":9,"output_tokens_details":{"thinking_tokens":2},"service_tier":"standard"}}`,
	},
	"reasoning that is left out": {
		body: `,"thinking":{"type":"adaptive","display":"omitted"}`,
		items: []*chatv1.GenerateResponse{
			calltest.Delta(&chatv1.Delta{Reasoning: "Hm"}),
			calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_LENGTH}),
		},
		events: `content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}
content_block_stop {"type":"content_block_stop","index":0}
message_delta {"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":null,"output_tokens":0}}
message_stop {"type":"message_stop"}`,
		whole: `"content":[{"type":"thinking","thinking":"","signature":"s"}],"stop_reason":"max_tokens","stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":null,"output_tokens":0,"service_tier":"standard"}}`,
	},
	"nothing before a stop sequence": {
		items: []*chatv1.GenerateResponse{calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_STOP, MatchedStop: "###"})},
		events: `message_delta {"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"###"},"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":null,"output_tokens":0}}
message_stop {"type":"message_stop"}`,
		whole: `"content":[],"stop_reason":"stop_sequence","stop_sequence":"###","usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":null,"output_tokens":0,"service_tier":"standard"}}`,
	},
	"arguments that are not JSON": {
		items: []*chatv1.GenerateResponse{
			calltest.Delta(&chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Id: "a", Name: "f", Arguments: `{"x`}}}),
			calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_CONTENT_FILTER}),
		},
		events: `content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}
content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"x"}}
content_block_stop {"type":"content_block_stop","index":0}
message_delta {"type":"message_delta","delta":{"stop_reason":"refusal","stop_sequence":null},"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":null,"output_tokens":0}}
message_stop {"type":"message_stop"}`,
		whole: `"content":[{"type":"tool_use","id":"a","name":"f","input":{"INVALID_JSON":"{\"x"}}],"stop_reason":"refusal","stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":null,"output_tokens":0,"service_tier":"standard"}}`,
	},
}

func TestStreamsAreWrittenAsEvents(t *testing.T) {
	for name, s := range scripts {
		var want strings.Builder
		want.WriteString(messageStart)
		for line := range strings.SplitSeq(s.events, "\n") {
			event, data, _ := strings.Cut(line, " ")
			want.WriteString("event: " + event + "\ndata: " + data + "\n\n")
		}
		lines := sse.Encoder{Identity: true}
		write := parser.Parse(t, "{"+hi+s.body+`,"stream":true}`).Events()
		write(begin, &lines)
		for _, out := range s.items {
			write(out, &lines)
		}
		if got, _ := lines.Take(); string(got) != want.String() {
			t.Errorf("%s:\n%swant\n%s", name, got, want.String())
		}
	}
}

func TestStreamsAreGatheredIntoOneBody(t *testing.T) {
	for name, s := range scripts {
		gather := parser.Parse(t, "{"+hi+s.body+"}").Whole()
		got := gather(begin)
		for _, out := range s.items {
			got = append(got, gather(out)...)
		}
		if want := `{"id":"msg_s","type":"message","role":"assistant","model":"m",` + s.whole; string(got) != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestATokenIsEncodedWithoutAllocations(t *testing.T) {
	var lines sse.Encoder
	write := parser.Parse(t, "{"+hi+`,"stream":true}`).Events()
	write(begin, &lines)
	out := calltest.Delta(&chatv1.Delta{Text: " \"token\"\n"})
	if n := testing.AllocsPerRun(100, func() {
		write(out, &lines)
		_, _ = lines.Take()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestErrorsHaveTheAPIsOwnFormWithTheEndingBeside(t *testing.T) {
	lost := &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath("llm-worker/0", "chat-service"), Message: `it is "lost"`}
	lines := sse.Encoder{Identity: true}
	anthropic.Form.Failure(lost, "s", &lines)
	const want = `{"type":"error","error":{"type":"api_error","message":"it is \"lost\""},"request_id":"s","whence":{"reason":"peer_lost","origin":"llm-worker/0","path":["llm-worker/0","chat-service"]}}`
	if got, _ := lines.Take(); string(got) != "event: error\ndata: "+want+"\n\n" {
		t.Errorf("%s", got)
	}
	anthropic.Form.Ping(&lines)
	if got, _ := lines.Take(); string(got) != "event: ping\ndata: {\"type\":\"ping\"}\n\n" {
		t.Errorf("%s", got)
	}
	for _, test := range []struct {
		err    streamerr.Error
		status int // of the refusal; 0 means the status of the reason
		want   int
		kind   string
	}{
		{streamerr.Error{Reason: streamerr.Invalid, Param: "model"}, 0, 400, "invalid_request_error"},
		{streamerr.Error{Reason: streamerr.Invalid}, http.StatusRequestEntityTooLarge, 413, "request_too_large"},
		{streamerr.Error{Reason: streamerr.Invalid, Code: streamerr.CodeContextLength}, 0, 400, "invalid_request_error"},
		{streamerr.Error{Reason: streamerr.Unauthenticated}, 0, 401, "authentication_error"},
		{streamerr.Error{Reason: streamerr.Forbidden}, 0, 403, "permission_error"},
		{streamerr.Error{Reason: streamerr.NotFound}, 0, 404, "not_found_error"},
		{streamerr.Error{Reason: streamerr.Overloaded}, 0, 529, "overloaded_error"},
		{streamerr.Error{Reason: streamerr.Overloaded, Code: "insufficient_quota"}, 0, 429, "rate_limit_error"},
		{streamerr.Error{Reason: streamerr.Draining}, 0, 503, "overloaded_error"},
		{streamerr.Error{Reason: streamerr.Unavailable}, 0, 503, "overloaded_error"},
		{streamerr.Error{Reason: streamerr.Deadline}, 0, 504, "timeout_error"},
		{streamerr.Error{Reason: streamerr.UserStop}, 0, 409, "api_error"},
		{streamerr.Error{Reason: streamerr.EngineFailed}, 0, 500, "api_error"},
	} {
		status := test.status
		if status == 0 {
			status = test.err.Reason.HTTPStatus()
		}
		status, body := anthropic.Form.Refusal(status, &test.err, "s")
		var got struct {
			Type  string
			Error struct{ Type, Message string }
			ID    string                               `json:"request_id"`
			Ours  struct{ Reason, Param, Code string } `json:"whence"`
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if status != test.want || got.Type != "error" || got.Error.Type != test.kind || got.Error.Message == "" || got.ID != "s" ||
			got.Ours.Reason != test.err.Reason.String() || got.Ours.Param != test.err.Param || got.Ours.Code != test.err.Code {
			t.Errorf("%v: %d %s, want %d and %s", test.err.Reason, status, body, test.want, test.kind)
		}
	}
}

// TestLongPromptHasTheWordsOfAnthropic checks the words by which clients decide to shorten the
// conversation.
func TestLongPromptHasTheWordsOfAnthropic(t *testing.T) {
	for want, long := range map[string]*streamerr.Error{
		"prompt is too long: 9 tokens > 8 maximum": streamerr.TooLong("messages", 9, 8),
		"prompt is too long: 8 tokens > 7 maximum": streamerr.TooLong("messages", 8, 8), // an answer of no token is none
		"prompt is too long: it is":                streamerr.InvalidParam("messages", "it is").WithCode(streamerr.CodeContextLength),
	} {
		_, body := anthropic.Form.Refusal(http.StatusBadRequest, long, "s")
		var got struct{ Error struct{ Message string } }
		if err := json.Unmarshal(body, &got); err != nil || got.Error.Message != want || !strings.Contains(string(body), `"code":"context_length_exceeded"`) {
			t.Errorf("%s, want %q", body, want)
		}
	}
}

// TestTheStartOfAMessageTellsItsCachedTokens: the message begins with the first piece of the answer,
// when the engine has told them, or with its end.
func TestTheStartOfAMessageTellsItsCachedTokens(t *testing.T) {
	for name, first := range map[string]*chatv1.GenerateResponse{
		"with a piece": calltest.Delta(&chatv1.Delta{Text: "x", CachedTokens: new(uint32(5))}),
		"with the end": calltest.End(&llmv1.End{Usage: &llmv1.Usage{PromptTokens: 7, CachedTokens: new(uint32(5))}}),
	} {
		lines := sse.Encoder{Identity: true}
		write := parser.Parse(t, "{"+hi+`,"stream":true}`).Events()
		write(begin, &lines)
		if _, size := lines.Take(); size > 0 {
			t.Errorf("%s: the message has begun before its answer", name)
		}
		lines.Release()
		write(first, &lines)
		write(calltest.Delta(&chatv1.Delta{Text: "y", CachedTokens: new(uint32(5))}), &lines) // of another worker
		const want = `"usage":{"input_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":5,"output_tokens":0,"service_tier":"standard"}}`
		if got, _ := lines.Take(); strings.Count(string(got), "event: message_start") != 1 || !strings.Contains(string(got), want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestEveryVersionIsServed: an unknown version is answered as a known one, and named.
func TestEveryVersionIsServed(t *testing.T) {
	for version, c := range map[string]struct {
		left         string
		ok, strictly bool
	}{
		"": {ok: true, strictly: true}, "2023-06-01": {ok: true, strictly: true}, "2026-10-21": {ok: true, strictly: true},
		"2023-01-01": {left: "anthropic-version", ok: true}, "2031-02-28": {left: "anthropic-version", ok: true}, "newest": {}, "2026-13-01": {},
	} {
		in := &strict.Reading{}
		if err := anthropic.CheckVersion(version, in); (err == nil) != c.ok || in.Header() != c.left {
			t.Errorf("%q: %v, left out: %s", version, err, in.Header())
		}
		if err := anthropic.CheckVersion(version, &strict.Reading{Strict: true}); (err == nil) != c.strictly {
			t.Errorf("%q, strictly: %v", version, err)
		}
	}
}

// TestAThreadIsRefusedSoThatTheSDKSendsTheWholeConversation checks error.details, by which the SDK
// repeats a request without its thread.
func TestAThreadIsRefusedSoThatTheSDKSendsTheWholeConversation(t *testing.T) {
	_, err := anthropic.Parse([]byte(`{`+hi+`,"thread":{"type":"create"},"tools":[{"name":"get","input_schema":{"type":"object"}}]}`), nil)
	_, body := anthropic.Form.Refusal(http.StatusBadRequest, streamerr.As(err), "s")
	if !strings.Contains(string(body), `,"details":{"error_code":"thread_unsupported_request","unsupported":["thread"]}},"request_id":"s"`) || !json.Valid(body) {
		t.Errorf("%s", body)
	}
}

func TestModelsHaveAnthropicsForm(t *testing.T) {
	all := []*chatv1.Model{{Id: "a", Created: 1700000000, ContextLength: 4096}, {Id: "b"}}
	const a = `{"type":"model","id":"a","display_name":"a","created_at":"2023-11-14T22:13:20Z","max_input_tokens":4096,"max_tokens":4096}`
	const b = `{"type":"model","id":"b","display_name":"b","created_at":"1970-01-01T00:00:00Z","max_input_tokens":0,"max_tokens":0}`
	for got, want := range map[string]string{
		string(anthropic.Models(all)):   `{"data":[` + a + `,` + b + `],"has_more":false,"first_id":"a","last_id":"b"}`,
		string(anthropic.Models(nil)):   `{"data":[],"has_more":false,"first_id":null,"last_id":null}`,
		string(anthropic.Model(all[0])): a,
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
