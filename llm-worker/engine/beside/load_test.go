package beside_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestDialectsTellDeathsAndCodes: the front ends of vLLM and Ollama outlive their engine processes.
// A refusal that only quotes such a text is a refusal.
func TestDialectsTellDeathsAndCodes(t *testing.T) {
	const dead = "EngineCore encountered an issue. See stack trace (above) for the root cause."
	const busy = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
	const backlog = "The engine has reached its prefill token backlog limit. Please try again later or on a different instance."
	const stopped = "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error"
	for name, test := range map[string]struct {
		dialect  beside.Dialect
		said     beside.Complaint
		inAnswer bool
		reason   streamerr.Reason
		code     string
	}{
		"vLLM, by its status":            {beside.VLLM, beside.Complaint{Message: dead, Status: 500}, false, streamerr.PeerLost, ""},
		"vLLM, in the answer":            {beside.VLLM, beside.Complaint{Message: dead, Status: 500}, true, streamerr.PeerLost, ""},
		"an older vLLM, in the answer":   {beside.VLLM, beside.Complaint{Message: dead, Status: 400, Type: "BadRequestError"}, true, streamerr.PeerLost, ""},
		"vLLM, by the name of its error": {beside.VLLM, beside.Complaint{Message: "vllm.v1.engine.exceptions.EngineDeadError", Type: "InternalServerError"}, true, streamerr.PeerLost, ""},
		"vLLM refuses a request":         {beside.VLLM, beside.Complaint{Message: dead, Status: 400}, false, streamerr.Invalid, ""},
		"vLLM has no room":               {beside.VLLM, beside.Complaint{Message: dead, Status: 429}, true, streamerr.Overloaded, ""},
		"vLLM quotes a request":          {beside.VLLM, beside.Complaint{Message: "1 error: input was 'EngineDeadError'", Status: 400}, true, streamerr.Invalid, ""},
		"vLLM fails otherwise":           {beside.VLLM, beside.Complaint{Message: "CUDA out of memory", Status: 500}, true, streamerr.EngineFailed, ""},
		"vLLM's words, from another":     {nil, beside.Complaint{Message: dead, Status: 500}, true, streamerr.EngineFailed, ""},
		"Ollama, by its status":          {beside.Ollama, beside.Complaint{Message: stopped, Status: 500}, false, streamerr.PeerLost, ""},
		"a runner killed in the answer":  {beside.Ollama, beside.Complaint{Message: "an error was encountered while running the model: unexpected EOF"}, true, streamerr.PeerLost, ""},
		"vLLM's queue is full":           {beside.VLLM, beside.Complaint{Message: busy, Status: 503}, false, streamerr.Overloaded, ""},
		"vLLM's queue, in the answer":    {beside.VLLM, beside.Complaint{Message: busy, Status: 503, Type: "Service Unavailable"}, true, streamerr.Overloaded, ""},
		"vLLM's prompts wait":            {beside.VLLM, beside.Complaint{Message: backlog, Status: 503}, true, streamerr.Overloaded, ""},
		"SGLang's queue is full":         {nil, beside.Complaint{Message: "The request queue is full.", Status: 503}, true, streamerr.Overloaded, ""},
		"SGLang prefers another request": {nil, beside.Complaint{Message: "The request is aborted by a higher priority request.", Status: 503}, true, streamerr.Overloaded, ""},
		"a refusal that quotes it":       {beside.VLLM, beside.Complaint{Message: busy, Status: 400}, false, streamerr.Invalid, ""},
		"vLLM drains":                    {beside.VLLM, beside.Complaint{Message: "shutting down", Status: 503}, false, streamerr.Unavailable, ""},
		"Ollama, in the answer":          {beside.Ollama, beside.Complaint{Message: stopped}, true, streamerr.PeerLost, ""},
		"vLLM's words, from Ollama":      {beside.Ollama, beside.Complaint{Message: dead, Status: 500}, true, streamerr.EngineFailed, ""},
		"Ollama lacks the model":         {beside.Ollama, beside.Complaint{Message: "model 'big' not found", Status: 404}, false, streamerr.NotFound, streamerr.CodeModelNotFound},
		"Ollama lacks the path":          {beside.Ollama, beside.Complaint{Message: "404 page not found", Status: 404}, false, streamerr.NotFound, ""},
		"Ollama's context is short":      {beside.Ollama, beside.Complaint{Message: "the input length exceeds the context length", Status: 400}, false, streamerr.Invalid, streamerr.CodeContextLength},
		"its llama.cpp's is":             {beside.Ollama, beside.Complaint{Message: "request (9 tokens) exceeds the available context size (8 tokens), try increasing it", Status: 400}, false, streamerr.Invalid, streamerr.CodeContextLength},
		"Ollama has its own code":        {beside.Ollama, beside.Complaint{Message: "model 'big' not found", Status: 404, Code: "gone"}, false, streamerr.NotFound, "gone"},
	} {
		got := test.dialect.Complete(&test.said, test.inAnswer).Ending("failed")
		if got.Reason != test.reason || got.Code != test.code || got.Path.String() != "engine" {
			t.Errorf("%s: %v with code %q, want %v with %q", name, got, got.Code, test.reason, test.code)
		}
	}
}

// TestSlowLoadDelaysNoProbe: a stream is lost while the server has not reported its load yet, and the
// server is probed at once.
func TestSlowLoadDelaysNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := (&server{dies: 1}).upstream()
		begun := time.Now()
		var doubted atomic.Int64
		e := beside.New(beside.Options{MaxRunning: 1}, func(_ context.Context, _ *beside.Upstream, doubt bool) (*beside.Upstream, error) {
			if doubt {
				doubted.CompareAndSwap(0, int64(time.Since(begun)))
			}
			return up, nil
		})
		var loads atomic.Int64
		e.ReadLoad(func(ctx context.Context) (*beside.ServerLoad, error) {
			loads.Add(1)
			select {
			case <-time.After(900 * time.Millisecond):
				return &beside.ServerLoad{Running: 5, Waiting: 2}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { e.Watch(ctx, func(bool) {}) })
		time.Sleep(100 * time.Millisecond)
		if r := read(e, request(9)); !errors.Is(r.err, streamerr.PeerLost) {
			t.Error(r.err)
		}
		time.Sleep(5 * time.Second)
		if at := time.Duration(doubted.Load()); at == 0 || at > 200*time.Millisecond {
			t.Errorf("the server was probed for the lost stream after %v", at)
		}
		if load := e.Load(); load.GetRunning() != 5 || load.GetQueued() != 2 || loads.Load() < 4 {
			t.Errorf("%v after %d reports", load, loads.Load())
		}
		cancel()
		wg.Wait()
	})
}
