package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A writer is a worker that is text only. It counts each piece as two tokens.
type writer struct {
	pieces []*workerv1.Written
	asked  []*workerv1.TokenRequest
	fail   error // after the pieces, instead of an End
}

func (w *writer) generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		w.asked = append(w.asked, req)
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{PromptTokens: uint32(len(req.GetPrompt())), Estimated: true}}}, nil) {
			return
		}
		for _, piece := range w.pieces {
			if cause := stream.Cause(ctx); cause != nil {
				yield(nil, cause)
				return
			}
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: make([]uint32, 2), Written: piece}}}, nil) {
				return
			}
		}
		if w.fail != nil {
			yield(nil, w.fail)
			return
		}
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_STOP, Usage: &llmv1.Usage{PromptTokens: 7, CompletionTokens: 100},
		}}}, nil)
	}
}

func say(texts ...string) (pieces []*workerv1.Written) {
	for _, text := range texts {
		pieces = append(pieces, &workerv1.Written{Text: text})
	}
	return pieces
}

func callPiece(index uint32, id, name, arguments string) *workerv1.Written {
	return &workerv1.Written{Calls: []*workerv1.CallPiece{{Index: index, Id: id, Name: name, Arguments: arguments}}}
}

// An answer is everything that an answer has told.
type textAnswer struct {
	deltas []string // the text of each
	text   string
	reason string
	calls  []string // id, name, arguments
	tokens int
	end    *llmv1.End
	err    error
}

func readText(t *testing.T, w *writer, req *chatv1.ChatRequest) (a textAnswer) {
	t.Helper()
	for out, err := range pipeline(chat.TextOnly("m", ""), w.generate)(t.Context(), req) {
		a.err = err
		d := out.GetDelta()
		if d.GetText() != "" {
			a.deltas = append(a.deltas, d.GetText())
		}
		a.text, a.reason, a.tokens = a.text+d.GetText(), a.reason+d.GetReasoning(), a.tokens+int(d.GetTokens())
		for _, c := range d.GetToolCalls() {
			if c.GetName() != "" {
				a.calls = append(a.calls, c.GetId(), c.GetName(), "")
			}
			a.calls[3*c.GetIndex()+2] += c.GetArguments()
		}
		if len(d.GetIds()) > 0 {
			t.Error("a delta has token ids")
		}
		a.end = out.GetEnd()
	}
	return a
}

func TestTextOnlyPassesPiecesOn(t *testing.T) {
	w := &writer{pieces: []*workerv1.Written{
		{Reasoning: "Hm. <tool_call>"}, {Reasoning: "\n"}, {Text: "\n<think> "}, {Text: "<tool_call>{}"}, callPiece(0, "a", "find", ""), callPiece(0, "", "", `{"q":`), callPiece(0, "", "", "1}"),
		callPiece(1, "b", "open", "{}"), {Text: " "},
	}}
	req := user("hello")
	req.TellIds = true // as api-service asks
	req.Tools = []*chatv1.Tool{{Name: "find"}, {Name: "open"}}
	a := readText(t, w, req)
	if a.err != nil || a.text != "\n<think> <tool_call>{} " || a.reason != "Hm. <tool_call>\n" || !slices.Equal(a.calls, []string{"a", "find", `{"q":1}`, "b", "open", "{}"}) {
		t.Errorf("%+v", a)
	}
	if a.tokens != 18 || !proto.Equal(a.end.GetUsage(), &llmv1.Usage{PromptTokens: 7, CompletionTokens: 100}) {
		t.Error(a.tokens, a.end)
	}
}

// TestTextOnlyFindsStopStrings: chat-service leaves the worker, so the server's counts are unknown, unless it
// has told them with a piece.
func TestTextOnlyFindsStopStrings(t *testing.T) {
	req := user("hello")
	req.Stop = []string{"END"}
	a := readText(t, &writer{pieces: say("one E", "N", "two EN", "D three")}, req)
	if !slices.Equal(a.deltas, []string{"one ", "ENtwo "}) || a.end.GetMatchedStop() != "END" || a.end.GetFinish() != llmv1.Finish_FINISH_STOP {
		t.Errorf("%+v", a)
	}
	if u := a.end.GetUsage(); !u.GetEstimated() || u.GetCompletionTokens() != 8 || u.GetPromptTokens() == 7 {
		t.Error(u)
	}
	counted := say("one EN", "D")
	counted[1].PromptTokens = proto.Uint32(7)
	if u := readText(t, &writer{pieces: counted}, req).end.GetUsage(); u.GetEstimated() || u.GetPromptTokens() != 7 || u.GetCompletionTokens() != 4 {
		t.Error(u)
	}
	// Stop strings end neither reasoning nor calls, and text before a call is not held back.
	w := &writer{pieces: []*workerv1.Written{{Reasoning: "END"}, {Text: "EN"}, callPiece(0, "a", "find", `"END"`), {Text: "D"}}}
	if a := readText(t, w, req); a.text != "END" || a.reason != "END" || a.calls[2] != `"END"` || a.end.GetMatchedStop() != "" {
		t.Errorf("%+v", a)
	}
	// Text that is held back when the stream fails is not lost.
	if a := readText(t, &writer{pieces: say("one E"), fail: streamerr.New(streamerr.PeerLost, "gone")}, req); a.text != "one E" || !errors.Is(a.err, streamerr.PeerLost) {
		t.Errorf("%+v", a)
	}
}

func TestTextOnlyEndsAfterOneCallOnRequest(t *testing.T) {
	req := user("hello")
	req.ParallelToolCalls, req.Tools = proto.Bool(false), []*chatv1.Tool{{Name: "find"}}
	a := readText(t, &writer{pieces: []*workerv1.Written{callPiece(0, "a", "find", "{"), callPiece(0, "", "", "}"), callPiece(1, "b", "find", "{}")}}, req)
	if !slices.Equal(a.calls, []string{"a", "find", "{}"}) || a.end.GetFinish() != llmv1.Finish_FINISH_TOOL_CALLS {
		t.Errorf("%+v", a)
	}
}

