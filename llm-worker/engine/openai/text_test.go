package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/seeingtest"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// textOnly starts an engine without files of the model on a fake.
func textOnly(t *testing.T, answer script, change ...func(*fake)) (*openai.Engine, *fake) {
	t.Helper()
	f := newFake(t, answer, change...)
	return engineOf(t, &lexicon.Model{VocabSize: textonly.VocabSize}, f.URL), f
}

func owner(name string) func(*fake) { return func(f *fake) { f.owner = name } }

// passing returns a request as chat-service sends it to a worker that is text only.
func passing(conversation string) *workerv1.TokenRequest {
	return &workerv1.TokenRequest{Prompt: textonly.Words(conversation), Conversation: conversation}
}

const hello = `{"messages":[{"role":"user","content":"Hello"}],"max_tokens":64}`

// deltas returns events of a chat with these deltas, as vLLM and others send them.
func deltas(all ...string) []string {
	for i, delta := range all {
		all[i] = `{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":null}]}`
	}
	return all
}

func finished(reason string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{},"finish_reason":%q}]}`, reason)
}

func used(prompt, completion int) string {
	return fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, prompt, completion, prompt+completion)
}

// withUsage adds the usage so far to an event, as vLLM does on request.
func withUsage(event string, prompt, completion int) string {
	return strings.TrimSuffix(event, "}") + fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, prompt, completion)
}

// A contents has the content of an answer.
type contents struct {
	text, reasoning string
	calls           string // each as id(name arguments)
}

func content(t *testing.T, all []*workerv1.Written) (c contents) {
	t.Helper()
	var calls []string
	for _, w := range all {
		c.text, c.reasoning = c.text+w.GetText(), c.reasoning+w.GetReasoning()
		for _, call := range w.GetCalls() {
			if call.GetName() != "" {
				calls = append(calls, call.GetId()+"("+call.GetName()+" ")
			}
			if int(call.GetIndex()) != len(calls)-1 {
				t.Errorf("a piece belongs to call %d, and there are %d", call.GetIndex(), len(calls))
			}
			calls[call.GetIndex()] += call.GetArguments()
		}
	}
	for _, call := range calls {
		c.calls += call + ")"
	}
	return c
}

func TestServersAnswerAsText(t *testing.T) {
	const estimate = 16 // words of hello: four bytes each
	call := func(index int, id, name, arguments string) string {
		return fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}]}`, index, id, name, arguments)
	}
	piece := func(index int, arguments string) string {
		return fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%q}}]}`, index, arguments)
	}
	text := deltas(`{"role":"assistant","content":""}`, `{"content":"Hel"}`, `{"content":"lo, w"}`, `{"content":"orld"}`)
	for name, test := range map[string]struct {
		owner  string
		events []string
		want   contents
		finish llmv1.Finish
		usage  *llmv1.Usage
	}{
		"vLLM": {"vllm", []string{withUsage(text[0], 9, 0), withUsage(text[1], 9, 1), withUsage(text[2], 9, 4), withUsage(text[3], 9, 5), withUsage(finished("stop"), 9, 6),
			`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":2}}}`, "[DONE]"},
			contents{text: "Hello, world"}, llmv1.Finish_FINISH_STOP, &llmv1.Usage{PromptTokens: 9, CompletionTokens: 6, CachedTokens: proto.Uint32(8), ReasoningTokens: proto.Uint32(2)}},
		"vLLM with a reasoning parser": {"vllm", append(deltas(`{"role":"assistant","content":""}`, `{"reasoning":"Let me ","reasoning_content":"Let me "}`, `{"reasoning":"see","reasoning_content":"see"}`, `{"content":"Yes"}`), finished("length"), used(9, 5), "[DONE]"),
			contents{text: "Yes", reasoning: "Let me see"}, llmv1.Finish_FINISH_LENGTH, &llmv1.Usage{PromptTokens: 9, CompletionTokens: 5}},
		"vLLM with two tool calls": {"vllm", append(deltas(`{"role":"assistant","content":""}`, `{"content":"I look."}`, call(0, "a", "find", ""), piece(0, `{"q":`), piece(0, `"x"}`), call(1, "b", "open", `{"n":1}`)), finished("tool_calls"), used(9, 30), "[DONE]"),
			contents{text: "I look.", calls: `a(find {"q":"x"})b(open {"n":1})`}, llmv1.Finish_FINISH_TOOL_CALLS, &llmv1.Usage{PromptTokens: 9, CompletionTokens: 30}},
		"llama.cpp": {"llamacpp", append(deltas(`{"role":"assistant","content":null}`, `{"reasoning_content":"Hm"}`, `{"content":"Hi"}`), finished("stop"), used(9, 2), "[DONE]"),
			contents{text: "Hi", reasoning: "Hm"}, llmv1.Finish_FINISH_STOP, &llmv1.Usage{PromptTokens: 9, CompletionTokens: 2}},
		"Ollama, which gives all calls the number 0": {"library", append(deltas(call(0, "call_1", "find", `{"q":"x"}`), call(0, "call_2", "find", `{"q":"y"}`)), finished("stop"), used(9, 20), "[DONE]"),
			contents{calls: `call_1(find {"q":"x"})call_2(find {"q":"y"})`}, llmv1.Finish_FINISH_TOOL_CALLS, &llmv1.Usage{PromptTokens: 9, CompletionTokens: 20}},
		"a server that repeats the name of a call": {"somebody", append(deltas(call(0, "a", "find", `{"q":`), call(0, "a", "find", `"x"}`)), finished("tool_calls"), used(9, 20), "[DONE]"),
			contents{calls: `a(find {"q":"x"})`}, llmv1.Finish_FINISH_TOOL_CALLS, &llmv1.Usage{PromptTokens: 9, CompletionTokens: 20}},
		"a server whose arguments are an object": {"somebody", append(deltas(`{"tool_calls":[{"id":"a","function":{"name":"find","arguments":{"q":"x"}}}]}`), finished("function_call")),
			contents{calls: `a(find {"q":"x"})`}, llmv1.Finish_FINISH_TOOL_CALLS, &llmv1.Usage{PromptTokens: estimate, CompletionTokens: 1, Estimated: true}},
		"a server without usage, and without [DONE]": {"somebody", append(text[:4:4], finished("length")),
			contents{text: "Hello, world"}, llmv1.Finish_FINISH_LENGTH, &llmv1.Usage{PromptTokens: estimate, CompletionTokens: 3, Estimated: true}},
		"a server without a finish reason, at the limit": {"somebody", append(text[:4:4], used(9, 64), "[DONE]"),
			contents{text: "Hello, world"}, llmv1.Finish_FINISH_LENGTH, &llmv1.Usage{PromptTokens: 9, CompletionTokens: 64}},
		"a finish reason for calls without a call": {"somebody", append(text[:2:2], finished("tool_calls"), used(9, 2), "[DONE]"),
			contents{text: "Hel"}, llmv1.Finish_FINISH_STOP, &llmv1.Usage{PromptTokens: 9, CompletionTokens: 2}},
		"an empty answer":         {"vllm", []string{text[0], finished("stop"), used(9, 1), "[DONE]"}, contents{}, llmv1.Finish_FINISH_STOP, &llmv1.Usage{PromptTokens: 9, CompletionTokens: 1}},
		"a refusal":               {"somebody", append(deltas(`{"refusal":"I can't."}`), finished("content_filter"), used(9, 4), "[DONE]"), contents{text: "I can't."}, llmv1.Finish_FINISH_CONTENT_FILTER, &llmv1.Usage{PromptTokens: 9, CompletionTokens: 4}},
		"a counter that is crazy": {"somebody", []string{withUsage(text[1], 9, 1<<30), finished("stop"), used(9, 1<<30), "[DONE]"}, contents{text: "Hel"}, llmv1.Finish_FINISH_STOP, &llmv1.Usage{PromptTokens: estimate, CompletionTokens: 4096, Estimated: true}},
		"characters in two events": {"llamacpp", append(deltas(`{"content":"\ud83d"}`, `{"content":"\ude00 \u00e9<b>"}`, `{"content":"\ud83d"}`), finished("stop"), used(9, 3), "[DONE]"),
			contents{text: "😀 é<b>\uFFFD"}, llmv1.Finish_FINISH_STOP, &llmv1.Usage{PromptTokens: 9, CompletionTokens: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _ := textOnly(t, events(test.events...), owner(test.owner))
			r := read(t.Context(), e, passing(hello), nil)
			if r.err != nil || !reflect.DeepEqual(content(t, r.written), test.want) {
				t.Fatalf("%v\ngot  %+v\nwant %+v", r.err, content(t, r.written), test.want)
			}
			if r.end.GetFinish() != test.finish || !proto.Equal(r.end.GetUsage(), test.usage) {
				t.Errorf("got  %v\nwant %v %v", r.end, test.finish, test.usage)
			}
			if n := len(r.tokens) + int(r.end.GetTokens()); n != int(test.usage.GetCompletionTokens()) || int(r.record.GetTokensIn()) != n {
				t.Errorf("the items count %d tokens, the record %d, the usage %d", n, r.record.GetTokensIn(), test.usage.GetCompletionTokens())
			}
			if !r.started.GetEstimated() || r.started.GetPromptTokens() != estimate {
				t.Error(r.started)
			}
		})
	}
}

