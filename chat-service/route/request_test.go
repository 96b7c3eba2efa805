package route

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// makeOf sets what each worker can do: "exact" continues answers exactly, "gpu" resumes them, and
// "text" does neither. The words that follow are the fields that it honours.
func makeOf(p *Pool, is ...string) {
	for i, w := range p.Members() {
		now := proto.CloneOf(w.Info())
		kind, fields, _ := strings.Cut(is[i], " ")
		now.Continues, now.Resumes = kind == "exact", kind == "gpu"
		now.Capabilities = &llmv1.Capabilities{Sampling: append(strings.Fields(fields), "max_tokens", "temperature"), Upstream: kind}
		w.Say(now)
	}
}

func TestRequestGoesToAWorkerThatHonoursIt(t *testing.T) {
	for name, test := range map[string]struct {
		sampling *llmv1.Sampling
		asked    []int // the final number of calls of each worker
		says     string
	}{
		"anybody does":       {&llmv1.Sampling{Temperature: proto.Float32(0)}, []int{1, 0, 0}, ""},
		"one does":           {&llmv1.Sampling{TopK: proto.Uint32(3)}, []int{0, 1, 0}, ""},
		"one does both":      {&llmv1.Sampling{MinP: proto.Float32(0.1), Seed: proto.Uint64(1)}, []int{0, 0, 1}, ""},
		"it asks nothing":    {&llmv1.Sampling{TopK: proto.Uint32(0)}, []int{1, 0, 0}, ""},
		"nobody does":        {&llmv1.Sampling{IgnoreEos: true}, []int{0, 0, 0}, "ignore_eos"},
		"nobody does both":   {&llmv1.Sampling{TopK: proto.Uint32(3), Seed: proto.Uint64(1)}, []int{0, 0, 0}, "seed"},
		"each lacks another": {&llmv1.Sampling{TopK: proto.Uint32(3), LogitBias: map[uint32]float32{1: 1}, MinP: proto.Float32(0.1)}, []int{0, 0, 0}, "logit_bias"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fakes := []*fake{{name: "w/0"}, {name: "w/1"}, {name: "w/2"}}
				p := poolOf(t, Options{Policy: inOrder}, fakes...)
				makeOf(p, "text", "gpu top_k min_p", "exact seed min_p")
				test.sampling.MaxTokens = proto.Uint32(3)
				req := ask(3)
				req.Sampling = test.sampling
				got := read(t.Context(), p, req, nil)
				for i, f := range fakes {
					if len(f.asked) != test.asked[i] {
						t.Errorf("%s was asked %d times", f.name, len(f.asked))
					}
				}
				if e := streamerr.As(got.err); test.says == "" {
					if got.err != nil {
						t.Error(got.err)
					}
				} else if e.Reason != streamerr.Invalid || !strings.HasPrefix(e.Param, "sampling.") || !strings.Contains(e.Message, test.says) {
					t.Errorf("%v (param %q)", got.err, e.Param)
				}
			})
		})
	}
}

// TestWorkerOfAnEarlierReleaseGetsOnlyGuidesThatItKnows: it enforces the guides of its release, would
// ignore an expression, and would demand a part that the answer may leave out.
func TestWorkerOfAnEarlierReleaseGetsOnlyGuidesThatItKnows(t *testing.T) {
	optional := &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: "{}"}}, FreeFrom: "<think>", FreeUntil: "</think>"}
	for name, test := range map[string]struct {
		guide *llmv1.Guide
		asked string // the worker that gets the request
	}{
		"a schema":         {&llmv1.Guide{Forms: optional.GetForms()}, "earlier"},
		"an expression":    {&llmv1.Guide{Forms: []*llmv1.GuideForm{{Pattern: "[0-9]+"}}}, "ours"},
		"an optional part": {optional, "earlier"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fakes := []*fake{{name: "earlier"}, {name: "ours"}}
				p := poolOf(t, Options{Policy: inOrder}, fakes...)
				makeOf(p, "exact guide", "exact guide")
				for i, w := range p.Members() {
					now := proto.CloneOf(w.Info())
					now.Capabilities.Guides = llmv1.GuideSupport_GUIDE_SUPPORT_FORMS
					if i == 1 {
						now.Capabilities.GuideFields = capability.GuideFields()
					}
					w.Say(now)
				}
				req := ask(3)
				req.Sampling = &llmv1.Sampling{MaxTokens: proto.Uint32(3), Guide: test.guide}
				if got := read(t.Context(), p, req, nil); got.err != nil {
					t.Fatal(got.err)
				}
				for _, f := range fakes {
					switch {
					case len(f.asked) != 1 && f.name == test.asked, len(f.asked) != 0 && f.name != test.asked:
						t.Errorf("%s was asked %d times", f.name, len(f.asked))
					case f.name == test.asked && f.asked[0].GetSampling().GetGuide().GetFreeUntil() != "":
						t.Errorf("%s got %v", f.name, f.asked[0].GetSampling().GetGuide())
					}
				}
				if optional.GetFreeUntil() == "" {
					t.Error("the request was changed")
				}
			})
		})
	}
}

