package main

import (
	"os"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama"
)

// formats are the measured formats of weights in memory.
var formats = []string{"bf16", "int8"}

// measureWhence measures the embedded engine without its batch loop.
func measureWhence(dir, format string, o options) (s speed, err error) {
	weights, err := tinyllama.Load(os.DirFS(dir), tinyllama.LoadOptions{Format: format})
	if err != nil {
		return s, err
	}
	m := tinyllama.New(weights, tinyllama.Options{Threads: o.threads, NoPrefixCache: true})
	if s.Decode1, err = decode(m, 1, o.tokens); err != nil {
		return s, err
	}
	if s.Decode8, err = decode(m, 8, o.tokens); err != nil {
		return s, err
	}
	s.Prefill, err = prefill(m, o.prompt)
	return s, err
}

// decode returns the tokens per second of a number of streams, after their first tokens.
func decode(m *tinyllama.Model, streams, tokens int) (float64, error) {
	var ids []uint64
	for i := range streams {
		ids = append(ids, uint64(i))
		if err := m.Join(uint64(i), request(8+i, tokens)); err != nil {
			return 0, err
		}
		defer m.Leave(uint64(i))
	}
	begun := map[uint64]bool{}
	for len(begun) < streams { // each joins when all have read their prompts
		var waiting []uint64
		for _, id := range ids {
			if !begun[id] {
				waiting = append(waiting, id)
			}
		}
		out, err := m.Step(waiting[:1], nil)
		if err != nil {
			return 0, err
		}
		for _, o := range out {
			begun[o.ID] = true
		}
	}
	at := time.Now()
	for range tokens - 1 {
		if _, err := m.Step(ids, nil); err != nil {
			return 0, err
		}
	}
	return float64(streams*(tokens-1)) / time.Since(at).Seconds(), nil
}

// prefill returns the tokens per second of a prompt.
func prefill(m *tinyllama.Model, tokens int) (float64, error) {
	if err := m.Join(0, request(tokens, 1)); err != nil {
		return 0, err
	}
	defer m.Leave(0)
	at := time.Now()
	for {
		out, err := m.Step([]uint64{0}, nil)
		if err != nil {
			return 0, err
		}
		if len(out) > 0 {
			return float64(tokens) / time.Since(at).Seconds(), nil
		}
	}
}

func request(prompt, answer int) *workerv1.TokenRequest {
	limit, greedy := uint32(answer), float32(0)
	return &workerv1.TokenRequest{Prompt: tokens(prompt), Sampling: &llmv1.Sampling{Temperature: &greedy, MaxTokens: &limit, IgnoreEos: true}}
}

// tokens returns the beginning of one sequence of token ids, as llama.mjs does.
func tokens(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(1000 + i*7919%100000)
	}
	return ids
}