// TestTextOnlySendsTheConversation: as the client has sent it, in OpenAI's form, with what only the server
// can apply.
func TestTextOnlySendsTheConversation(t *testing.T) {
	req := &chatv1.ChatRequest{
		Messages: []*chatv1.Message{
			{Role: "system", Content: "Be <brief>."},
			{Role: "user", Content: "ab", Images: []*chatv1.PlacedImage{{Image: &llmv1.Image{Data: []byte("x"), MediaType: "image/png"}, Offset: 1}}},
			{Role: "assistant", Reasoning: "r", ToolCalls: []*chatv1.ToolCall{{Id: "a", Name: "find", Arguments: "{}"}}},
			{Role: "tool", ToolCallId: "a", Content: "found"},
		},
		Tools:      []*chatv1.Tool{{Name: "find", Description: "Finds.", Parameters: `{"type":"object"}`}},
		ToolChoice: &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED, Name: "find"}, ParallelToolCalls: proto.Bool(false),
		TemplateVariables: `{"enable_thinking":true}`, Sampling: &llmv1.Sampling{MaxTokens: proto.Uint32(1 << 30), Temperature: proto.Float32(0)}, Stop: []string{"x"},
	}
	w := &writer{pieces: say("y")}
	if a := readText(t, w, req); a.err != nil {
		t.Fatal(a.err)
	}
	const want = `{"messages":[{"role":"system","content":"Be <brief>."},{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]},
		{"role":"assistant","content":null,"reasoning":"r","reasoning_content":"r","tool_calls":[{"id":"a","type":"function","function":{"name":"find","arguments":"{}"}}]},
		{"role":"tool","content":"found","tool_call_id":"a"}],
		"tools":[{"type":"function","function":{"name":"find","description":"Finds.","parameters":{"type":"object"}}}],"chat_template_kwargs":{"enable_thinking":true},
		"max_tokens":1073741824,"tool_choice":{"type":"function","function":{"name":"find"}},"parallel_tool_calls":false}`
	asked := w.asked[0]
	if got := asked.GetConversation(); !reflect.DeepEqual(parsed(t, got), parsed(t, want)) {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
	if len(asked.GetImages()) != 1 || !slices.Equal(asked.GetPrompt(), textonly.Words(asked.GetConversation())) || !proto.Equal(asked.GetSampling(), &llmv1.Sampling{Temperature: proto.Float32(0)}) {
		t.Error(asked)
	}
	// A raw prompt, in two choices.
	w = &writer{pieces: say("y")}
	req = &chatv1.ChatRequest{Prompts: []*chatv1.Prompt{{Content: &chatv1.Prompt_Text{Text: "Once"}}}, Sampling: &llmv1.Sampling{MaxTokens: proto.Uint32(5)}, Echo: true}
	if a := readText(t, w, req); a.text != "Oncey" || w.asked[0].GetConversation() != `{"prompt":"Once","max_tokens":5}` {
		t.Errorf("%+v %v", a, w.asked)
	}
}

func parsed(t *testing.T, text string) (o any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestTextOnlyRefusesWhatNeedsFiles(t *testing.T) {
	ids := &chatv1.Prompt{Content: &chatv1.Prompt_Ids{Ids: &chatv1.TokenIDs{Ids: []uint32{1}}}}
	for param, change := range map[string]func(*chatv1.ChatRequest){
		"return_token_ids":    func(r *chatv1.ChatRequest) { r.TellIds, r.TellPrompts = true, true },
		"answered":            func(r *chatv1.ChatRequest) { r.TellIds, r.Answered = true, ids.GetIds() },
		"skip_special_tokens": func(r *chatv1.ChatRequest) { r.KeepSpecial = true },
		"separate_reasoning":  func(r *chatv1.ChatRequest) { r.SeparateReasoning = proto.Bool(false) },
		"prompt":              func(r *chatv1.ChatRequest) { r.Messages, r.Prompts = nil, []*chatv1.Prompt{ids} },
		"messages[0].role":    func(r *chatv1.ChatRequest) { r.Messages[0].Role = "robot" },
		"tool_choice": func(r *chatv1.ChatRequest) {
			r.ToolChoice = &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED}
		},
		"tools[0].name":      func(r *chatv1.ChatRequest) { r.Tools = []*chatv1.Tool{{Name: "a b"}} },
		"template_variables": func(r *chatv1.ChatRequest) { r.TemplateVariables = "[]" },
	} {
		req := user("hello")
		change(req)
		w := &writer{pieces: say("y")}
		if err := streamerr.As(readText(t, w, req).err); err.Reason != streamerr.Invalid || err.Param != param || len(w.asked) > 0 {
			t.Errorf("%s: %v", param, err)
		}
	}
	m := chat.TextOnly("m", "")
	embed := chat.Embed(m, stream.Push(func(context.Context, *workerv1.EmbedRequest) iter.Seq2[*workerv1.EmbedResponse, error] {
		panic("called")
	}))
	for _, err := range embed.Range(t.Context(), &chatv1.EmbeddingsRequest{Inputs: []*chatv1.Prompt{{Content: &chatv1.Prompt_Ids{Ids: &chatv1.TokenIDs{Ids: []uint32{1}}}}}}) {
		if !errors.Is(err, streamerr.Invalid) {
			t.Error(err)
		}
	}
	if err := m.Counts("model"); !errors.Is(err, streamerr.Invalid) {
		t.Error(err)
	}
}
