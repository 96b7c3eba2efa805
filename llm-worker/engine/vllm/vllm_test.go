package vllm_test

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/features"
	"github.com/whence-dev/whence/llm-worker/engine/vllm"
	"github.com/whence-dev/whence/llm-worker/engine/vllm/vllmtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func subject(config *beside.Config) besidetest.Subject {
	return besidetest.Subject{Dialect: vllmtest.Dialect(), New: func(o beside.Options) (besidetest.Engine, error) { return vllm.New(o, config, nil) }}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	besidetest.Run(t, subject(nil))
}

func TestRequestsHaveTheServersFields(t *testing.T) {
	s := subject(nil)
	e, server := s.Start(t, func(a *besidetest.Answer) error {
		if a.Max() > 100 { // it would take seconds
			a.Complete("length")
			return nil
		}
		return besidetest.Count(a)
	})
	for name, test := range map[string]struct {
		asked *llmv1.Sampling
		want  map[string]any
	}{
		"everything": {besidetest.Everything(features.VLLM.Sampling()), map[string]any{
			"temperature": float32(0.5), "top_p": float32(0.9), "top_k": uint64(40), "min_p": float32(0.05), "repetition_penalty": float32(1.1),
			"frequency_penalty": float32(0.2), "presence_penalty": float32(0.3), "logit_bias": map[uint64]float32{7: -1.5}, "seed": uint64((1<<40 + 5) % (1<<31 - 1)),
			"min_tokens": uint64(2), "max_tokens": uint64(9), "ignore_eos": true, "stop_token_ids": []uint32{8},
		}},
		"greedy":   {&llmv1.Sampling{Temperature: proto.Float32(0), MaxTokens: proto.Uint32(3)}, map[string]any{"temperature": float32(0), "max_tokens": uint64(3)}},
		"logprobs": {&llmv1.Sampling{Logprobs: proto.Uint32(0), MaxTokens: proto.Uint32(3)}, map[string]any{"max_tokens": uint64(3)}},
		"a schema": {&llmv1.Sampling{MaxTokens: proto.Uint32(3), Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"type": "null"}`}}}},
			map[string]any{"max_tokens": uint64(3), "json_schema": `{"type": "null"}`}},
		"choices": {&llmv1.Sampling{MaxTokens: proto.Uint32(3), Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Before: "yes"}, {After: "no"}}}},
			map[string]any{"max_tokens": uint64(3), "choice": []string{"yes", "no"}}},
		"forms": {&llmv1.Sampling{MaxTokens: proto.Uint32(3), Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Before: "<a>", Schema: "true"}, {Schema: "{}"}}}},
			map[string]any{"max_tokens": uint64(3), "structural_tag": `{"type":"structural_tag","format":{"type":"or","elements":[` +
				`{"type":"sequence","elements":[{"type":"const_string","value":"\u003ca\u003e"},{"type":"json_schema","json_schema":true}]},{"type":"json_schema","json_schema":{}}]}}`}},
		"a guide with an expression": {&llmv1.Sampling{MaxTokens: proto.Uint32(3), Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Before: "a", Pattern: "[0-9]+"}}}},
			map[string]any{"max_tokens": uint64(3), "structural_tag": `{"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"const_string","value":"a"},{"type":"regex","pattern":"[0-9]+"}]}}`}},
		"reasoning, or none": {&llmv1.Sampling{MaxTokens: proto.Uint32(3), Guide: &llmv1.Guide{FreeFrom: "F", FreeUntil: "U", FreeGap: "G", Forms: []*llmv1.GuideForm{{Schema: "{}"}}}},
			map[string]any{"max_tokens": uint64(3), "structural_tag": `{"type":"structural_tag","format":{"type":"or","elements":[{"type":"sequence","elements":[` +
				`{"type":"tag","begin":"F","content":{"type":"any_text"},"end":"U"},{"type":"const_string","value":"G"},{"type":"json_schema","json_schema":{}}]},{"type":"json_schema","json_schema":{}}]}}`}},
		"parts": {&llmv1.Sampling{MaxTokens: proto.Uint32(3), Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Before: "f", After: ".", Parts: []*llmv1.GuidePart{
			{Before: "a=", After: ";"}, {Before: "b=", Schema: "true", After: ";", Optional: true}, {Before: "c=", Texts: []string{"x", "y"}, After: ";", Optional: true},
		}}}}},
			map[string]any{"max_tokens": uint64(3), "structural_tag": `{"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"const_string","value":"f"},` +
				`{"type":"tag","begin":"a=","content":{"type":"any_text"},"end":";"},{"type":"tags_with_separator","tags":[{"type":"tag","begin":"b=","content":{"type":"json_schema","json_schema":true},"end":";"},` +
				`{"type":"tag","begin":"c=","content":{"type":"or","elements":[{"type":"const_string","value":"x"},{"type":"const_string","value":"y"}]},"end":";"}],"separator":""},` +
				`{"type":"const_string","value":"."}]}}`}},
		"nothing": {nil, map[string]any{"max_tokens": uint64(besidetest.Context - 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(server.Asked())
			prompt := []uint32{10}
			if r := besidetest.Read(t.Context(), e, &workerv1.TokenRequest{Prompt: prompt, Sampling: test.asked}, nil); r.Err != nil {
				t.Fatal(r.Err)
			}
			if got := server.Asked()[before].Sampling; !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %v\nwant %v", got, test.want)
			}
		})
	}
}

