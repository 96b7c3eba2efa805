package besidetest

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// A Candidate is a token that an answer may have at a position.
type Candidate struct {
	ID      uint32
	Logprob float32
}

// Likeliest returns the n likeliest tokens at the position of a sampled token, and the sampled token.
// An even token is the likeliest; an odd one is not among the likeliest.
func Likeliest(sampled uint32, n int) (chosen Candidate, top []Candidate) {
	if chosen = (Candidate{sampled, -9}); sampled%2 == 0 {
		chosen.Logprob = -0.25
		top = append(top, chosen)
	}
	for i := uint32(0); len(top) < n; i++ {
		top = append(top, Candidate{10 + i, -1 - float32(i)})
	}
	return chosen, top[:n]
}

// logprobs tests that a request for log-probabilities gets those of its tokens, and exactly the
// likeliest tokens.
func (s *Subject) logprobs(t *testing.T) {
	e, server := s.Start(t, Count)
	if can := e.Upstream().Capabilities; !slices.Contains(can.GetSampling(), "logprobs") {
		t.Errorf("%s has no log-probabilities", can.GetUpstream())
	}
	for _, n := range []uint32{0, 1, 3} {
		req := Ask(12)
		req.Sampling.Logprobs = proto.Uint32(n)
		var tokens []*workerv1.Tokens
		for out, err := range e.Generate(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
			if out.GetTokens() != nil {
				tokens = append(tokens, out.GetTokens())
			}
		}
		if len(tokens) == 0 {
			t.Error("the answer has no tokens")
		}
		for _, item := range tokens {
			want := &workerv1.Tokens{Ids: item.GetIds(), CachedTokens: item.CachedTokens}
			for _, id := range item.GetIds() {
				chosen, top := Likeliest(id, int(n))
				want.Logprobs = append(want.Logprobs, chosen.Logprob)
				for _, c := range top {
					want.TopIds, want.TopLogprobs = append(want.TopIds, c.ID), append(want.TopLogprobs, c.Logprob)
				}
			}
			if !proto.Equal(item, want) {
				t.Errorf("%d top tokens: got %v, want %v", n, item, want)
			}
		}
	}
	if slices.Contains(e.Upstream().Capabilities.GetSampling(), "prompt_logprobs") {
		for _, n := range []uint32{0, 1, 3} {
			s.scores(t, e, n)
		}
	}
	before := len(server.Asked())
	req := Ask(1)
	req.Sampling.Logprobs, req.Sampling.Temperature = proto.Uint32(1), proto.Float32(0.5)
	sampled := e.Upstream().Capabilities.GetSampledLogprobs()
	if r := Read(t.Context(), e, req, nil); (r.Err != nil) != sampled || (len(server.Asked()) == before) != sampled {
		t.Errorf("the server computes log-probabilities after temperature: %v; %v", sampled, r.Err)
	}
}

// scores tests that a request for the log-probabilities of its prompt gets them with the first tokens, and
// one that continues an answer does not.
func (s *Subject) scores(t *testing.T, e Engine, n uint32) {
	req := Ask(3)
	req.Sampling.Logprobs, req.Sampling.PromptLogprobs = proto.Uint32(n), true
	want := &workerv1.PromptLogprobs{}
	for _, id := range req.GetPrompt()[1:] {
		chosen, top := Likeliest(id, int(n))
		want.Logprobs = append(want.Logprobs, chosen.Logprob)
		for _, c := range top {
			want.TopIds, want.TopLogprobs = append(want.TopIds, c.ID), append(want.TopLogprobs, c.Logprob)
		}
	}
	for _, generated := range []uint32{0, 1} {
		req.Generated = generated
		first := true
		for out, err := range e.Generate(t.Context(), req) {
			switch {
			case err != nil:
				t.Fatal(err)
			case out.GetTokens() == nil:
			case first && generated == 0 && !proto.Equal(out.GetPrompt(), want):
				t.Errorf("%d top tokens of the prompt: got %v, want %v", n, out.GetPrompt(), want)
			case (!first || generated > 0) && out.GetPrompt() != nil:
				t.Errorf("with %d tokens of the answer: %v", generated, out.GetPrompt())
			}
			first = first && out.GetTokens() == nil
		}
	}
}

// guides tests that guides that the server does not enforce are refused before anything is sent.
func (s *Subject) guides(t *testing.T) {
	e, server := s.Start(t, Count)
	ask := func(change func(*workerv1.TokenRequest)) error {
		req := Ask(7)
		req.Sampling.Guide = &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: "{}"}}}
		change(req)
		return Read(t.Context(), e, req, nil).Err
	}
	if err := ask(func(*workerv1.TokenRequest) {}); err != nil {
		t.Error("a schema alone:", err)
	}
	around := func(req *workerv1.TokenRequest) { req.Sampling.Guide.Forms[0].Before = "<call>" }
	before, enforces := len(server.Asked()), e.Upstream().Capabilities.GetGuides() == llmv1.GuideSupport_GUIDE_SUPPORT_FORMS
	if err := ask(around); (err == nil) != enforces || (len(server.Asked()) > before) != enforces {
		t.Errorf("text before a schema, which the server enforces: %v; %v", enforces, err)
	}
	before = len(server.Asked())
	for name, change := range map[string]func(*workerv1.TokenRequest){
		"no form":                                 func(req *workerv1.TokenRequest) { req.Sampling.Guide.Forms = nil },
		"an empty form":                           func(req *workerv1.TokenRequest) { req.Sampling.Guide.Forms[0].Schema = "" },
		"a pattern beside a schema":               func(req *workerv1.TokenRequest) { req.Sampling.Guide.Forms[0].Pattern = "a" },
		"a schema that is no JSON":                func(req *workerv1.TokenRequest) { req.Sampling.Guide.Forms[0].Schema = "{" },
		"a schema that is null":                   func(req *workerv1.TokenRequest) { req.Sampling.Guide.Forms[0].Schema = " null" },
		"an answer that another began":            func(req *workerv1.TokenRequest) { req.Generated = 2 },
		"one with text that another worker began": func(req *workerv1.TokenRequest) { around(req); req.Generated = 2 },
	} {
		if err := ask(change); err == nil || len(server.Asked()) > before {
			t.Errorf("%s is accepted", name)
		}
	}
}
