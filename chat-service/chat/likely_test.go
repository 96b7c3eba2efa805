package chat_test

import (
	"context"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// withLogprobs makes a parrot send log-probabilities: minus n for the n-th token, with two alternatives.
func withLogprobs(p *parrot) tokenEngine { return engineWithLogprobs(p.generate) }

func engineWithLogprobs(next tokenEngine) tokenEngine {
	return func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			n := -float32(req.GetGenerated())
			for out, err := range next(ctx, req) {
				if m := out.GetTokens(); m != nil {
					told := &workerv1.Tokens{Ids: m.GetIds()}
					for _, id := range m.GetIds() {
						n--
						told.Logprobs = append(told.Logprobs, n)
						told.TopIds = append(told.TopIds, id, 5)
						told.TopLogprobs = append(told.TopLogprobs, n, n-1)
					}
					out = &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: told}}
				}
				if !yield(out, err) {
					return
				}
			}
		}
	}
}

// readLikely is read, and also returns the tokens of the deltas.
func readLikely(t testing.TB, e engine, req *chatv1.ChatRequest) (text string, tokens []*chatv1.TokenLogprob, end *llmv1.End) {
	t.Helper()
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	for out, err := range e(ctx, req) {
		if err != nil {
			t.Fatal(err)
		}
		text += out.GetDelta().GetText()
		tokens = append(tokens, out.GetDelta().GetLogprobs()...)
		end = out.GetEnd()
	}
	return text, tokens, end
}

// TestLogprobsMatchTheDeliveredText reads answers of random tokens, with stop strings that mostly
// occur in them.
func TestLogprobsMatchTheDeliveredText(t *testing.T) {
	m := model(t)
	r := rand.New(rand.NewPCG(3, 9))
	stopped := 0
	for range 1000 {
		var ids []uint32
		for range 1 + r.IntN(4) {
			ids = append(ids, m.Tokenizer.Encode([]string{"The quick brown fox. ", "이제 그만 👩‍💻🚀", "a\n\nb"}[r.IntN(3)], false)...)
			for range r.IntN(3) {
				ids = append(ids, uint32(r.IntN(m.Tokenizer.VocabSize())))
			}
		}
		whole := m.Tokenizer.Decode(ids, true)
		req := user("x")
		req.Sampling, req.IncludeStop, req.KeepSpecial = &llmv1.Sampling{Logprobs: new(uint32(2))}, r.IntN(3) == 0, r.IntN(4) == 0
		for range r.IntN(3) {
			if stop := part(r, whole); stop != "" {
				req.Stop = append(req.Stop, stop)
			}
		}
		p := &parrot{ids: ids, step: func() int { return 1 + r.IntN(4) }}
		text, tokens, end := readLikely(t, pipeline(m, withLogprobs(p)), req)
		var spelled []byte
		for i, token := range tokens {
			if token.GetId() != ids[i] || token.GetLogprob() != -float32(i+1) || len(token.GetTop()) != 2 || token.GetTop()[1].GetId() != 5 || token.GetTop()[0].GetToken() != token.GetToken() {
				t.Fatalf("token %d of %v is %v", i, ids, token)
			}
			spelled = append(spelled, token.GetBytes()...)
		}
		if end.GetFinish() != llmv1.Finish_FINISH_STOP {
			want := m.Tokenizer.Decode(ids, !req.GetKeepSpecial())
			if text != want || len(tokens) != len(ids) || lossy(spelled) != lossy([]byte(want)) {
				t.Fatalf("%v\n text %q\ntoken %q (%d of %d)\n want %q", ids, text, spelled, len(tokens), len(ids), want)
			}
			continue
		}
		stopped++
		if req.GetIncludeStop() && !strings.HasSuffix(text, end.GetMatchedStop()) {
			t.Fatalf("%q does not end with %q", text, end.GetMatchedStop())
		}
		if strings.Contains(whole, "\uFFFD") {
			continue // bytes and text cannot be compared
		}
		// The tokens spell all of the delivered text, and the last token begins in it.
		var last int
		if n := len(tokens); n > 0 {
			last = len(tokens[n-1].GetBytes())
		}
		if !strings.HasPrefix(string(spelled), text) || last > 0 && len(spelled)-last >= len(text) {
			t.Fatalf("%v, stops %q\n text %q\ntoken %q", ids, req.GetStop(), text, spelled)
		}
	}
	if stopped < 150 {
		t.Errorf("%d answers were stopped: too few to tell", stopped)
	}
}

// lossy decodes bytes, with one U+FFFD for each run of invalid bytes.
func lossy(b []byte) string {
	s := strings.ToValidUTF8(string(b), "\uFFFD")
	for strings.Contains(s, "\uFFFD\uFFFD") {
		s = strings.ReplaceAll(s, "\uFFFD\uFFFD", "\uFFFD")
	}
	return s
}

func TestSpecialTokensHaveANameAndNoBytes(t *testing.T) {
	m := model(t)
	end, _ := m.Tokenizer.TokenID("<|im_end|>")
	half := m.Tokenizer.Encode("안", false)
	ids := append(append(m.Tokenizer.Encode("hi", false), end), half[0])
	req := user("x")
	req.Sampling = &llmv1.Sampling{Logprobs: new(uint32(0))}
	text, tokens, _ := readLikely(t, pipeline(m, withLogprobs(&parrot{ids: ids})), req)
	if len(tokens) != len(ids) {
		t.Fatal(tokens)
	}
	special := tokens[len(ids)-2]
	if special.GetToken() != "<|im_end|>" || special.GetBytes() != nil || !strings.HasPrefix(text, "hi") {
		t.Error(text, special)
	}
	if last := tokens[len(ids)-1]; len(half) > 1 && (last.GetToken() != "\uFFFD" || len(last.GetBytes()) == 0) {
		t.Error(last)
	}
	req.KeepSpecial = true
	if text, tokens, _ := readLikely(t, pipeline(m, withLogprobs(&parrot{ids: ids})), req); !strings.HasPrefix(text, "hi<|im_end|>") || string(tokens[len(ids)-2].GetBytes()) != "<|im_end|>" {
		t.Error(text, tokens)
	}
}

