package chat_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/answer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A transcript is the answer as the caller has it: the part that is final, and the remainders.
type transcript struct {
	answer.Answer
	ids    []uint32
	likely []string // log-probabilities
	tokens uint32
	rest   string // of remainders
	end    *llmv1.End
	err    error
}

func listen(t *testing.T, e engine, req *chatv1.ChatRequest) *transcript {
	t.Helper()
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	h := &transcript{}
	for out, err := range e(ctx, req) {
		h.err = err
		switch d := out.GetDelta(); {
		case d.GetRemainder():
			h.rest += d.GetReasoning() + d.GetText()
		case d != nil:
			h.Add(d)
			h.ids = append(h.ids, d.GetIds()...)
			for _, p := range d.GetLogprobs() {
				h.likely = append(h.likely, fmt.Sprintf("%d %q %v %q of %d", p.GetId(), p.GetToken(), p.GetLogprob(), p.GetBytes(), len(p.GetTop())))
			}
			h.tokens += d.GetTokens()
		}
		if out.GetEnd() != nil {
			h.end = out.GetEnd()
		}
	}
	return h
}

// said returns the answer without the ids of its calls, which are random.
func (h *transcript) said() string {
	s := fmt.Sprintf("%q %q", h.Reasoning(), h.Text())
	for _, call := range h.Calls() {
		s += fmt.Sprintf(" %s(%q)", call.GetName(), call.GetArguments())
	}
	return s
}

// begins reports whether all of h is a prefix of the whole answer.
func (h *transcript) begins(whole *transcript) bool {
	if !strings.HasPrefix(whole.Reasoning(), h.Reasoning()) || !strings.HasPrefix(whole.Text(), h.Text()) || len(h.Calls()) > len(whole.Calls()) {
		return false
	}
	for i, call := range h.Calls() {
		if of := whole.Calls()[i]; of.GetName() != call.GetName() || !strings.HasPrefix(of.GetArguments(), call.GetArguments()) {
			return false
		}
	}
	return true
}

// continuation returns a worker that continues the answer of p.
func continuation(p *parrot) tokenEngine {
	return func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		n := int(req.GetGenerated())
		if !slices.Equal(req.GetPrompt()[len(req.GetPrompt())-n:], p.ids[:n]) {
			return stream.Fail[*workerv1.GenerateResponse](streamerr.InvalidParam("prompt", "%v is not the answer so far", req))
		}
		rest := &parrot{ids: p.ids[n:], step: p.step, finish: p.finish}
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for out, err := range rest.generate(ctx, req) {
				if started := out.GetStarted(); started != nil {
					started.PromptTokens -= uint32(n)
				}
				if u := out.GetEnd().GetUsage(); u != nil {
					u.PromptTokens, u.CompletionTokens = uint32(len(req.GetPrompt())-n), uint32(len(p.ids))
				}
				if !yield(out, err) {
					return
				}
			}
		}
	}
}

// TestMovedAnswerIsTheSame ends answers after every token, and lets another pipeline
// continue from their final part.
func TestMovedAnswerIsTheSame(t *testing.T) {
	plain, thinks := model(t), modelWith(t, thinking, false, "<think>", "</think>")
	r := rand.New(rand.NewPCG(5, 6))
	for name, c := range map[string]struct {
		m    *chat.Model
		says string
		req  *chatv1.ChatRequest
	}{
		"text":       {plain, "The quick brown 👩‍💻🚀 이제 그만 fox. ", user("x")},
		"no stop":    {plain, "one two three four", stopAt("two four", "three fivefold", "ones")},
		"stop":       {plain, "one two three four", stopAt("three f")},
		"calls":      {plain, twoCalls, tooled("x")},
		"first call": {plain, twoCalls, with(tooled("x"), func(r *chatv1.ChatRequest) { r.ParallelToolCalls = proto.Bool(false) })},
		"no call":    {plain, "Hm. <tool_call> is <tool_cal of what?", tooled("x")},
		"thoughts":   {thinks, "is it 🙂\n</think>\n\nyes </thin", user("x")},
	} {
		for _, likely := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, logprobs %t", name, likely), func(t *testing.T) { checkContinues(t, c.m, c.says, c.req, likely, r) })
		}
	}
}

