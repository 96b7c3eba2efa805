package main

import (
	"context"
	"fmt"
	"time"

	"github.com/whence-dev/whence/lab"
)

// stops measures what a server does for streams that their clients have left. The server runs one
// request at a time, so the next request waits exactly until the server has dropped the abandoned one:
// the time to its first token, less the usual one, is the time that was wasted.
func stops(ctx context.Context, s *stand) ([]figure, error) {
	if err := s.start(ctx, 1, func(l *launch) { l.single = true }); err != nil {
		return nil, err
	}
	usual, step, err := s.undisturbed(ctx)
	if err != nil {
		return nil, err
	}
	long := s.longPrompt(ctx)
	var confirmed, decode, tokens, prefill []float64
	for i := range s.opts.rounds {
		r, err := s.stream(ctx, ask{prompt: fmt.Sprint(i, tale), tokens: s.many(ctx), each: afterSome})
		if err != nil {
			return nil, err
		}
		wasted, err := s.wasted(ctx, usual)
		if err != nil {
			return nil, err
		}
		decode = append(decode, millis(wasted))
		tokens = append(tokens, float64(wasted)/float64(step))
		if ms, ok := s.confirmed(ctx, r.id); ok {
			confirmed = append(confirmed, ms)
		}
		if _, err := s.leavePrefill(ctx, fmt.Sprint(i, long)); err != nil {
			return nil, err
		}
		if wasted, err = s.wasted(ctx, usual); err != nil {
			return nil, err
		}
		prefill = append(prefill, millis(wasted))
	}
	whole, err := s.stream(ctx, ask{prompt: "once more: " + long, tokens: 2})
	if err != nil {
		return nil, err
	}
	return []figure{
		spread("from the client's leaving to the stop that the worker has confirmed", "ms", confirmed),
		spread("wasted by the server on a stream left in decode", "ms", decode),
		spread("wasted by the server on a stream left in decode", "tokens", tokens),
		spread(fmt.Sprintf("wasted by the server on a stream left in the prefill of %d tokens", whole.prompt), "ms", prefill),
		{what: "the same prefill, undisturbed", value: fmt.Sprintf("%.1f ms", millis(whole.ttft))},
	}, nil
}

// probe is the request whose first token shows that the server is free.
func (s *stand) probe(ctx context.Context, tokens int) (*result, error) {
	r, err := s.stream(ctx, ask{prompt: "Are you free?", tokens: tokens})
	if err == nil && len(r.ids) == 0 {
		err = fmt.Errorf("a probe has no tokens, status %d and reason %q", r.status, r.reason)
	}
	return r, err
}

// undisturbed returns the usual time to the first token of a probe, and the time for each further
// token: the shortest that were measured, so that the wasted work is not underestimated.
func (s *stand) undisturbed(ctx context.Context) (ttft, step time.Duration, err error) {
	const probes, tokens = 5, 20
	for i := range probes {
		begun := time.Now()
		r, err := s.probe(ctx, tokens)
		if err != nil {
			return 0, 0, err
		}
		if i == 0 { // it warms the server up
			continue
		}
		each := (r.lastRead.Sub(begun) - r.ttft) / time.Duration(max(1, len(r.ids)-1))
		if i == 1 || each < step {
			step = each
		}
		if i == 1 || r.ttft < ttft {
			ttft = r.ttft
		}
	}
	return ttft, max(step, time.Microsecond), nil
}

// wasted returns how long a probe has to wait for the server beyond the usual.
func (s *stand) wasted(ctx context.Context, usual time.Duration) (time.Duration, error) {
	r, err := s.probe(ctx, 1)
	if err != nil {
		return 0, err
	}
	return max(0, r.ttft-usual), nil
}

// confirmed returns the time in which the worker has confirmed the stop of a stream.
func (s *stand) confirmed(ctx context.Context, id string) (ms float64, ok bool) {
	err := lab.Await(ctx, "the stop is confirmed", func() bool {
		told, known := s.story(ctx, id)
		if ok = known && len(told.Hops) == 3 && told.Hops[2].StopConfirmedMS != nil; ok {
			ms = *told.Hops[2].StopConfirmedMS
		}
		return ok
	})
	return ms, err == nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