func TestFailedHealthChecksMakeTheEngineUnhealthy(t *testing.T) {
	t.Parallel()
	s := subject(&beside.Config{Context: 100, EOS: []uint32{2, 7}})
	server := besidetest.Start(t, s.Dialect, besidetest.Count, "")
	server.Ill.Store(true)
	e, health := s.Watched(t, server.Addr)
	polltest.Eventually(t, "it is asked again", func() bool { return server.Checks.Load() > 1 })
	if len(health) > 0 {
		t.Error("it is ill, and healthy")
	}
	server.Ill.Store(false)
	if !<-health {
		t.Error("it is well, and not healthy")
	}
	if up := e.Upstream(); up.Context != 100 || !reflect.DeepEqual(up.EOS, []uint32{2, 7}) {
		t.Error("what the operator says of the model does not count:", up)
	}
	server.Ill.Store(true)
	if <-health {
		t.Error("it is ill, and healthy")
	}
}

// TestWindowOfTheServerIsTheDefaultLimit: without --max-running, a worker has the places that all ranks of
// the server report, and takes at least DefaultMaxRunning streams.
func TestWindowOfTheServerIsTheDefaultLimit(t *testing.T) {
	t.Parallel()
	var window atomic.Uint64 // of each of two ranks, --max-num-seqs
	s := besidetest.Subject{Dialect: vllmtest.Dialect(), New: func(o beside.Options) (besidetest.Engine, error) {
		o.MaxRunning = 0
		return vllm.New(o, nil, nil)
	}}
	s.Dialect.More["GetLoads"] = func(s *besidetest.Server) besidetest.Message {
		s.LoadsAsked.Add(1)
		rank := string(besidetest.Message(nil).AddUint(11, window.Load()))
		return besidetest.Message(nil).AddText(4, rank).AddText(4, rank)
	}
	e, server := s.Start(t, func(a *besidetest.Answer) error {
		a.Chunk(7)
		a.Wait()
		return a.Aborted()
	})
	polltest.Eventually(t, "the server has reported its load", func() bool { return server.LoadsAsked.Load() > 1 })
	if load := e.Load(); load.GetMaxRunning() != beside.DefaultMaxRunning || load.GetMaxQueued() != 0 {
		t.Error("a server that does not report its window:", load)
	}
	window.Store(8)
	polltest.Eventually(t, "other streams wait", func() bool {
		return e.Load().GetMaxRunning() == 16 && e.Load().GetMaxQueued() == beside.DefaultMaxRunning-16
	})
	window.Store(200)
	polltest.Eventually(t, "the limit is the server's", func() bool { return e.Load().GetMaxRunning() == 400 && e.Load().GetMaxQueued() == 0 })
	begun := make(chan struct{}, beside.DefaultMaxRunning+1)
	var wg sync.WaitGroup
	for range cap(begun) {
		wg.Go(func() {
			r := besidetest.Read(t.Context(), e, besidetest.Ask(100), func(r *besidetest.Result) {
				if len(r.Tokens) == 1 {
					begun <- struct{}{}
				}
			})
			if len(r.Tokens) == 0 {
				t.Error(r.Err)
				begun <- struct{}{}
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	server.Stop()
	wg.Wait()
}

// A vLLM without --grpc serves HTTP at its port.
func TestHTTPPortIsNamedAsOne(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	s := subject(nil)
	watched, _ := s.Watched(t, strings.TrimPrefix(server.URL, "http://"))
	polltest.Eventually(t, "the problem says that the server speaks HTTP", func() bool {
		return strings.Contains(watched.(*vllm.Engine).Problem(), "answers in HTTP, and not in gRPC")
	})
}

// TestDeadEngineLosesItsStreams: vLLM's front end outlives its engine process.
func TestDeadEngineLosesItsStreams(t *testing.T) {
	const dead = "EngineCore encountered an issue. See stack trace (above) for the root cause."
	after := func(n int, code codes.Code, message string) besidetest.Script {
		return func(a *besidetest.Answer) error {
			if n > 0 {
				a.Count(n)
			}
			return status.Error(code, message)
		}
	}
	s := subject(nil)
	s.Misdeeds(t, map[string]besidetest.Misdeed{
		"before the answer":        {Script: after(0, codes.Internal, dead), Reason: streamerr.PeerLost, Says: "EngineCore"},
		"in the answer":            {Script: after(2, codes.Internal, dead), Reason: streamerr.PeerLost, Tokens: 2, Says: "EngineCore"},
		"a refusal with its words": {Script: after(0, codes.InvalidArgument, dead), Reason: streamerr.Invalid, Says: "EngineCore"},
		"a failure that quotes it": {Script: after(0, codes.Internal, "cannot parse 'EngineDeadError'"), Reason: streamerr.EngineFailed, Says: "parse"},
	})
}

func BenchmarkStop(b *testing.B) { besidetest.BenchmarkStop(b, subject(nil)) }

func BenchmarkTokens(b *testing.B) { besidetest.BenchmarkTokens(b, subject(nil)) }