func checkContinues(t *testing.T, m *chat.Model, says string, req *chatv1.ChatRequest, likely bool, r *rand.Rand) {
	t.Helper()
	tells := func(e tokenEngine) tokenEngine {
		if likely {
			return engineWithLogprobs(e)
		}
		return e
	}
	p := &parrot{ids: m.Tokenizer.Encode(says, false), finish: llmv1.Finish_FINISH_STOP}
	asks := func(answered []uint32) *chatv1.ChatRequest {
		return with(req, func(r *chatv1.ChatRequest) {
			r.TellIds = true
			if likely {
				r.Sampling = &llmv1.Sampling{Logprobs: proto.Uint32(1)}
			}
			if answered != nil {
				r.Answered = &chatv1.TokenIDs{Ids: answered}
			}
		})
	}
	whole := listen(t, pipeline(m, tells(p.generate)), asks(nil))
	if whole.err != nil || whole.end == nil || whole.rest != "" {
		t.Fatal(whole.err, whole.end, whole.rest)
	}
	for i := range 2 * (len(p.ids) + 1) {
		at := i / 2
		if p.step = nil; i%2 == 1 { // token boundaries change the counts but not the text
			p.step = func() int { return 1 + r.IntN(4) }
		}
		cut := &parrot{ids: p.ids[:at], step: p.step, fail: streamerr.New(streamerr.Draining, "it has to go")}
		begun := listen(t, pipeline(m, tells(cut.generate)), asks(nil))
		if begun.err == nil { // it had what it needed
			continue
		}
		if !slices.Equal(begun.ids, p.ids[:len(begun.ids)]) || int(begun.tokens) != len(begun.ids) {
			t.Fatalf("after %d: %d tokens, which are %v of %v", at, begun.tokens, begun.ids, p.ids)
		}
		if !begun.begins(whole) {
			t.Fatalf("after %d: %s is not the beginning of %s", at, begun.said(), whole.said())
		}
		on := listen(t, pipeline(m, tells(continuation(p))), asks(begun.ids))
		counts := proto.Equal(on.end, whole.end) && begun.tokens+on.tokens == whole.tokens
		if all := slices.Concat(begun.likely, on.likely); !slices.Equal(all[:min(len(all), len(whole.likely))], whole.likely) || len(all) != len(whole.likely) && p.step == nil || likely == (len(all) == 0) {
			t.Fatalf("after %d: log-probabilities\n %v, then\n %v; want\n %v", at, begun.likely, on.likely, whole.likely)
		}
		if on.err != nil || on.end == nil || on.said() != whole.said() || !counts && p.step == nil {
			t.Fatalf("after %d\n got %s, %v of %d + %d tokens, %v\nwant %s, %v of %d tokens", at,
				on.said(), on.end, begun.tokens, on.tokens, on.err, whole.said(), whole.end, whole.tokens)
		}
	}
}

func with(req *chatv1.ChatRequest, change func(*chatv1.ChatRequest)) *chatv1.ChatRequest {
	req = proto.CloneOf(req)
	change(req)
	return req
}

func stopAt(stops ...string) *chatv1.ChatRequest {
	return with(user("x"), func(r *chatv1.ChatRequest) { r.Stop = stops })
}

