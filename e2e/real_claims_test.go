package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
)

// The claims that hold for any server. Those of one server are in its own file.
var (
	recognised = &claim{"recognised as; prompts and answers as", func(t *testing.T, s *realServer) string {
		info, err := s.whence().client.Info(t.Context(), &workerv1.InfoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		can := info.GetCapabilities()
		form := func(f fmt.Stringer) string {
			return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(f.String(), "FORM_")), "_", " ")
		}
		return fmt.Sprintf("`%s`; %s, %s", can.GetUpstream(), form(can.GetPrompt()), form(can.GetAnswer()))
	}}
	greedyAnswers = &claim{fmt.Sprintf("%d greedy answers are the server's own: token ids, text, ending, usage", len(askedOfBoth)), playGreedy}
	sampled       = &claim{"sampling fields give the server's own answers", playSampled}
	likelyTokens  = &claim{"log-probabilities are the server's own", playLikely}
	overflow      = &claim{"a prompt that does not fit is refused with `context_length_exceeded`", playOverflow}
	leaving       = &claim{"the server stops when the client leaves", playLeaving}
	killed        = &claim{"kill -9 of the server: the embedded engine goes on, with the unbroken answer", func(t *testing.T, s *realServer) string {
		return playMove(t, s, workerName(0), func() { s.killFamily() })
	}}
	frozen = &claim{"SIGSTOP of the server: the same", func(t *testing.T, s *realServer) string {
		defer s.thaw(t)
		return playMove(t, s, workerName(0), func() { s.signal(t, syscall.SIGSTOP) })
	}}
	terminated = &claim{"SIGTERM of the server: the same", func(t *testing.T, s *realServer) string {
		return playMove(t, s, workerName(0), func() { s.signal(t, syscall.SIGTERM) })
	}}
	takenOver = &claim{"kill -9 of an embedded engine: the server goes on, with the unbroken answer", func(t *testing.T, s *realServer) string {
		return playMove(t, s, workerName(1), nil)
	}}
)

// A continuation is an answer to a text completion.
type continuation struct {
	ids                        []uint32 // none if the server does not return them
	text, finish               string
	prompt, completion, cached int
	said                       bool // the answer says how many tokens were cached
	likely                     []float64
	top                        []map[string]float64
}

