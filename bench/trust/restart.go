package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/bench/trust/stand"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const rollGrace = time.Second // --drain of the rows that restart services

var drained = []string{"--drain", rollGrace.String()}

// pick selects services of a row.
type pick func(*trial) []*stand.Service

func workersOf(t *trial) []*stand.Service { return t.Workers }
func chatsOf(t *trial) []*stand.Service   { return t.Chats }
func edgesOf(t *trial) []*stand.Service   { return t.Edges }

var restartRows = []row{
	{name: "worker drains, another is there", layout: stand.Layout{Workers: 2, Chats: 1, Edges: 1, Worker: drained}, tokens: 200, spared: true, play: drains(workersOf)},
	{name: "chat-service drains, another is there", layout: stand.Layout{Workers: 1, Chats: 2, Edges: 1, Chat: drained}, tokens: 200, spared: true, play: drains(chatsOf)},
	{name: "api-service gets a second signal", layout: stand.Layout{Workers: 1, Chats: 1, Edges: 1}, tokens: 200, play: secondSignal(edgesOf)},
	{name: "chat-service gets a second signal", layout: stand.Layout{Workers: 1, Chats: 1, Edges: 1}, tokens: 200, play: secondSignal(chatsOf)},
	{name: "worker gets a second signal", layout: stand.Layout{Workers: 1, Chats: 1, Edges: 1}, tokens: 200, play: secondSignal(workersOf)},
	{name: "workers restart, one after another", layout: stand.Layout{Workers: 2, Chats: 1, Edges: 1, Worker: drained}, tokens: 400, spared: true, play: rolled(workersOf)},
	{name: "chat-services restart, one after another", layout: stand.Layout{Workers: 1, Chats: 2, Edges: 1, Chat: drained}, tokens: 400, spared: true, play: rolled(chatsOf)},
}

// drains returns the play of a row that sends SIGTERM to one of two services.
func drains(which pick) func(context.Context, *trial) ([]finding, error) {
	return func(_ context.Context, t *trial) ([]finding, error) {
		took, err := which(t)[0].Terminate()
		return []finding{
			{What: "time until the process has ended", Unit: report.Millis, Got: inMillis(took), Bound: inMillis(rollGrace + time.Second)},
			t.pause(500 * time.Millisecond),
		}, err
	}
}

// rolled returns the play of a row that restarts all services of a kind, one after another, while
// streams run and new requests come.
func rolled(which pick) func(context.Context, *trial) ([]finding, error) {
	return func(ctx context.Context, t *trial) ([]finding, error) {
		asking, stop := context.WithCancel(ctx)
		defer stop()
		asked := make(chan []*reader.Reader, 1)
		go func() { asked <- t.askUntil(asking) }()
		var longest time.Duration
		for _, p := range which(t) {
			took, err := p.Terminate()
			if err != nil {
				return nil, err
			}
			longest = max(longest, took)
			if err := t.Launch(p); err != nil {
				return nil, err
			}
			if err := t.Usable(ctx); err != nil {
				return nil, err
			}
		}
		stop()
		all := <-asked
		if len(all) == 0 {
			return nil, errors.New("no request came during the restarts")
		}
		t.finish()
		return []finding{
			{What: "longest time until a process has ended", Unit: report.Millis, Got: inMillis(longest), Bound: inMillis(rollGrace + time.Second)},
			{What: "requests during the restarts that fail", Got: float64(reader.Unanswered(all))},
		}, nil
	}
}

// askUntil asks ten times a second until ctx is canceled.
func (t *trial) askUntil(ctx context.Context) (all []*reader.Reader) {
	for ctx.Err() == nil {
		all = append(all, t.ask(context.WithoutCancel(ctx), "", 10, 500*time.Millisecond)...)
	}
	return all
}

// secondSignal returns the play of a row that sends two signals to the only service of a kind.
func secondSignal(which pick) func(context.Context, *trial) ([]finding, error) {
	return func(_ context.Context, t *trial) ([]finding, error) {
		p := which(t)[0]
		if err := p.Signal(syscall.SIGTERM); err != nil {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
		took, err := p.Terminate()
		if err != nil {
			return nil, err
		}
		t.finish()
		untold := 0
		for _, r := range t.readers {
			if r.Ending != reader.Failed || r.Err.Reason != streamerr.Draining {
				untold++
			}
		}
		return []finding{
			{What: "second signal until the process has ended", Unit: report.Millis, Got: inMillis(took), Bound: 200},
			{What: "clients that are not told draining", Got: float64(untold)},
		}, nil
	}
}