func TestCompleteAnswerOnlyGetsItsEnd(t *testing.T) {
	m := model(t)
	ids := m.Tokenizer.Encode("one two three", false)
	req := with(user("x"), func(r *chatv1.ChatRequest) {
		r.TellIds, r.Answered = true, &chatv1.TokenIDs{Ids: ids}
		r.Sampling = &llmv1.Sampling{MaxTokens: proto.Uint32(uint32(len(ids)))}
	})
	nobody := &parrot{}
	h := listen(t, pipeline(m, nobody.generate), req)
	if h.err != nil || h.Text() != "one two three" || h.tokens != 0 || h.end.GetFinish() != llmv1.Finish_FINISH_LENGTH ||
		int(h.end.GetUsage().GetCompletionTokens()) != len(ids) || h.end.GetUsage().GetPromptTokens() == 0 || nobody.asked.Load() != nil {
		t.Errorf("%v %q %v", h.err, h.Text(), h.end)
	}
}

func TestLongAnswerIsReplayedInPieces(t *testing.T) {
	m := model(t)
	ids := m.Tokenizer.Encode(strings.Repeat("one two three ", 200), false)
	req := with(stopAt("never said"), func(r *chatv1.ChatRequest) {
		r.TellIds, r.Answered = true, &chatv1.TokenIDs{Ids: ids}
	})
	p := &parrot{ids: ids, finish: llmv1.Finish_FINISH_STOP}
	deltas, told := 0, []uint32(nil)
	for out, err := range pipeline(m, continuation(p))(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		if n := len(out.GetDelta().GetIds()); n > 0 {
			deltas++
			told = append(told, out.GetDelta().GetIds()...)
			if n > 300 {
				t.Errorf("a delta of %d tokens", n)
			}
		}
	}
	if deltas < 2 || !slices.Equal(told, ids) {
		t.Errorf("%d tokens in %d deltas, want %d tokens", len(told), deltas, len(ids))
	}
}

func TestInvalidAnsweredFieldsAreRefusedByName(t *testing.T) {
	m := model(t)
	for _, c := range []struct {
		param  string
		change func(*chatv1.ChatRequest)
	}{
		{"answered", func(r *chatv1.ChatRequest) { r.Answered.Ids = []uint32{1 << 30} }},
		{"answered", func(r *chatv1.ChatRequest) { r.TellIds = false }},
		{"answered", func(r *chatv1.ChatRequest) { r.N = 2 }},
		{"answered_choices", func(r *chatv1.ChatRequest) { r.AnsweredChoices = []*chatv1.AnsweredChoice{{}} }},
		{"answered_choices", func(r *chatv1.ChatRequest) {
			r.N, r.Answered, r.AnsweredChoices = 3, nil, []*chatv1.AnsweredChoice{{}, {}}
		}},
		{"answered_choices[1]", func(r *chatv1.ChatRequest) {
			r.N, r.Answered, r.AnsweredChoices = 2, nil, []*chatv1.AnsweredChoice{{}, {Ids: []uint32{1 << 30}}}
		}},
	} {
		p := &parrot{}
		req := with(user("x"), func(r *chatv1.ChatRequest) { r.TellIds, r.Answered = true, &chatv1.TokenIDs{Ids: []uint32{1}} })
		h := listen(t, pipeline(m, p.generate), with(req, c.change))
		if e := streamerr.As(h.err); h.err == nil || e.Reason != streamerr.Invalid || e.Param != c.param {
			t.Errorf("%s: %v", c.param, h.err)
		}
	}
}