func TestLastTokensHaveLogprobsInAllPartsOfTheAnswer(t *testing.T) {
	m := modelWith(t, thinking, false, "<think>", "</think>")
	end, _ := m.Tokenizer.TokenID("<|im_end|>")
	thought := append(m.Tokenizer.Encode("hm</think>yes", false), end)
	called := append(m.Tokenizer.Encode(twoCalls, false), end)
	for name, c := range map[string]struct {
		model *chat.Model
		req   *chatv1.ChatRequest
		ids   []uint32
	}{"thoughts": {m, user("x"), thought}, "calls": {model(t), tooled("x"), called}} {
		c.req.Sampling = &llmv1.Sampling{Logprobs: new(uint32(0))}
		if _, tokens, _ := readLikely(t, pipeline(c.model, withLogprobs(&parrot{ids: c.ids})), c.req); len(tokens) != len(c.ids) {
			t.Errorf("%s: %d tokens are told of %d", name, len(tokens), len(c.ids))
		}
	}
}

func TestPromptsNeedNoTemplate(t *testing.T) {
	m := model(t)
	text := &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: "Once upon a time"}}
	ids := &chatv1.Prompt{Content: &chatv1.Prompt_Ids{Ids: &chatv1.TokenIDs{Ids: []uint32{7, 8, 9}}}}
	for name, c := range map[string]struct {
		prompt *chatv1.Prompt
		asked  []uint32
		echo   string
	}{
		"text": {text, m.Tokenizer.Encode("Once upon a time", true), "Once upon a time"},
		"NUL":  {&chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: "a\x00b"}}, m.Tokenizer.Encode("a\uFFFDb", true), "a\uFFFDb"},
		"ids":  {ids, []uint32{7, 8, 9}, m.Tokenizer.Decode([]uint32{7, 8, 9}, true)},
	} {
		for _, echo := range []bool{false, true} {
			p := &parrot{ids: m.Tokenizer.Encode(" time after", false)}
			req := &chatv1.ChatRequest{Model: "m", Prompts: []*chatv1.Prompt{c.prompt}, Echo: echo, Stop: []string{"time a"}}
			got, _, end, err := read(t, pipeline(m, p.generate), req)
			want := " "
			if echo {
				want = c.echo + want // the stop string applies to the answer, not to the prompt
			}
			if err != nil || got != want || end.GetMatchedStop() != "time a" {
				t.Errorf("%s: %q, %v, %v", name, got, end, err)
			}
			if asked := p.asked.Load().GetPrompt(); len(asked) != len(c.asked) || asked[0] != c.asked[0] {
				t.Errorf("%s: asked %v, want %v", name, asked, c.asked)
			}
		}
	}
}

func TestIncludedStopStringEndsTheAnswer(t *testing.T) {
	m := model(t)
	p := &parrot{ids: m.Tokenizer.Encode("The quick brown fox jumps", false), forever: true}
	req := user("x")
	req.Stop, req.IncludeStop = []string{"own f"}, true
	if text, _, end, err := read(t, pipeline(m, p.generate), req); err != nil || text != "The quick brown f" || end.GetMatchedStop() != "own f" {
		t.Errorf("%q, %v, %v", text, end, err)
	}
}

func TestBadPromptsAreRefusedByName(t *testing.T) {
	m := model(t)
	text := func(texts ...string) (all []*chatv1.Prompt) {
		for _, s := range texts {
			all = append(all, &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: s}})
		}
		return all
	}
	for name, c := range map[string]struct {
		req   *chatv1.ChatRequest
		param string
	}{
		"both":             {&chatv1.ChatRequest{Prompts: text("a"), Messages: user("x").GetMessages()}, "prompt"},
		"nothing":          {&chatv1.ChatRequest{Prompts: []*chatv1.Prompt{{}}}, "prompt"},
		"no ids":           {&chatv1.ChatRequest{Prompts: []*chatv1.Prompt{text("a")[0], {Content: &chatv1.Prompt_Ids{}}}}, "prompt[1]"},
		"bad UTF-8":        {&chatv1.ChatRequest{Prompts: text("a", "b\xff")}, "prompt[1]"},
		"too long":         {&chatv1.ChatRequest{Prompts: text(strings.Repeat("word ", 3000))}, "prompt"},
		"one is too long":  {&chatv1.ChatRequest{StreamId: "s", Prompts: text("a", strings.Repeat("word ", 3000))}, "prompt[1]"},
		"echo of messages": {&chatv1.ChatRequest{Echo: true, Messages: user("x").GetMessages()}, "echo"},
		"too many choices": {&chatv1.ChatRequest{N: 17, Prompts: text("a")}, "n"},
	} {
		if _, _, _, err := read(t, pipeline(m, (&parrot{ids: []uint32{1}}).generate), c.req); err == nil || streamerr.As(err).Reason != streamerr.Invalid || streamerr.As(err).Param != c.param {
			t.Errorf("%s: %v", name, err)
		}
	}
}