func TestRequestIsNotAtFaultWhileItsWorkerIsUnhealthy(t *testing.T) {
	p := poolOf(t, Options{}, &fake{name: "w/0"}, &fake{name: "w/1"})
	makeOf(p, "text", "gpu top_k")
	p.Members()[1].Say(nil)
	req := ask(3)
	req.Sampling = &llmv1.Sampling{TopK: proto.Uint32(3)}
	if e := streamerr.As(read(t.Context(), p, req, nil).err); e.Reason != streamerr.Unavailable || e.RetryAfter == 0 {
		t.Error(e)
	}
	p.Members()[0].Say(nil)
	req.Sampling = &llmv1.Sampling{IgnoreEos: true}
	if e := streamerr.As(read(t.Context(), p, req, nil).err); e.Reason != streamerr.Unavailable {
		t.Error("nobody is healthy, and it is", e)
	}
}

func TestOnlyWorkersThatContinueExactlyGetASeed(t *testing.T) {
	for kind, want := range map[string]bool{"exact seed": true, "gpu seed": false, "text": false} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{name: "w/0"}
			p := poolOf(t, Options{}, f)
			makeOf(p, kind)
			req := ask(3)
			req.Sampling.Seed = nil
			if read(t.Context(), p, req, nil); (f.asked[0].GetSampling().Seed != nil) != want {
				t.Errorf("%s is asked %v", kind, f.asked[0])
			}
		})
	}
}

// TestStreamsMoveOnlyToWorkersThatMayContinueThem loses the first worker after three tokens.
func TestStreamsMoveOnlyToWorkersThatMayContinueThem(t *testing.T) {
	plain, seeded, counted := &llmv1.Sampling{}, &llmv1.Sampling{Seed: proto.Uint64(5)}, &llmv1.Sampling{PresencePenalty: proto.Float32(1)}
	const all = " seed presence_penalty"
	for name, test := range map[string]struct {
		workers  []string
		sampling *llmv1.Sampling
		to       int // the index of the worker that continues; 0 means none
		exact    bool
	}{
		"to a GPU":                             {[]string{"gpu" + all, "gpu" + all}, plain, 1, false},
		"to the exact one, before a GPU":       {[]string{"exact" + all, "gpu" + all, "exact" + all}, plain, 2, true},
		"to a GPU, where no exact one is":      {[]string{"exact" + all, "gpu" + all}, plain, 1, false},
		"from a GPU to an exact one":           {[]string{"gpu" + all, "exact" + all}, plain, 1, false},
		"not to a worker that cannot continue": {[]string{"gpu" + all, "text" + all}, plain, 0, false},
		"not from one":                         {[]string{"text" + all, "gpu" + all}, plain, 0, false},
		"not with a seed":                      {[]string{"gpu" + all, "gpu" + all}, seeded, 0, false},
		"not with a seed from an exact one":    {[]string{"exact" + all, "gpu" + all}, seeded, 0, false},
		"with a seed among exact ones":         {[]string{"exact" + all, "gpu" + all, "exact" + all}, seeded, 2, true},
		"not with penalties":                   {[]string{"gpu" + all, "gpu" + all}, counted, 0, false},
		"not where a penalty would be ignored": {[]string{"exact" + all, "exact"}, counted, 0, false},
		"past one where it would be ignored":   {[]string{"exact" + all, "exact", "exact" + all}, counted, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fakes []*fake
				for i := range test.workers {
					fakes = append(fakes, &fake{name: "w/" + string(rune('0'+i))})
				}
				fakes[0].fault = func(tokens int) error {
					if tokens == 3 {
						return lostBy(fakes[0])
					}
					return nil
				}
				var log bytes.Buffer
				p := poolOf(t, Options{Policy: inOrder, Migrations: 3, Log: slog.New(slog.NewTextHandler(&log, nil))}, fakes...)
				makeOf(p, test.workers...)
				req := ask(8)
				req.Sampling = proto.CloneOf(test.sampling)
				req.Sampling.MaxTokens = proto.Uint32(8)
				got := read(t.Context(), p, req, nil)
				if test.to == 0 {
					if !got.is(streamerr.PeerLost) || len(got.tokens) != 3 {
						t.Error(got.tokens, got.err)
					}
					return
				}
				next := fakes[test.to]
				if got.err != nil || len(got.tokens) != 8 || len(next.asked) != 1 || next.asked[0].GetGenerated() != 3 || got.end.GetUsage().GetCompletionTokens() != 8 ||
					!slices.Equal(next.asked[0].GetPrompt(), slices.Concat(req.GetPrompt(), got.tokens[:3])) {
					t.Error(got, next.asked)
				}
				if want := map[bool]string{true: "exact=true", false: "exact=false"}[test.exact]; !strings.Contains(log.String(), want) {
					t.Error(log.String())
				}
			})
		})
	}
}

func (r result) is(reason streamerr.Reason) bool {
	return r.err != nil && streamerr.As(r.err).Reason == reason
}
