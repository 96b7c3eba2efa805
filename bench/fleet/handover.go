package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	by "github.com/whence-dev/whence/chat-service/route/policy"
)

// handover compares workers for both phases with separate prefill and decode workers, on long
// prompts with nothing in common. Every token counts, from the first request on.
func (c *options) handover(ctx context.Context, prefill int) error {
	l := longPrompts(c.requests, c.rate, c.seed)
	_, err := fmt.Fprintf(c.out, `
**%s**: %s.
%d workers with %d tokens of KV cache each. Everything takes %g times as long as simulated.

| workers | TTFT p50 | p99 | time between tokens p50 | p99 | longest | prompts handed over | failed |
|---|---|---|---|---|---|---|---|
`, l.name, l.says, c.workers, c.kvTokens, c.slow)
	for _, p := range []policy{
		{name: by.LeastLoaded, called: fmt.Sprintf("%d for both", c.workers)},
		{name: by.LeastLoaded, called: fmt.Sprintf("%d for prompts, %d for answers", prefill, c.workers-prefill), prefill: prefill},
	} {
		if err != nil {
			return err
		}
		var r *result
		if r, err = c.measure(ctx, p, l); err != nil {
			return fmt.Errorf("%s: %w", p.called, err)
		}
		_, err = fmt.Fprintf(c.out, "| %s | %.0f ms | %.0f ms | %.1f ms | %.1f ms | %.0f ms | %d of %d | %d |\n",
			p.called, percentile(r.first, 50), percentile(r.first, 99), percentile(r.gaps, 50), percentile(r.gaps, 99), percentile(r.gaps, 100), r.handed, len(r.first), r.failed)
	}
	return err
}

// longPrompts returns requests with nothing in common: prompts of 2,000 to 8,000 tokens, and
// answers of 128 tokens.
func longPrompts(requests int, rate float64, seed uint64) load {
	random := rand.New(rand.NewPCG(seed, 3))
	l := load{name: "long prompts", says: fmt.Sprintf("%d requests, %g a second: prompts of 2,000 to 8,000 tokens with nothing in common, 128 tokens of answer", requests, rate)}
	at := time.Duration(0)
	for range requests {
		at += exponential(random, 1/rate)
		l.conversations = append(l.conversations, conversation{at: at, turns: []turn{{ask: tokens(random, 2000+random.IntN(6001)), answer: 128}}})
	}
	return l
}
