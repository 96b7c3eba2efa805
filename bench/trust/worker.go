package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/bench/trust/stand"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/pkg/streamerr"
)

var workerRows = []trial.Row{
	{Name: "worker killed, another is there", Layout: stand.Layout{Workers: 2, Chats: 1, Edges: 1}, Tokens: 200, Spared: true, Play: workerKilled},
	{Name: "worker killed, none is left", Layout: stand.Layout{Workers: 1, Chats: 1, Edges: 1}, Tokens: 200, Play: lastWorkerKilled},
	{Name: "worker frozen, another is there", Layout: stand.Layout{Workers: 2, Chats: 1, Edges: 1}, Tokens: 400, Spared: true, Play: func(_ context.Context, t *trial.Trial) ([]trial.Finding, error) {
		return strike(t, t.Workers[0], syscall.SIGSTOP, 5*time.Second)
	}},
}

var chatRows = []trial.Row{
	{Name: "chat-service killed, another is there", Layout: stand.Layout{Workers: 1, Chats: 2, Edges: 1}, Tokens: 200, Spared: true, Play: func(_ context.Context, t *trial.Trial) ([]trial.Finding, error) {
		return strike(t, t.Chats[0], syscall.SIGKILL, 500*time.Millisecond)
	}},
	{Name: "chat-service frozen, another is there", Layout: stand.Layout{Workers: 1, Chats: 2, Edges: 1}, Tokens: 400, Spared: true, Play: func(_ context.Context, t *trial.Trial) ([]trial.Finding, error) {
		return strike(t, t.Chats[0], syscall.SIGSTOP, 5*time.Second)
	}},
}

// strike sends a signal to a service and measures the longest pause of a stream. All streams
// continue.
func strike(t *trial.Trial, p *stand.Service, signal syscall.Signal, bound time.Duration) ([]trial.Finding, error) {
	if err := p.Signal(signal); err != nil {
		return nil, err
	}
	return []trial.Finding{t.Pause(bound)}, nil
}

// workerKilled kills a worker and compares the time to first token of new requests with that before.
func workerKilled(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
	const lasts = 3 * time.Second
	before := t.Ask(ctx, "", 50, lasts)
	if err := t.Workers[0].Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	after := t.Ask(ctx, "", 50, lasts)
	return append(trial.Beside(before, after, 100), t.Pause(500*time.Millisecond)), nil
}

// lastWorkerKilled kills the only worker and restarts it.
func lastWorkerKilled(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
	at := time.Now()
	if err := t.Workers[0].Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	t.Finish()
	told := time.Duration(0)
	for _, r := range t.Readers {
		told = max(told, r.Over.Sub(at))
	}
	probing, cancel := context.WithTimeout(ctx, stand.Within)
	defer cancel()
	asked := &reader.Reader{}
	asked.Read(probing, t.HTTP, t.Edges[0].Addr, 1)
	refusal := asked.Over.Sub(asked.Asked)
	if asked.Ending != reader.Refused || asked.Err.Reason != streamerr.Unavailable {
		return nil, fmt.Errorf("without a worker, a request has the ending %d and the error %s", asked.Ending, fmt.Sprint(asked.Err))
	}
	if err := t.Launch(t.Workers[0]); err != nil {
		return nil, err
	}
	back := time.Now()
	if err := stand.Await(ctx, "the service serves again", func() bool {
		again := &reader.Reader{}
		again.Read(probing, t.HTTP, t.Edges[0].Addr, 1)
		return again.Ending == reader.Completed
	}); err != nil {
		return nil, err
	}
	return []trial.Finding{
		{What: "death until the last client is told", Unit: report.Millis, Got: trial.InMillis(told), Bound: 500},
		{What: "a new request until its 503", Unit: report.Millis, Got: trial.InMillis(refusal), Bound: 100},
		{What: "the worker is back until a request is served", Unit: report.Millis, Got: trial.InMillis(time.Since(back)), Bound: 1000},
	}, nil
}
