package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/streamerr"
)

var workerRows = []trial.Row{
	{Name: "llm-worker is killed, another one continues", Layout: lab.Layout{Workers: 2, Chats: 1, Edges: 1}, Tokens: 200, Spared: true, Play: workerKilled},
	{Name: "llm-worker is killed", Layout: lab.Layout{Workers: 1, Chats: 1, Edges: 1}, Tokens: 200, Play: lastWorkerKilled},
	{Name: "llm-worker hangs, another one continues", Layout: lab.Layout{Workers: 2, Chats: 1, Edges: 1}, Tokens: 400, Spared: true, Play: func(_ context.Context, t *trial.Trial) ([]trial.Finding, error) {
		return strike(t, t.Workers[0], syscall.SIGSTOP)
	}},
}

var chatRows = []trial.Row{
	{Name: "chat-service is killed, another one continues", Layout: lab.Layout{Workers: 1, Chats: 2, Edges: 1}, Tokens: 200, Spared: true, Play: func(_ context.Context, t *trial.Trial) ([]trial.Finding, error) {
		return strike(t, t.Chats[0], syscall.SIGKILL)
	}},
	{Name: "chat-service hangs, another one continues", Layout: lab.Layout{Workers: 1, Chats: 2, Edges: 1}, Tokens: 400, Spared: true, Play: func(_ context.Context, t *trial.Trial) ([]trial.Finding, error) {
		return strike(t, t.Chats[0], syscall.SIGSTOP)
	}},
}

// strike sends a signal to a service and measures the longest pause of a stream. All streams
// continue.
func strike(t *trial.Trial, p *lab.Process, signal syscall.Signal) ([]trial.Finding, error) {
	if err := p.Signal(signal); err != nil {
		return nil, err
	}
	return []trial.Finding{t.Pause()}, nil
}

// workerKilled kills a worker and compares the time to first token of new requests with that before.
func workerKilled(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
	const lasts = 3 * time.Second
	before := t.Ask(ctx, "", 50, lasts)
	if err := t.Workers[0].Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	after := t.Ask(ctx, "", 50, lasts)
	return append(trial.Beside(before, after), t.Pause()), nil
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
	probing, cancel := context.WithTimeout(ctx, lab.Patience)
	defer cancel()
	asked := &reader.Reader{}
	asked.Read(probing, t.HTTP, t.Edges[0].Addr, 1)
	refusal := asked.Over.Sub(asked.Asked)
	if asked.Ending != reader.Refused || asked.Err.Reason != streamerr.Unavailable {
		return nil, fmt.Errorf("without a worker, a request has the ending %d and the error %s", asked.Ending, fmt.Sprint(asked.Err))
	}
	if err := t.Workers[0].Relaunch(); err != nil {
		return nil, err
	}
	back := time.Now()
	if err := lab.Await(ctx, "the service serves again", func() bool {
		again := &reader.Reader{}
		again.Read(probing, t.HTTP, t.Edges[0].Addr, 1)
		return again.Ending == reader.Completed
	}); err != nil {
		return nil, err
	}
	return []trial.Finding{
		{What: "death until the last client is told", Got: trial.InMillis(told)},
		{What: "a new request until its 503", Got: trial.InMillis(refusal)},
		{What: "the worker is back until a request is served", Got: trial.InMillis(time.Since(back))},
	}, nil
}