// readContinuation reads the body of a text completion, of Whence or of a server with OpenAI's API.
func readContinuation(t *testing.T, body []byte) (a continuation) {
	t.Helper()
	var c struct {
		Choices []struct {
			Text     string
			Finish   string   `json:"finish_reason"`
			TokenIDs []uint32 `json:"token_ids"`
			Logprobs *struct {
				Likely []float64            `json:"token_logprobs"`
				Top    []map[string]float64 `json:"top_logprobs"`
			}
		}
		Usage struct {
			usage
			Details *struct {
				Cached *int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal(body, &c); err != nil || len(c.Choices) != 1 {
		t.Fatalf("%s: %v", body, err)
	}
	one, u := c.Choices[0], c.Usage
	a = continuation{ids: one.TokenIDs, text: one.Text, finish: one.Finish, prompt: u.Prompt, completion: u.Completion}
	if a.said = u.Details != nil && u.Details.Cached != nil; a.said {
		a.cached = *u.Details.Cached
	}
	if one.Logprobs != nil {
		a.likely, a.top = one.Logprobs.Likely, one.Logprobs.Top
	}
	return a
}

// complete requests a text completion from Whence, which must succeed.
func (w *whence) complete(t *testing.T, a ask) continuation {
	t.Helper()
	r := w.postTo(t, "/v1/completions", with(a, "return_token_ids", true))
	if r.status != http.StatusOK {
		t.Fatalf("%v: %d %s", a, r.status, r.body)
	}
	return readContinuation(t, r.body)
}

// with returns a request with another field.
func with(a ask, field string, value any) ask {
	a = maps.Clone(a)
	a[field] = value
	return a
}

// ownOverHTTP returns a server's own answers over OpenAI's API.
func ownOverHTTP(addr string) func(t *testing.T, a ask) continuation {
	return func(t *testing.T, a ask) continuation {
		t.Helper()
		w := &whence{http: http.DefaultClient}
		r := replyTo(t)(w.do(t.Context(), http.MethodPost, "http://"+addr+"/v1/completions", with(a, "return_token_ids", true)))
		if r.status != http.StatusOK {
			t.Fatalf("the server answers %v with %d %s", a, r.status, r.body)
		}
		return readContinuation(t, r.body)
	}
}

// differs says in what Whence's answer is not the server's own; "" if it is.
func differs(got, want continuation) string {
	switch {
	case got.text != want.text:
		return fmt.Sprintf("text %q, and not %q", got.text, want.text)
	case len(want.ids) > 0 && !slices.Equal(got.ids, want.ids):
		return fmt.Sprintf("token ids %v, and not %v", got.ids, want.ids)
	case got.finish != want.finish:
		return fmt.Sprintf("finish_reason %s, and not %s", got.finish, want.finish)
	case got.prompt != want.prompt || got.completion != want.completion:
		return fmt.Sprintf("%d + %d tokens, and not %d + %d", got.prompt, got.completion, want.prompt, want.completion)
	case want.said && got.cached > want.cached: // the second request finds what the first has left
		return fmt.Sprintf("%d cached tokens, and not %d", got.cached, want.cached)
	}
	return ""
}

// rendered returns the token ids of a chat's prompt, as chat-service renders it.
func (w *whence) rendered(t *testing.T, prompt string) []uint32 {
	t.Helper()
	ids, _ := w.idsOf(t, "/v1/chat/completions", greedy(prompt, "max_tokens", 1))
	return ids
}

func playGreedy(t *testing.T, s *realServer) string {
	w := s.whence()
	for _, prompt := range askedOfBoth {
		a := texted(w.rendered(t, prompt), "max_tokens", 150)
		if wrong := differs(w.complete(t, a), s.own(t, a)); wrong != "" {
			t.Errorf("%q: %s", prompt, wrong)
		}
	}
	return exact
}

// samplings are requests that set the fields of Sampling.
var samplings = [][]any{
	{"seed", 7}, {"seed", 1<<40 + 7},
	{"seed", 7, "top_k", 5}, {"seed", 7, "top_k", 0}, {"seed", 7, "top_p", 0.5}, {"seed", 7, "min_p", 0.2},
	{"seed", 7, "repetition_penalty", 1.3}, {"seed", 7, "frequency_penalty", 0.7}, {"seed", 7, "presence_penalty", 0.7},
	{"temperature", 0, "logit_bias", map[string]any{"7": -100, "300": 5}},
	{"temperature", 0, "min_tokens", 40}, {"temperature", 0, "ignore_eos", true}, {"temperature", 0, "stop_token_ids", []int{268, 269, 270, 271, 272, 273}},
}

// playSampled compares answers under each field. A field that Whence refuses by its name is one that the
// server does not offer.
func playSampled(t *testing.T, s *realServer) string {
	w := s.whence()
	prompt := w.rendered(t, long)
	var refused, other []string
	for _, fields := range samplings {
		a := texted(prompt, append([]any{"max_tokens", 40, "temperature", 0.8}, fields...)...)
		name := fields[len(fields)-2].(string)
		r := w.postTo(t, "/v1/completions", with(a, "return_token_ids", true))
		if e := r.completion(t).Error; r.status == http.StatusBadRequest && e != nil && e.Param != nil && *e.Param == name {
			refused = append(refused, "`"+name+"`")
			continue
		}
		if r.status != http.StatusOK {
			t.Fatalf("%v: %d %s", fields, r.status, r.body)
		}
		if wrong := differs(readContinuation(t, r.body), s.own(t, a)); wrong != "" {
			if name == "seed" && fields[1] != 7 {
				name = "a seed above 2³¹"
			} else {
				name = "`" + name + "`"
			}
			t.Logf("%v: %s", fields, wrong)
			other = append(other, name)
		}
	}
	found := exact
	if len(other) > 0 {
		found = "differ: " + strings.Join(other, ", ")
	}
	if len(refused) > 0 {
		found += "; not offered: " + strings.Join(slices.Compact(refused), ", ")
	}
	return found
}

func playLikely(t *testing.T, s *realServer) string {
	w := s.whence()
	prompt := w.rendered(t, short)
	var refused []string
	partly := false
	for _, top := range []int{0, 5, 20} {
		a := texted(prompt, "max_tokens", 20, "logprobs", top, "temperature", 0.7, "seed", 3)
		if s.names {
			a["return_tokens_as_token_ids"] = true
		}
		r := w.postTo(t, "/v1/completions", with(a, "return_token_ids", true))
		if r.status != http.StatusOK {
			e := r.completion(t).Error
			if e == nil || r.status != http.StatusBadRequest {
				t.Fatalf("logprobs %d: %d %s", top, r.status, r.body)
			}
			t.Logf("logprobs %d: %s", top, e.Message)
			refused = append(refused, fmt.Sprint(top))
			continue
		}
		got, want := readContinuation(t, r.body), s.own(t, a)
		if wrong := differs(got, want); wrong != "" || len(got.likely) != len(want.likely) || len(want.likely) == 0 {
			t.Errorf("logprobs %d: %s, %d and %d log-probabilities", top, wrong, len(got.likely), len(want.likely))
			continue
		}
		for i := range want.likely {
			partly = partly || top > 0 && !likeTop(got.top[i], want.top[i])
			if math.Abs(got.likely[i]-want.likely[i]) > sameLogprob || top > 0 && !amongTop(got.top[i], want.top[i]) {
				t.Errorf("logprobs %d, token %d: %v %v, and not %v %v", top, i, got.likely[i], got.top, want.likely[i], want.top)
			}
		}
	}
	found := exact
	if partly {
		found = "exact; likely tokens without a text of their own are left out"
	}
	switch len(refused) {
	case 0:
		return found
	case 3:
		return "not offered"
	}
	return found + "; not offered: " + strings.Join(refused, ", ")
}

// sameLogprob is how far a log-probability may be from another one of the same token: servers round, and the
// second request finds its prompt cached.
const sameLogprob = 3e-3

// amongTop reports whether all known probabilities of a list are in another list.
func amongTop(got, want map[string]float64) bool {
	for _, p := range got {
		near := func(q float64) bool { return math.Abs(p-q) <= sameLogprob }
		if p > -9999 && !slices.ContainsFunc(slices.Collect(maps.Values(want)), near) {
			return false
		}
	}
	return len(got) > 0
}

// likeTop reports whether two lists of likely tokens have the same probabilities. Whence names tokens by
// their texts, of which several tokens may have one, so the names are not compared.
func likeTop(got, want map[string]float64) bool {
	a, b := slices.Sorted(maps.Values(got)), slices.Sorted(maps.Values(want))
	for i := 1; i <= min(len(a), len(b)); i++ {
		if math.Abs(a[len(a)-i]-b[len(b)-i]) > sameLogprob {
			return false
		}
	}
	return len(a) > 0 && len(b) > 0
}

func playOverflow(t *testing.T, s *realServer) string {
	w := s.whence()
	r := w.post(t, greedy(strings.Repeat("word ", 5000)))
	e := r.completion(t).Error
	if r.status != http.StatusBadRequest || e.code() != "context_length_exceeded" {
		t.Errorf("%d %s", r.status, r.body)
	}
	return exact
}

// playLeaving leaves a stream, and waits until the worker sees the server idle.
func playLeaving(t *testing.T, s *realServer) string {
	w := s.whence()
	for range 3 {
		l := w.open(t, s.long()).begun(t)
		l.close()
		w.clientGone(t, l.id)
		polltest.Eventually(t, "the worker has reported its story", func() bool { return w.why(t, l.id).State == "ended" })
		story := w.why(t, l.id)
		if last := story.Hops[len(story.Hops)-1]; story.Reason != "client_gone" || s.asks != (last.StopConfirmedMS == nil) {
			t.Errorf("%+v", story)
		}
		w.probedIdle(t)
	}
	if s.asks {
		return "it is asked, and does not tell"
	}
	return exact
}

// playMove strikes a worker's server in the middle of an answer, which the other worker completes; nil
// strikes the worker itself. The answer must have all tokens, and its first 1,200 bytes, some 300 tokens, must
// equal the unbroken answer. A few tokens later two words are equally likely, and llama.cpp and the embedded
// engine round differently.
func playMove(t *testing.T, s *realServer, from string, strike func()) string {
	w := s.pair(t)
	a := greedy(long, "max_tokens", 900, "ignore_eos", true) // a fast server would end a shorter one before the strike
	want := w.openOn(t, from, maps.Clone(a)).completed(t)
	l := w.openOn(t, from, maps.Clone(a))
	if strike == nil {
		strike = func() { w.processes[from].kill(t) }
	}
	strike()
	got := l.completed(t)
	told := w.why(t, l.id)
	if moved := moves(told); len(moved) == 0 || told.Tokens.Delivered != 900 || got[:min(1200, len(got))] != want[:min(1200, len(want))] {
		t.Errorf("after %+v the answer has %d tokens, and is %q, and not %q", moved, told.Tokens.Delivered, got, want)
	}
	return exact
}
