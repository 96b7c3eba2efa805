package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/bench/trust/stand"
	"github.com/whence-dev/whence/pkg/streamerr"
)

var workerRows = []row{
	{name: "worker killed, another is there", layout: stand.Layout{Workers: 2, Chats: 1, Edges: 1}, tokens: 200, spared: true, play: workerKilled},
	{name: "worker killed, none is left", layout: stand.Layout{Workers: 1, Chats: 1, Edges: 1}, tokens: 200, play: lastWorkerKilled},
	{name: "worker frozen, another is there", layout: stand.Layout{Workers: 2, Chats: 1, Edges: 1}, tokens: 400, spared: true, play: func(_ context.Context, t *trial) ([]finding, error) {
		return t.strike(t.Workers[0], syscall.SIGSTOP, 5*time.Second)
	}},
}

var chatRows = []row{
	{name: "chat-service killed, another is there", layout: stand.Layout{Workers: 1, Chats: 2, Edges: 1}, tokens: 200, spared: true, play: func(_ context.Context, t *trial) ([]finding, error) {
		return t.strike(t.Chats[0], syscall.SIGKILL, 500*time.Millisecond)
	}},
	{name: "chat-service frozen, another is there", layout: stand.Layout{Workers: 1, Chats: 2, Edges: 1}, tokens: 400, spared: true, play: func(_ context.Context, t *trial) ([]finding, error) {
		return t.strike(t.Chats[0], syscall.SIGSTOP, 5*time.Second)
	}},
}

// strike sends a signal to a service and measures the longest pause of a stream. All streams
// continue.
func (t *trial) strike(p *stand.Service, signal syscall.Signal, bound time.Duration) ([]finding, error) {
	if err := p.Signal(signal); err != nil {
		return nil, err
	}
	return []finding{t.pause(bound)}, nil
}

// workerKilled kills a worker and compares the time to first token of new requests with that before.
func workerKilled(ctx context.Context, t *trial) ([]finding, error) {
	const lasts = 3 * time.Second
	before := t.ask(ctx, "", 50, lasts)
	if err := t.Workers[0].Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	after := t.ask(ctx, "", 50, lasts)
	return append(beside(before, after, 100), t.pause(500*time.Millisecond)), nil
}

// lastWorkerKilled kills the only worker and restarts it.
func lastWorkerKilled(ctx context.Context, t *trial) ([]finding, error) {
	at := time.Now()
	if err := t.Workers[0].Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	t.finish()
	told := time.Duration(0)
	for _, r := range t.readers {
		told = max(told, r.Over.Sub(at))
	}
	probing, cancel := context.WithTimeout(ctx, stand.Within)
	defer cancel()
	asked := &reader.Reader{}
	asked.Read(probing, t.http, t.Edges[0].Addr, 1)
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
		again.Read(probing, t.http, t.Edges[0].Addr, 1)
		return again.Ending == reader.Completed
	}); err != nil {
		return nil, err
	}
	return []finding{
		{What: "death until the last client is told", Unit: report.Millis, Got: inMillis(told), Bound: 500},
		{What: "a new request until its 503", Unit: report.Millis, Got: inMillis(refusal), Bound: 100},
		{What: "the worker is back until a request is served", Unit: report.Millis, Got: inMillis(time.Since(back)), Bound: 1000},
	}, nil
}