// TestChoicesContinueOnAnotherChatService lets another pipeline continue two choices, one of which has ended.
func TestChoicesContinueOnAnotherChatService(t *testing.T) {
	m := model(t)
	p := &parrot{ids: m.Tokenizer.Encode("one two three", false), finish: llmv1.Finish_FINISH_STOP}
	req := with(user("x"), func(r *chatv1.ChatRequest) {
		end := &chatv1.ChoiceEnd{Finish: llmv1.Finish_FINISH_LENGTH, Usage: &llmv1.Usage{PromptTokens: 9, CompletionTokens: 4}}
		r.N, r.TellIds = 3, true
		r.AnsweredChoices = []*chatv1.AnsweredChoice{{Ids: p.ids[:2], End: end}, {Ids: p.ids[:2]}, {}}
	})
	var texts [3]answer.Answer
	var tokens [3]uint32
	var ends [3]*chatv1.ChoiceEnd
	var usage *llmv1.Usage
	for out, err := range pipeline(m, continuation(p))(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		if d := out.GetDelta(); d != nil {
			texts[d.GetChoice()].Add(d)
			tokens[d.GetChoice()] += d.GetTokens()
		}
		if end := out.GetChoiceEnd(); end != nil {
			ends[end.GetChoice()] = end
		}
		usage = out.GetEnd().GetUsage()
	}
	whole := uint32(len(p.ids))
	if texts[0].Text() != "" || texts[1].Text() != "one two three" || texts[2].Text() != "one two three" || tokens != [3]uint32{0, whole - 2, whole} {
		t.Errorf("%q %q %q of %v tokens", texts[0].Text(), texts[1].Text(), texts[2].Text(), tokens)
	}
	if ends[0].GetFinish() != llmv1.Finish_FINISH_LENGTH || ends[0].GetTokens() != 0 || ends[1].GetFinish() != llmv1.Finish_FINISH_STOP || ends[2] == nil {
		t.Error(ends)
	}
	if usage.GetCompletionTokens() != 4+2*whole {
		t.Error(usage)
	}
}

func TestStartedTellsThePromptsOnRequest(t *testing.T) {
	m := model(t)
	p := &parrot{ids: m.Tokenizer.Encode("one", false), finish: llmv1.Finish_FINISH_STOP}
	text := func(s string) *chatv1.Prompt { return &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: s}} }
	for _, req := range []*chatv1.ChatRequest{
		{Prompts: []*chatv1.Prompt{text("a story")}},
		{Prompts: []*chatv1.Prompt{text("a story"), text("two stories")}, N: 2},
	} {
		for _, tell := range []bool{false, true} {
			req.TellPrompts = tell
			var got []*llmv1.PromptTokens
			for out, err := range pipeline(m, p.generate)(t.Context(), req) {
				if err != nil {
					t.Fatal(err)
				}
				if started := out.GetStarted(); started != nil {
					got = started.GetPrompts()
				}
			}
			if !tell && got != nil || tell && len(got) != len(req.GetPrompts()) {
				t.Errorf("%v: %v", req, got)
			}
			for i, prompt := range got {
				if want := m.Tokenizer.Encode(req.GetPrompts()[i].GetText(), true); !slices.Equal(prompt.GetIds(), want) {
					t.Errorf("prompt %d is %v, not %v", i, prompt.GetIds(), want)
				}
			}
		}
	}
}

// TestAnswerWithoutAStartIsAnError: the reader of an answer counts on Started before anything else,
// and on one of it.
func TestAnswerWithoutAStartIsAnError(t *testing.T) {
	m := model(t)
	started := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{Model: m.Name}}}
	tokens := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: m.Tokenizer.Encode("hello", false)}}}
	end := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}
	for name, c := range map[string]struct {
		sent   []*workerv1.GenerateResponse
		starts int
		fails  bool
	}{
		"tokens first": {sent: []*workerv1.GenerateResponse{tokens, started, end}, fails: true},
		"only an end":  {sent: []*workerv1.GenerateResponse{end}, fails: true},
		"two starts":   {sent: []*workerv1.GenerateResponse{started, tokens, started, end}, starts: 1},
	} {
		starts, last := 0, error(nil)
		worker := func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
			return func(yield func(*workerv1.GenerateResponse, error) bool) {
				for _, out := range c.sent {
					if !yield(proto.CloneOf(out), nil) {
						return
					}
				}
			}
		}
		for out, err := range pipeline(m, worker)(t.Context(), &chatv1.ChatRequest{Model: m.Name, Messages: []*chatv1.Message{{Role: "user", Content: "hello"}}}) {
			if out.GetStarted() != nil {
				starts++
			}
			last = err
		}
		if starts != c.starts || c.fails != (last != nil) {
			t.Errorf("%s: %d starts, %v", name, starts, last)
		}
	}
}
