package chat_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// scored returns p with log-probabilities for the tokens of prompts and answers.
func scored(p *parrot) tokenEngine {
	next := withLogprobs(p)
	return func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			told := !req.GetSampling().GetPromptLogprobs() || req.GetGenerated() > 0
			for out, err := range next(ctx, req) {
				if !told && (out.GetTokens() != nil || out.GetEnd() != nil) {
					told, out.Prompt = true, &workerv1.PromptLogprobs{}
					for i := range req.GetPrompt()[1:] {
						out.Prompt.Logprobs = append(out.Prompt.Logprobs, -float32(i))
						out.Prompt.TopIds, out.Prompt.TopLogprobs = append(out.Prompt.TopIds, 5), append(out.Prompt.TopLogprobs, -0.5)
					}
				}
				if !yield(out, err) {
					return
				}
			}
		}
	}
}

// TestEchoHasLogprobs: a prompt with the log-probabilities of its tokens stands before the answer, also
// before none, as lm-eval asks for it.
func TestEchoHasLogprobs(t *testing.T) {
	m := model(t)
	long := strings.Repeat("The quick brown fox. ", 60)
	ids := m.Tokenizer.Encode(long, true)
	for name, c := range map[string]struct {
		prompt *chatv1.Prompt
		most   uint32
		said   string
	}{
		"text":        {&chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: long}}, 3, " and so on"},
		"ids":         {&chatv1.Prompt{Content: &chatv1.Prompt_Ids{Ids: &chatv1.TokenIDs{Ids: ids}}}, 3, " and so on"},
		"prompt only": {&chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: long}}, 0, " and so on"},
		"no answer":   {&chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: long}}, 3, ""},
	} {
		p := &parrot{ids: m.Tokenizer.Encode(c.said, false)}
		req := &chatv1.ChatRequest{Model: "m", Prompts: []*chatv1.Prompt{c.prompt}, Echo: true, Sampling: &llmv1.Sampling{Logprobs: new(uint32(1)), MaxTokens: proto.Uint32(c.most)}}
		text, tokens, end := readLikely(t, pipeline(m, scored(p)), req)
		answered := len(p.ids)
		if c.most == 0 {
			answered = 0
		}
		if want := long + m.Tokenizer.Decode(p.ids[:answered], true); text != want {
			t.Errorf("%s: text of %d bytes, want %d: …%q", name, len(text), len(want), text[max(0, len(text)-40):])
		}
		if len(tokens) != len(ids)+answered || !tokens[0].GetUnscored() || slices.ContainsFunc(tokens[1:], (*chatv1.TokenLogprob).GetUnscored) {
			t.Fatalf("%s: %d tokens for %d", name, len(tokens), len(ids)+answered)
		}
		for i, token := range tokens[1:len(ids)] {
			if token.GetId() != ids[i+1] || token.GetLogprob() != -float32(i) || len(token.GetTop()) != 1 {
				t.Fatalf("%s: token %d is %v", name, i+1, token)
			}
		}
		if u := end.GetUsage(); u.GetPromptTokens() != uint32(len(ids)) || c.most == 0 && (u.GetCompletionTokens() != 0 || end.GetFinish() != llmv1.Finish_FINISH_LENGTH) {
			t.Errorf("%s: %v", name, end)
		}
		if asked := p.asked.Load().GetSampling(); !asked.GetPromptLogprobs() || asked.GetMaxTokens() == 0 {
			t.Errorf("%s: the worker was asked for %v", name, asked)
		}
	}
}

// TestEchoWithoutAnAnswerNeedsNoWorker: the prompt alone, without log-probabilities, is known here.
func TestEchoWithoutAnAnswerNeedsNoWorker(t *testing.T) {
	m, p := model(t), &parrot{ids: []uint32{7}}
	req := &chatv1.ChatRequest{Model: "m", Prompts: []*chatv1.Prompt{{Content: &chatv1.Prompt_Text{Text: "Once"}}}, Echo: true, Sampling: &llmv1.Sampling{MaxTokens: new(uint32(0))}}
	if text, _, end, err := read(t, pipeline(m, p.generate), req); err != nil || text != "Once" || end.GetUsage().GetCompletionTokens() != 0 || p.asked.Load() != nil {
		t.Errorf("%q, %v, %v", text, end, err)
	}
}
