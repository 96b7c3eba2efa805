package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/whence-dev/whence/bench/trust/reader"
)

// movedTokens is the length of the streams that move.
const movedTokens = 240

// moves kills the worker beside one of two servers while streams run, and compares the tokens of each
// stream with those of the same request alone: without and with batch invariance of the servers.
func moves(ctx context.Context, s *stand) ([]figure, error) {
	var all []figure
	for _, invariant := range []bool{false, true} {
		found, err := s.moved(ctx, invariant)
		if err != nil {
			return all, err
		}
		all = append(all, found...)
		s.end()
	}
	return all, nil
}

func (s *stand) moved(ctx context.Context, invariant bool) ([]figure, error) {
	name := "without batch invariance"
	if invariant {
		name = "with batch invariance"
	}
	if err := s.start(ctx, 2, func(l *launch) { l.invariant = invariant }); err != nil {
		return nil, err
	}
	prompt := func(i int) string { return fmt.Sprintf("%d. %s", i, tale) }
	want := make([][]uint32, s.opts.rounds)
	for i := range want {
		r, err := s.stream(ctx, ask{prompt: prompt(i), tokens: movedTokens})
		if err != nil || len(r.ids) != movedTokens {
			return nil, errors.Join(fmt.Errorf("an undisturbed stream ends with %q after %d tokens", r.reason, len(r.ids)), err)
		}
		want[i] = r.ids
	}
	got, err := s.strike(ctx, prompt)
	if err != nil {
		return nil, err
	}
	return s.compareMoved(ctx, name, got, want)
}

// strike reads all streams at once, and kills a worker when each has a quarter of its tokens.
func (s *stand) strike(ctx context.Context, prompt func(i int) string) ([]*result, error) {
	got := make([]*result, s.opts.rounds)
	failed := make([]error, s.opts.rounds)
	var flowing atomic.Int32
	var reading sync.WaitGroup
	strike := make(chan struct{})
	for i := range got {
		reading.Go(func() {
			reached := false
			got[i], failed[i] = s.stream(ctx, ask{prompt: prompt(i), tokens: movedTokens, each: func(r *result) bool {
				if !reached && len(r.ids) >= movedTokens/4 {
					if reached = true; flowing.Add(1) == int32(s.opts.rounds) {
						close(strike)
					}
				}
				return true
			}})
		})
	}
	ended := make(chan struct{})
	go func() { reading.Wait(); close(ended) }()
	select {
	case <-strike:
		_ = s.Workers[0].Signal(syscall.SIGKILL) // its server keeps running, and drops the worker's requests
	case <-ended:
	}
	<-ended
	for i, r := range got {
		if failed[i] != nil || !r.done {
			return nil, errors.Join(fmt.Errorf("stream %d ends with %q after %d tokens", i, r.reason, len(r.ids)), failed[i])
		}
	}
	return got, nil
}

// compareMoved compares the tokens of moved and other streams with those of undisturbed ones.
func (s *stand) compareMoved(ctx context.Context, name string, got []*result, want [][]uint32) ([]figure, error) {
	movedN, movedEqual, stayed, stayedEqual, pauses := 0, 0, 0, 0, []float64(nil)
	for i, r := range got {
		told, ok := s.story(ctx, r.id)
		if !ok {
			return nil, fmt.Errorf("there is no story of %s", r.id)
		}
		equal := slices.Equal(r.ids, want[i])
		if slices.ContainsFunc(told.Hops, func(h reader.HopStory) bool { return len(h.Moves) > 0 }) {
			movedN++
			pauses = append(pauses, millis(r.gap))
			if equal {
				movedEqual++
			}
			continue
		}
		if stayed++; equal {
			stayedEqual++
		}
	}
	return []figure{
		count(name+": moved streams with the tokens of the undisturbed one", movedEqual, movedN),
		count(name+": other streams with the tokens of the undisturbed one", stayedEqual, stayed),
		spread(name+": longest pause of a moved stream", "ms", pauses),
	}, nil
}
