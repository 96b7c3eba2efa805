package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const rollGrace = time.Second // --drain of the rows that restart services

// pick selects services of a row.
type pick func(*stand) []*service

func workersOf(s *stand) []*service { return s.workers }
func chatsOf(s *stand) []*service   { return s.chats }
func edgesOf(s *stand) []*service   { return s.edges }

// rolled returns the play of a row that restarts all services of a kind, one after another, while
// streams run and new requests come.
func rolled(which pick) func(context.Context, *stand) ([]finding, error) {
	return func(ctx context.Context, s *stand) ([]finding, error) {
		asking, stop := context.WithCancel(ctx)
		defer stop()
		asked := make(chan []*reader, 1)
		go func() { asked <- s.askUntil(asking) }()
		var longest time.Duration
		for _, p := range which(s) {
			took, err := s.terminate(p)
			if err != nil {
				return nil, err
			}
			longest = max(longest, took)
			if err := s.launch(p); err != nil {
				return nil, err
			}
			if err := s.usable(ctx); err != nil {
				return nil, err
			}
		}
		stop()
		all := <-asked
		if len(all) == 0 {
			return nil, errors.New("no request came during the restarts")
		}
		s.finish()
		return []finding{
			{What: "longest time until a process has ended", Unit: report.Millis, Got: inMillis(longest), Bound: inMillis(rollGrace + time.Second)},
			{What: "requests during the restarts that fail", Got: float64(unanswered(all))},
		}, nil
	}
}

// askUntil asks ten times a second until ctx is canceled.
func (s *stand) askUntil(ctx context.Context) (all []*reader) {
	for ctx.Err() == nil {
		all = append(all, s.ask(context.WithoutCancel(ctx), "", 10, 500*time.Millisecond)...)
	}
	return all
}

// terminate sends SIGTERM and returns the time until the process has ended.
func (s *stand) terminate(p *service) (time.Duration, error) {
	at := time.Now()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-p.Exited():
	case <-time.After(within):
	}
	return time.Since(at), nil
}

// secondSignal returns the play of a row that sends two signals to the only service of a kind.
func secondSignal(which pick) func(context.Context, *stand) ([]finding, error) {
	return func(_ context.Context, s *stand) ([]finding, error) {
		p := which(s)[0]
		if err := p.Signal(syscall.SIGTERM); err != nil {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
		took, err := s.terminate(p)
		if err != nil {
			return nil, err
		}
		s.finish()
		untold := 0
		for _, r := range s.readers {
			if r.ending != failed || r.err.Reason != streamerr.Draining {
				untold++
			}
		}
		return []finding{
			{What: "second signal until the process has ended", Unit: report.Millis, Got: inMillis(took), Bound: 200},
			{What: "clients that are not told draining", Got: float64(untold)},
		}, nil
	}
}
