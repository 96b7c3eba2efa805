package e2e

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

var (
	guides     = &claim{"guides: a schema, any JSON, a choice, an expression, a required call, a named call", playGuides}
	ownVectors = &claim{"vectors are the server's own", playVectors}
	ownScores  = &claim{"scores of documents are the server's own", playScores}
	crowded    = &claim{"50 requests at once are all answered", playCrowd}
	lostServer = &claim{"kill -9 of the only server: the stream ends with `peer_lost`", func(t *testing.T, s *realServer) string {
		all := append([]int{s.Pid()}, s.family()...) // looking for them takes longer than the answer of a fast server
		return playLost(t, s, func() {
			for _, pid := range all {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			}
		})
	}}
)

// long returns a request for an answer that does not end soon.
func (s *realServer) long() ask {
	if s.endless == nil {
		return greedy(long, "max_tokens", 900, "ignore_eos", true)
	}
	return greedy(long, append([]any{"max_tokens", 900}, s.endless...)...)
}

// playLost strikes the server in the middle of an answer, which no other worker can continue.
func playLost(t *testing.T, s *realServer, strike func()) string {
	w := s.whence()
	l := w.open(t, s.long()).begun(t)
	strike()
	if got := l.failed(t); got.Reason != "peer_lost" || got.Path[0] != "engine" {
		t.Errorf("%+v", got)
	}
	return exact
}

// A guidedForm is a request for a form, and what holds for an answer in this form.
type guidedForm struct {
	name  string
	more  ask
	holds func(text string, calls []calledTool) bool
}

type calledTool struct {
	Function struct{ Name, Arguments string }
}

// guidedForms are one of each kind of guide. Their answers are short, whatever the model prefers.
func guidedForms() []guidedForm {
	city := map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"enum": []string{"Paris", "Rome"}}}, "required": []string{"city"}, "additionalProperties": false}
	tools := func(names ...string) (all []any) {
		for _, name := range names {
			all = append(all, map[string]any{"type": "function", "function": map[string]any{"name": name, "parameters": city}})
		}
		return all
	}
	inParis := func(text string) bool {
		var v struct{ City string }
		return json.Unmarshal([]byte(text), &v) == nil && slices.Contains([]string{"Paris", "Rome"}, v.City)
	}
	calls := func(names ...string) func(string, []calledTool) bool {
		return func(_ string, calls []calledTool) bool {
			return len(calls) == 1 && slices.Contains(names, calls[0].Function.Name) && inParis(calls[0].Function.Arguments)
		}
	}
	return []guidedForm{
		{"a schema", ask{"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "a", "schema": city}}},
			func(text string, _ []calledTool) bool { return inParis(text) }},
		{"any JSON", ask{"response_format": map[string]any{"type": "json_object"}}, func(text string, _ []calledTool) bool {
			return json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimSpace(text), "{")
		}},
		{"a choice", ask{"guided_choice": []string{"one", "two"}}, func(text string, _ []calledTool) bool { return text == "one" || text == "two" }},
		{"an expression", ask{"guided_regex": "[a-c]{3}-[0-9]"}, func(text string, _ []calledTool) bool {
			return len(text) == 5 && strings.Trim(text[:3], "abc") == "" && text[3] == '-' && text[4] >= '0' && text[4] <= '9'
		}},
		{"a required call", ask{"tools": tools("weather", "time"), "tool_choice": "required"}, calls("weather", "time")},
		{"a named call", ask{"tools": tools("weather", "time"), "tool_choice": map[string]any{"type": "function", "function": map[string]any{"name": "time"}}}, calls("time")},
	}
}