// TestContentsOfOneBurstStayInOrder: events that arrive together become one message only if the reader of that
// message takes their contents in order.
func TestContentsOfOneBurstStayInOrder(t *testing.T) {
	const call = `{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"find","arguments":"{}"}}]}`
	e, _ := textOnly(t, events(append(deltas(`{"reasoning":"First"}`, `{"content":"Look"}`, `{"content":": "}`, call, `{"content":"Then"}`, `{"reasoning":"Hm"}`, `{"content":" this"}`), finished("tool_calls"), used(9, 7), "[DONE]")...))
	r := read(t.Context(), e, passing(hello), nil)
	var order []string
	for _, w := range r.written {
		if w.GetReasoning() != "" {
			order = append(order, w.GetReasoning())
		}
		if w.GetText() != "" {
			order = append(order, w.GetText())
		}
		for _, c := range w.GetCalls() {
			order = append(order, c.GetName())
		}
	}
	if got := strings.Join(order, "|"); r.err != nil || strings.ReplaceAll(got, "Look|: ", "Look: ") != "First|Look: |find|Then|Hm| this" || len(r.tokens) != 7 {
		t.Errorf("%q, %d tokens, %v", got, len(r.tokens), r.err)
	}
}

// TestCountsComeWithTheirPieces: vLLM counts in every event, so that the counts of an answer that ends
// early are the server's.
func TestCountsComeWithTheirPieces(t *testing.T) {
	all := deltas(`{"content":"a"}`, `{"content":"b"}`)
	e, f := textOnly(t, events(withUsage(all[0], 9, 3), withUsage(all[1], 9, 4), finished("stop"), "[DONE]"))
	r := read(t.Context(), e, passing(hello), nil)
	if last := r.written[len(r.written)-1]; r.err != nil || len(r.tokens) != 4 || last.GetPromptTokens() != 9 {
		t.Error(r.err, r.tokens, r.written)
	}
	if options := (*f.asked.Load())["stream_options"]; !reflect.DeepEqual(options, map[string]any{"include_usage": true, "continuous_usage_stats": true}) {
		t.Error(options)
	}
}

