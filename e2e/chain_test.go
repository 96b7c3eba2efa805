package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A whenceChain is a Whence whose worker's engine is another Whence, through OpenAI's API.
type whenceChain struct {
	upper, lower *whence
}

// runChain starts both. pace is that of the last engine.
func runChain(t *testing.T, pace string) whenceChain {
	t.Helper()
	lower := run(t, separate, flags{worker: []string{"--pace", pace}})
	worker := service(t, llmWorker, "127.0.0.1:0", onServer("openai", "http://"+lower.api))
	upper := above(t, "", "--worker", worker.listening(t))
	upper.processes[llmWorker], upper.worker = worker, worker.listening(t)
	upper.connected(t)
	return whenceChain{upper, lower}
}

// An idAnswer is the part of an answer that return_token_ids adds.
type idAnswer struct {
	Choices []struct {
		PromptTokenIDs []uint32 `json:"prompt_token_ids"`
		TokenIDs       []uint32 `json:"token_ids"`
	}
	PromptTokenIDs []uint32 `json:"prompt_token_ids"`
}

func (w *whence) idsOf(t *testing.T, path string, a ask) (prompt, answer []uint32) {
	t.Helper()
	a["return_token_ids"] = true
	r := w.postTo(t, path, a)
	var got idAnswer
	if err := json.Unmarshal(r.body, &got); err != nil || r.status != http.StatusOK || len(got.Choices) != 1 {
		t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
	return slices.Concat(got.PromptTokenIDs, got.Choices[0].PromptTokenIDs), got.Choices[0].TokenIDs
}

func TestChainAnswersWithTheTokensOfItsLastEngine(t *testing.T) {
	t.Parallel()
	c := runChain(t, "2000")
	for _, prompt := range []string{short, long, "Send me emojis. 🚀🌙", "こんにちは。"} {
		for path, a := range map[string]ask{
			"/v1/chat/completions": greedy(prompt, "max_tokens", 60),
			"/v1/completions":      texted(prompt, "max_tokens", 60, "temperature", 0, "ignore_eos", true),
		} {
			wantPrompt, want := c.lower.idsOf(t, path, a)
			gotPrompt, got := c.upper.idsOf(t, path, a)
			if len(want) == 0 || len(wantPrompt) == 0 || !slices.Equal(got, want) || !slices.Equal(gotPrompt, wantPrompt) {
				t.Errorf("%s, %q: the chain answers %v to %v, its engine %v to %v", path, prompt, got, gotPrompt, want, wantPrompt)
			}
		}
	}
	seeded := greedy(long, "max_tokens", 40, "temperature", 0.8, "seed", 5, "top_k", 20, "min_tokens", 30)
	if got, want := c.upper.answer(t, seeded), c.lower.answer(t, seeded); got != want {
		t.Errorf("with sampling, the chain answers %q, its engine %q", got, want)
	}
	c.upper.idle(t)
	c.lower.idle(t)
}

func TestClientThatLeavesAChainStopsItsLastEngine(t *testing.T) {
	t.Parallel()
	c := runChain(t, "40")
	l := c.upper.open(t, greedy(long)).begun(t)
	l.close()
	c.upper.clientGone(t, l.id)
	c.lower.clientGone(t, l.id)
	for name, w := range map[string]*whence{"upper": c.upper, "lower": c.lower} {
		story := w.why(t, l.id)
		if last := story.Hops[len(story.Hops)-1]; len(story.Hops) != 3 || last.StopConfirmedMS == nil {
			t.Errorf("%s: %+v", name, story)
		}
	}
	c.lower.idle(t)
	c.upper.idle(t)
}

func TestEndingInAChainKeepsItsReasonAndItsPath(t *testing.T) {
	t.Parallel()
	c := runChain(t, "40")
	l := c.upper.open(t, greedy(long)).begun(t)
	c.lower.cancel(t, c.lower.api, l.id)
	got := l.failed(t)
	want := c.lower.ended(t, apiService, l.id)
	path := want.Path + " > engine > llm-worker/0 > chat-service > api-service"
	if got.Reason != want.Reason || strings.Join(got.Path, " > ") != path {
		t.Errorf("%s by %v, want %s by %s", got.Reason, got.Path, want.Reason, path)
	}
	for _, hop := range hops {
		if up := c.upper.ended(t, hop, l.id); up.Reason != want.Reason {
			t.Errorf("%s logged %s, not %s", hop, up.Reason, want.Reason)
		}
	}
	// A refusal of the last chat-service, too.
	r := c.upper.post(t, greedy(short, "max_tokens", 5, "logit_bias", map[string]any{"4000000": 1}))
	if e := r.completion(t).Error; r.status != http.StatusBadRequest || e == nil || e.Reason != "invalid" {
		t.Errorf("%d %s", r.status, r.body)
	}
	c.lower.idle(t)
	c.upper.idle(t)
}