// playGuides compares no answers: versions of one grammar may let a model choose others. An answer must have
// the form, or be refused.
func playGuides(t *testing.T, s *realServer) string {
	w := s.whence()
	var refused, open []string
	for _, form := range guidedForms() {
		a := greedy("What is the weather in Paris?", "max_tokens", 200)
		maps.Copy(a, form.more)
		r := w.post(t, a)
		if r.status == http.StatusBadRequest && strings.Contains(string(r.body), "no engine here honours all fields") {
			refused = append(refused, form.name)
			continue
		}
		var got struct {
			Choices []struct {
				Finish  string `json:"finish_reason"`
				Message struct {
					Content string
					Calls   []calledTool `json:"tool_calls"`
				}
			}
		}
		if err := json.Unmarshal(r.body, &got); err != nil || r.status != http.StatusOK || len(got.Choices) != 1 {
			t.Errorf("%s: %d %s", form.name, r.status, r.body)
			continue
		}
		one := got.Choices[0]
		switch {
		case form.holds(one.Message.Content, one.Message.Calls):
		case one.Finish == "length":
			open = append(open, form.name)
		default:
			t.Errorf("%s: %s", form.name, r.body)
		}
	}
	found := exact
	if len(open) > 0 {
		found = "may not end: " + strings.Join(open, ", ")
	}
	if len(refused) == len(guidedForms()) {
		return "not offered"
	}
	if len(refused) > 0 {
		found += "; not offered: " + strings.Join(refused, ", ")
	}
	return found
}

// playVectors compares vectors, which Whence scales to length 1.
func playVectors(t *testing.T, s *realServer) string {
	read := func(body []byte) (v []float64) {
		var got struct {
			Data []struct{ Embedding []float64 }
		}
		if err := json.Unmarshal(body, &got); err != nil || len(got.Data) != 1 {
			t.Fatalf("%.500s: %v", body, err)
		}
		v = got.Data[0].Embedding
		length := 0.0
		for _, x := range v {
			length += x * x
		}
		for i := range v {
			v[i] /= math.Sqrt(length)
		}
		return v
	}
	w := s.whence()
	for _, text := range []string{"The fox sleeps.", "A harbor at night"} {
		r := w.postTo(t, "/v1/embeddings", embedding(text))
		if r.status != http.StatusOK {
			t.Fatalf("%d %s", r.status, r.body)
		}
		own := replyTo(t)((&whence{http: http.DefaultClient}).do(t.Context(), http.MethodPost, "http://"+s.addr+"/v1/embeddings", embedding(text)))
		got, want := read(r.body), read(own.body)
		if len(got) != len(want) {
			t.Fatalf("%d and %d numbers", len(got), len(want))
		}
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-5 {
				t.Fatalf("%q: number %d is %v, and not %v", text, i, got[i], want[i])
			}
		}
	}
	return exact
}

// playScores compares the scores of a rerank with the server's own. llama.cpp takes the first number of any
// model's output as the score, so whence-tiny's scores mean nothing, but must be equal all the same.
func playScores(t *testing.T, s *realServer) string {
	type result struct {
		Index int
		Score float64 `json:"relevance_score"`
	}
	read := func(body []byte) (all []result) {
		var got struct{ Results []result }
		if err := json.Unmarshal(body, &got); err != nil || len(got.Results) != 3 {
			t.Fatalf("%.500s: %v", body, err)
		}
		return got.Results
	}
	body := ask{"model": model, "query": "Where does the fox sleep?", "documents": []string{"A harbor at night", "The fox sleeps in its den.", "Rain"}}
	r := s.whence().postTo(t, "/v1/rerank", body)
	own := replyTo(t)((&whence{http: http.DefaultClient}).do(t.Context(), http.MethodPost, "http://"+s.addr+"/v1/rerank", body))
	if r.status != http.StatusOK || own.status != http.StatusOK {
		t.Fatalf("%d %s; %d %s", r.status, r.body, own.status, own.body)
	}
	got, want := read(r.body), read(own.body)
	for i := range want {
		if got[i].Index != want[i].Index || math.Abs(got[i].Score-want[i].Score) > 1e-5 {
			t.Errorf("%v, and not %v", got, want)
		}
	}
	return exact
}

// playCrowd asks more than the server runs at a time.
func playCrowd(t *testing.T, s *realServer) string {
	w := s.whence()
	want := w.answer(t, greedy(short, "max_tokens", 20))
	answers := make([]reply, 50)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = w.post(t, greedy(short, "max_tokens", 20)) })
	}
	wg.Wait()
	for _, r := range answers {
		if c := r.completion(t); r.status != http.StatusOK || len(c.Choices) != 1 || c.Choices[0].Message.Content != want {
			t.Errorf("%d %s; want %q", r.status, r.body, want)
		}
	}
	w.probedIdle(t)
	return exact
}
