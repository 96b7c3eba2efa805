package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/process"
	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// share is the number of streams that the tenant "noisy" may have at a time.
const share = 5

// limits writes a file with the keys of two tenants, and returns its name.
func (s *stand) limits() (string, error) {
	name := filepath.Join(s.builds.dir, "keys.yaml")
	text := fmt.Sprintf("tenants:\n  noisy: {streams: %d}\nkeys:\n  - {key: noisy, id: noisy, tenant: noisy}\n  - {key: others, id: others, tenant: others}\n", share)
	return name, os.WriteFile(name, []byte(text), 0o600)
}

// overloaded has one tenant send requests within its limit, then five times as many as the limit
// allows. A request of ask runs for about a quarter of a second, so share places serve rate a second.
func overloaded(ctx context.Context, s *stand) ([]finding, error) {
	const rate, lasts = 4 * share, 10 * time.Second
	both := func(noisy int) (others, tenant []*reader) {
		done := make(chan []*reader, 1)
		beside := &stand{http: s.http, edges: s.edges, asked: 1 << 20}
		go func() { done <- beside.ask(ctx, "noisy", noisy, lasts) }()
		others = s.ask(ctx, "others", 20, lasts)
		return others, <-done
	}
	before, _ := both(rate / 2)    // within the limit
	after, noisy := both(5 * rate) // five times the limit
	var refusals []time.Duration
	other := 0
	for _, r := range noisy {
		switch {
		case r.ending == refused && r.err.Reason == streamerr.Overloaded:
			refusals = append(refusals, r.over.Sub(r.asked))
		case r.ending != completed:
			other++
		}
	}
	if len(refusals) == 0 {
		return nil, errors.New("no request of the tenant over its limit was refused")
	}
	s.finish()
	return []finding{
		{What: "p99 time to first token of the others, more than before beyond 35 ms", Unit: report.Percent, Got: growth(ttft(before), ttft(after)), Bound: 25},
		{What: "request over the limit until its 429, p99", Unit: report.Millis, Got: inMillis(p99(refusals)), Bound: 50},
		{What: "requests of the others that fail", Got: float64(unanswered(before) + unanswered(after))},
		{What: "requests of the tenant that end with neither an answer nor a 429", Got: float64(other)},
	}, nil
}

// workerDies kills a worker and compares the time to first token of new requests with that before.
func workerDies(ctx context.Context, s *stand) ([]finding, error) {
	const lasts = 3 * time.Second
	before := s.ask(ctx, "", 50, lasts)
	if err := s.workers[0].Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	after := s.ask(ctx, "", 50, lasts)
	s.finish()
	return []finding{
		{What: "longest pause of a stream", Unit: report.Millis, Got: inMillis(s.longest()), Bound: 500},
		{What: "p99 time to first token of new requests, more than before beyond 35 ms", Unit: report.Percent, Got: growth(ttft(before), ttft(after)), Bound: 100},
		{What: "new requests that fail", Got: float64(unanswered(before) + unanswered(after))},
	}, nil
}

// redisAway returns the play of a row in which Redis gets a signal. No stream of the row is kept, so
// none may notice.
func redisAway(signal syscall.Signal) func(context.Context, *stand) ([]finding, error) {
	return func(ctx context.Context, s *stand) ([]finding, error) {
		const lasts = 5 * time.Second
		before := s.ask(ctx, "", 20, lasts)
		if err := s.others[0].Signal(signal); err != nil {
			return nil, err
		}
		after := s.ask(ctx, "", 20, lasts)
		silent := 1.0
		if err := s.await(ctx, "the log says that Redis does not answer", func() bool { return says(s.edges[0].Process, "redis does not answer") }); err == nil {
			silent = 0
		}
		s.finish()
		return []finding{
			{What: "p99 time to first token of new requests, more than before beyond 35 ms", Unit: report.Percent, Got: growth(ttft(before), ttft(after)), Bound: 5},
			{What: "new requests that fail", Got: float64(unanswered(before) + unanswered(after))},
			{What: "api-services whose logs do not name Redis", Got: silent},
		}, nil
	}
}

// says reports whether the log of a process contains a text.
func says(p *process.Process, text string) bool { return strings.Contains(p.Output(), text) }
