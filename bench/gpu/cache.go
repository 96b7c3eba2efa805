package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// turns is the number of requests of a conversation. Each request begins with the previous request.
const turns = 4

// cache runs conversations over two servers, and compares how much of the prompts the servers find in
// their KV caches: without KV routing, and with it.
func cache(ctx context.Context, s *stand) ([]figure, error) {
	var all []figure
	for _, policy := range []string{"least-loaded", "kv"} {
		found, err := s.conversations(ctx, policy)
		if err != nil {
			return all, err
		}
		all = append(all, found...)
		s.end()
	}
	return all, nil
}

func (s *stand) conversations(ctx context.Context, policy string) ([]figure, error) {
	setup := func(l *launch) {
		l.events, _ = freePort() // 0 means no events, and the row says so by its figures
	}
	if err := s.start(ctx, 2, setup, "--policy", policy); err != nil {
		return nil, err
	}
	cached, prompt := 0, 0
	var ttfts []float64
	said := make([]string, s.opts.rounds)
	for turn := range turns {
		for i := range said {
			if turn == 0 {
				said[i] = fmt.Sprintf("Conversation %d. %s", i, strings.Repeat(tale, 8))
			}
			r, err := s.stream(ctx, ask{prompt: said[i], tokens: 10})
			if err != nil || !r.done {
				return nil, errors.Join(fmt.Errorf("turn %d of conversation %d ends with %q", turn, i, r.reason), err)
			}
			said[i] += strings.Repeat(fmt.Sprintf("And then, for the %dth time? ", turn), 4)
			if turn > 0 { // the first turn finds nothing
				cached, prompt = cached+r.cached, prompt+r.prompt
				ttfts = append(ttfts, millis(r.ttft))
			}
		}
	}
	name := "--policy " + policy
	return []figure{
		{what: name + ": prompt tokens of later turns that were cached", value: fmt.Sprintf("%.0f %%", 100*float64(cached)/float64(max(1, prompt)))},
		spread(name+": TTFT of later turns", "ms", ttfts),
	}, nil
}
