package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/whence-dev/whence/chat-service/route"
	by "github.com/whence-dev/whence/chat-service/route/policy"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/ledger"
)

// options are the options of the command line.
type options struct {
	workers, kvTokens, requests int
	warming                     int // requests that are not counted
	together                    int // concurrent conversations, regardless of their start times; 0 starts each at its time
	slow, rate                  float64
	seed                        uint64
	out                         io.Writer
}

// A policy is a routing policy of the comparison.
type policy struct {
	name, called string
	quiet        bool // workers send no KV events
	prefill      int  // number of prefill workers; 0 means that all workers do both
}

var policies = []policy{
	{name: by.RoundRobin, called: "round-robin"},
	{name: by.LeastLoaded, called: "least-loaded"},
	{name: by.PowerOfTwo, called: "power-of-two"},
	{name: by.Session, called: "session"},
	{name: by.KV, called: "kv, approximate", quiet: true},
	{name: by.KV, called: "kv, events"},
}

func (c *options) run(ctx context.Context) error {
	for _, l := range []load{sharedPrefix(c.requests, c.rate, c.seed), trace(c.requests, c.rate, c.seed)} {
		if err := c.compare(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// compare prints the table of one load, row by row.
func (c *options) compare(ctx context.Context, l load) error {
	_, err := fmt.Fprintf(c.out, `
**%s**: %s.
%d workers with %d tokens of KV cache each. The first third of the requests is not counted. Everything takes %g times as long as simulated.

| policy | TTFT p50 | p99 | p50 against round-robin | prompt tokens found in cache | expected there | failed |
|---|---|---|---|---|---|---|
`, l.name, l.says, c.workers, c.kvTokens, c.slow)
	first := 0.0
	for _, p := range policies {
		if err != nil {
			return err
		}
		var r *result
		if r, err = c.measure(ctx, p, l); err != nil {
			return fmt.Errorf("%s: %w", p.called, err)
		}
		p50 := percentile(r.first, 50)
		if first == 0 {
			first = p50
		}
		expected := "-"
		if p.name == by.KV {
			expected = fmt.Sprintf("%.1f %%", 100*r.ratio(r.expected))
		}
		_, err = fmt.Fprintf(c.out, "| %s | %.0f ms | %.0f ms | %.1fx | %.1f %% | %s | %d |\n",
			p.called, p50, percentile(r.first, 99), first/p50, 100*r.ratio(r.cached), expected, r.failed)
	}
	return err
}

// A result holds the measurements of a load.
type result struct {
	slow float64

	mu                       sync.Mutex // guards the following fields
	warming                  int        // requests that are not counted, until the caches are warm
	first, gaps              []float64  // times to first token and between later tokens, in milliseconds of simulated time
	handed                   int        // prompts that one worker read for another
	prompt, cached, expected int        // tokens
	failed                   int
	err                      error // of one failed request
}

// percentile returns the p-th percentile of times.
func percentile(times []float64, p float64) float64 {
	slices.Sort(times)
	if len(times) == 0 {
		return math.NaN()
	}
	return times[min(len(times)-1, int(float64(len(times))*p/100))]
}

// ratio returns tokens as a fraction of the tokens of all prompts.
func (r *result) ratio(tokens int) float64 { return float64(tokens) / float64(max(1, r.prompt)) }

// measure runs a load with a policy, on a new fleet.
func (c *options) measure(ctx context.Context, p policy, l load) (r *result, err error) {
	f, err := start(ctx, c, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.end()) }()
	r = &result{slow: c.slow, warming: c.warming}
	begun := time.Now()
	var all sync.WaitGroup
	places := make(chan struct{}, max(c.together, 1))
	for _, conv := range l.conversations {
		if c.together > 0 {
			places <- struct{}{}
		} else if lab.Pause(ctx, r.real(conv.at)-time.Since(begun)); ctx.Err() != nil {
			break
		}
		all.Go(func() {
			r.talk(ctx, f.pool, conv)
			if c.together > 0 {
				<-places
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return r, nil
}

// real converts simulated time to real time.
func (r *result) real(simulated time.Duration) time.Duration {
	return time.Duration(float64(simulated) * r.slow)
}

// talk runs one conversation.
func (r *result) talk(ctx context.Context, pool *route.Pool, c conversation) {
	said := slices.Clone(c.prefix)
	for _, t := range c.turns {
		if said = append(said, t.ask...); len(said)+t.answer >= contextLength {
			return
		}
		answer, ok := r.ask(ctx, pool, &workerv1.TokenRequest{
			Prompt: said, Session: c.id,
			Sampling: &llmv1.Sampling{MaxTokens: new(uint32(t.answer)), IgnoreEos: true},
		})
		if !ok {
			return
		}
		said = append(slices.Clip(said), answer...)
		if lab.Pause(ctx, r.real(t.think)); ctx.Err() != nil {
			return
		}
	}
}

// ask sends one request and records its outcome.
func (r *result) ask(ctx context.Context, pool *route.Pool, req *workerv1.TokenRequest) (answer []uint32, ok bool) {
	begun := time.Now()
	var first, last time.Duration
	var gaps []float64
	var usage *llmv1.Usage
	var failed error
	var kept ledger.Ledger
	record := kept.Open("stream", "chat-service", "")
	for out, err := range pool.Generate(ledger.With(ctx, record), req) {
		if err != nil {
			failed = err
			break
		}
		if n := len(out.GetTokens().GetIds()); n > 0 {
			answer = append(answer, out.GetTokens().GetIds()...)
			now := time.Since(begun)
			if first == 0 {
				first = now
			} else {
				gaps = append(gaps, (now-last).Seconds()*1000/r.slow)
			}
			last = now
		}
		usage = out.GetEnd().GetUsage()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if failed != nil || usage == nil {
		r.failed++
		r.err = failed
		return nil, false
	}
	if r.warming--; r.warming >= 0 {
		return answer, true
	}
	r.first = append(r.first, first.Seconds()*1000/r.slow)
	r.gaps = append(r.gaps, gaps...)
	for _, h := range record.Proto().GetHandovers() {
		if h.GetReason() == streamv1.Reason_REASON_COMPLETED {
			r.handed++
		}
	}
	r.prompt += int(usage.GetPromptTokens())
	r.cached += int(usage.GetCachedTokens())
	r.expected += int(usage.GetExpectedCachedTokens())
	return answer, true
}