func TestFailuresOfAServerHaveTheirEndingsInText(t *testing.T) {
	some := deltas(`{"content":"Hel"}`)[0]
	for name, test := range map[string]struct {
		answer script
		reason streamerr.Reason
		code   string
		items  int
		says   string
	}{
		"closes at once":                   {raw(""), streamerr.PeerLost, "", 0, "without an ending"},
		"closes in mid-answer":             {events(some), streamerr.PeerLost, "", 1, "without an ending"},
		"breaks the connection":            {thenCut(nil, some), streamerr.PeerLost, "", 1, "broke the connection"},
		"[DONE] without finish_reason":     {events(some, "[DONE]"), streamerr.PeerLost, "", 1, "finish_reason"},
		"aborted":                          {events(some, finished("abort"), "[DONE]"), streamerr.PeerLost, "", 1, `"abort"`},
		"unknown finish_reason":            {events(some, finished("tired"), "[DONE]"), streamerr.EngineFailed, "", 1, `"tired"`},
		"goes on behind its finish_reason": {events(some, finished("stop"), some), streamerr.EngineFailed, "", 1, "continues"},
		"error after 200":                  {events(some, `{"error":{"message":"CUDA out of memory","type":"InternalServerError","code":500}}`, "[DONE]"), streamerr.EngineFailed, "", 1, "CUDA out of memory"},
		"a dead engine":                    {events(some, `{"error":{"message":"EngineCore encountered an issue. See stack trace","type":"InternalServerError","code":500}}`), streamerr.PeerLost, "", 1, "EngineCore"},
		"a full queue after 200":           {events(`{"error":{"message":"The engine is currently busy and cannot accept new requests.","type":"Service Unavailable","code":503}}`), streamerr.Overloaded, "", 0, "busy"},
		"no JSON":                          {events(some, "hello"), streamerr.EngineFailed, "", 1, "an invalid answer"},
		"two choices":                      {events(`{"choices":[{"delta":{}},{"delta":{}}]}`), streamerr.EngineFailed, "", 0, "2 choices"},
		"arguments of no call":             {events(deltas(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`)...), streamerr.EngineFailed, "", 0, "no name"},
		"a context that is too short":      {status(400, `{"error":{"message":"too many tokens","code":"context_length_exceeded"}}`), streamerr.Invalid, streamerr.CodeContextLength, 0, "too many tokens"},
		"tools that it does not parse":     {status(400, `{"error":{"message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set","code":400}}`), streamerr.Invalid, "", 0, "--tool-call-parser"},
		"status 429":                       {status(429, `{"error":{"message":"later"}}`), streamerr.Overloaded, "", 0, "later"},
		"status 503":                       {status(503, `{"error":{"message":"Loading model"}}`), streamerr.Unavailable, "", 0, "Loading model"},
		"status 404":                       {status(404, `{"error":{"message":"no model m"}}`), streamerr.NotFound, "", 0, "no model m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _ := textOnly(t, test.answer)
			r := read(t.Context(), e, passing(hello), nil)
			got := streamerr.As(r.err)
			if r.err == nil || got.Reason != test.reason || got.Path.String() != "engine" || !strings.Contains(got.Message, test.says) || test.code != "" && got.Code != test.code {
				t.Errorf("%v (code %q)", r.err, got.Code)
			}
			if (len(r.written) > 0) != (test.items > 0) || r.end != nil {
				t.Error(r.written, r.end)
			}
		})
	}
}

// TestConversationsPassAsTheyAre compares the bodies that servers get.
func TestConversationsPassAsTheyAre(t *testing.T) {
	const tools = `[{"type":"function","function":{"name":"find","parameters":{"type":"object"}}}]`
	messages := `"messages":[{"role":"user","content":"Hello"}]`
	sampling := &llmv1.Sampling{Temperature: proto.Float32(0.5), TopK: proto.Uint32(0), Seed: proto.Uint64(7), Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"type":"array"}`}}}}
	for name, test := range map[string]struct {
		owner, conversation string
		sampling            *llmv1.Sampling
		images              []*llmv1.Image
		path, want          string // without what all bodies have
	}{
		"vLLM": {"vllm", `{` + messages + `,"max_tokens":8,"tools":` + tools + `,"tool_choice":"required","parallel_tool_calls":false,"chat_template_kwargs":{"enable_thinking":false,"reasoning_effort":"high"}}`, sampling, nil,
			"/v1/chat/completions", `{` + messages + `,"max_tokens":8,"tools":` + tools + `,"tool_choice":"required","parallel_tool_calls":false,"chat_template_kwargs":{"enable_thinking":false,"reasoning_effort":"high"},"reasoning_effort":"high",` +
				`"stream_options":{"include_usage":true,"continuous_usage_stats":true},"temperature":0.5,"top_k":-1,"seed":7,"response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":{"type":"array"}}}}`},
		"vLLM that continues": {"vllm", `{` + messages + `,"add_generation_prompt":false,"continue_final_message":true}`, nil, nil,
			"/v1/chat/completions", `{` + messages + `,"add_generation_prompt":false,"continue_final_message":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`},
		"llama.cpp that continues": {"llamacpp", `{` + messages + `,"add_generation_prompt":false,"continue_final_message":true}`, nil, nil,
			"/v1/chat/completions", `{` + messages + `,"stream_options":{"include_usage":true}}`},
		"Ollama that does not think": {"library", `{` + messages + `,"chat_template_kwargs":{"enable_thinking":false}}`, nil, nil,
			"/v1/chat/completions", `{` + messages + `,"chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"none","stream_options":{"include_usage":true}}`},
		"JSON": {"somebody", hello, &llmv1.Sampling{Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"type":"object"}`}}}}, nil,
			"/v1/chat/completions", `{` + messages + `,"max_tokens":64,"stream_options":{"include_usage":true},"response_format":{"type":"json_object"}}`},
		"an image": {"somebody", `{"messages":[{"role":"user","content":[{"type":"text","text":"What?"},{"type":"image"}]}]}`, nil, images()[:1],
			"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"What?"},{"type":"image_url","image_url":{"url":"` + seeingtest.DataURL + `"}}]}],"stream_options":{"include_usage":true}}`},
		"a prompt": {"somebody", `{"prompt":"Once","max_tokens":8}`, nil, nil, "/v1/completions", `{"prompt":"Once","max_tokens":8,"stream_options":{"include_usage":true}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, f := textOnly(t, events(finished("stop"), "[DONE]"), owner(test.owner))
			req := passing(test.conversation)
			req.Sampling, req.Images = test.sampling, test.images
			if r := read(t.Context(), e, req, nil); r.err != nil || f.path.Load() != test.path {
				t.Fatal(r.err, f.path.Load())
			}
			want := map[string]any{}
			if err := json.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			want["model"], want["stream"] = "served", true
			if got := *f.asked.Load(); !reflect.DeepEqual(got, want) {
				t.Errorf("\ngot  %v\nwant %v", got, want)
			}
		})
	}
}

func TestTextOnlyRefusesWhatNeedsTokens(t *testing.T) {
	e, f := textOnly(t, events(finished("stop"), "[DONE]"), owner("somebody"))
	can := e.Upstream().Capabilities
	if can.GetPrompt() != llmv1.Form_FORM_CONVERSATION || can.GetAnswer() != llmv1.Form_FORM_TEXT || e.Upstream().Resumes || e.Embeds() || e.Upstream().Context != textonly.NoLimit {
		t.Error(e.Upstream())
	}
	begun := passing(hello)
	begun.Generated = 1
	requests := map[string]*workerv1.TokenRequest{"conversation": request(4), "generated": begun}
	for field, s := range map[string]*llmv1.Sampling{
		"logprobs": {Logprobs: proto.Uint32(1)}, "logit_bias": {LogitBias: map[uint32]float32{1: 1}}, "stop_token_ids": {StopTokenIds: []uint32{1}}, "top_k": {TopK: proto.Uint32(1)},
		"guide": {Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Pattern: "a+"}}}},
	} {
		req := passing(hello)
		req.Sampling = s
		requests["sampling."+field] = req
	}
	opened := passing(`{"messages":[{"role":"assistant","content":"x"}],"add_generation_prompt":false,"continue_final_message":true}`)
	requests["continue_message"] = opened
	for param, req := range requests {
		if err := streamerr.As(read(t.Context(), e, req, nil).err); err.Reason != streamerr.Invalid || err.Param != param || f.asked.Load() != nil {
			t.Errorf("%s: %v", param, err)
		}
	}
}

// TestStopIsConfirmedByServersThatAbort: the connection is closed in any case, and only for servers of a
// known make that means that they stop.
func TestStopIsConfirmedByServersThatAbort(t *testing.T) {
	for name, confirmed := range map[string]bool{"vllm": true, "sglang": true, "llamacpp": false, "library": false, "somebody": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			e, _ := textOnly(t, func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
				say(w, deltas(`{"content":"a"}`)...)
				<-r.Context().Done()
				close(gone)
			}, owner(name))
			ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
			defer ctl.Release()
			var kept ledger.Ledger
			record := kept.Open("id", "worker", "")
			ctl.OnStop(func(cause error) { record.Stopping(streamerr.As(cause)) })
			err := stopAfterFirst(ledger.With(ctx, record), e, ctl.Stop)
			polltest.Receive(t, "the server sees that the client has left", gone)
			if got := record.Proto(); !errors.Is(err, streamerr.ClientGone) || (got.GetStopConfirmed() != nil) != confirmed {
				t.Errorf("%v, %v", err, got)
			}
			wantStop(t, record.Proto())
		})
	}
}

// stopAfterFirst reads a stream to its end, and stops it after its first tokens.
func stopAfterFirst(ctx context.Context, e *openai.Engine, stop func(error)) (last error) {
	for out, err := range e.Generate(ctx, passing(hello)) {
		if out.GetTokens() != nil {
			stop(streamerr.ClientGone)
		}
		last = err
	}
	return last
}

func wantStop(t *testing.T, r *streamv1.Record) {
	t.Helper()
	if r.GetStopHeard() == nil {
		t.Error("the record does not have the stop")
	}
}

// TestServerWithoutStreamOptionsIsAskedWithoutThem: the usage is then an estimate.
func TestServerWithoutStreamOptionsIsAskedWithoutThem(t *testing.T) {
	e, f := textOnly(t, events(append(deltas(`{"content":"a"}`), finished("stop"), "[DONE]")...), owner("somebody"), func(f *fake) { f.strict = "stream_options" })
	r := read(t.Context(), e, passing(hello), nil)
	if r.err != nil || (*f.asked.Load())["stream_options"] != nil || !r.end.GetUsage().GetEstimated() {
		t.Error(r.err, *f.asked.Load(), r.end)
	}
}
