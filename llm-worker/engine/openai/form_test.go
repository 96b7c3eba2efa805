package openai_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestFieldsThatTheServerRefusesAreLeftOut: a version of a server may refuse a field that others take, and
// then refuses every request with it.
func TestFieldsThatTheServerRefusesAreLeftOut(t *testing.T) {
	t.Parallel()
	f := newFake(t, counting, func(f *fake) { f.unknown = []string{"min_p", "logit_bias"} })
	e, health, log := watched(t, nil, f.URL)
	polltest.Receive(t, "the server is healthy", health)
	_, can := e.Info()
	for _, field := range []string{"top_k", "min_p", "logit_bias", "logprobs", "guide"} {
		if want := field != "min_p" && field != "logit_bias"; slices.Contains(can.GetSampling(), field) != want {
			t.Errorf("%s is honoured: %t", field, !want)
		}
	}
	notes := e.Upstream().Notes
	if len(notes) != 1 || !strings.Contains(notes[0], "refuses min_p, logit_bias") || !strings.Contains(notes[0], "is not supported") || strings.Count(log.String(), "refuses min_p") != 1 {
		t.Errorf("the operator reads %q, and in the log %s", notes, log)
	}
	req := request(3)
	req.Sampling.LogitBias = map[uint32]float32{7: 1}
	if r := read(t.Context(), e, req, nil); streamerr.As(r.err).Reason != streamerr.Invalid || streamerr.As(r.err).Param != "sampling.logit_bias" {
		t.Error(r.err)
	}
}

// TestGuidesThatTheServerIgnoresAreRefused: a vLLM with a reasoning parser answers with prose, and 200.
func TestGuidesThatTheServerIgnoresAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*fake)
		says   string
		guides bool
	}{
		"ignored":                 {func(f *fake) { f.void = true }, "--structured-outputs-config", false},
		"refused":                 {func(f *fake) { f.unknown = []string{"response_format"} }, "response_format is not supported", false},
		"ignored by llama.cpp":    {func(f *fake) { f.owner, f.texts, f.void = "llamacpp", true, true }, "does not enforce guides", false},
		"enforced by llama.cpp":   {func(f *fake) { f.owner, f.texts = "llamacpp", true }, "", true},
		"structural tags refused": {func(f *fake) { f.tagless = true }, "only guides that are one schema", true},
	} {
		f := newFake(t, counting, test.change)
		e := engineOn(t, f.URL)
		_, can := e.Info()
		notes := strings.Join(e.Upstream().Notes, "; ")
		if slices.Contains(can.GetSampling(), "guide") != test.guides || !strings.Contains(notes, test.says) || test.says == "" && notes != "" {
			t.Errorf("%s: %v, and the operator reads %q", name, can, notes)
		}
		if name == "structural tags refused" && can.GetGuides() != llmv1.GuideSupport_GUIDE_SUPPORT_SCHEMA {
			t.Error("guides with text around a schema are honoured:", can.GetGuides())
		}
	}
}

// TestServerThatCompilesAtItsFirstRequestIsWaitedFor: vLLM on a CPU took 36 s. A server that answers no
// probe meanwhile is not waited for.
func TestServerThatCompilesAtItsFirstRequestIsWaitedFor(t *testing.T) {
	for name, freezes := range map[string]bool{"compiles": false, "freezes": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				done := time.Now().Add(90 * time.Second)
				p := admit(t, func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(time.Until(done))
					answers(w, r)
				})
				defer p.end()
				wait(31 * time.Second)
				p.frozen.Store(freezes)
				wait(40 * time.Second)
				if given := strings.Contains(p.Problem(), "does not answer in time"); given != freezes || len(p.health) > 0 || p.tokens.Load() != 1 {
					t.Errorf("after 71 s and %d trials: %q", p.tokens.Load(), p.Problem())
				}
				p.frozen.Store(false)
				wait(2 * time.Minute)
				if len(p.health) != 1 || !<-p.health {
					t.Error("the server is ready, and", p.Problem())
				}
			})
		})
	}
}
