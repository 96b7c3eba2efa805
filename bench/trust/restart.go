package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const rollGrace = time.Second // --drain of the rows that restart services

var drained = []string{"--drain", rollGrace.String()}

// pick selects services of a row.
type pick func(*trial.Trial) []*lab.Process

func workersOf(t *trial.Trial) []*lab.Process { return t.Workers }
func chatsOf(t *trial.Trial) []*lab.Process   { return t.Chats }
func edgesOf(t *trial.Trial) []*lab.Process   { return t.Edges }

var restartRows = []trial.Row{
	{Name: "llm-worker drains, another one continues", Layout: lab.Layout{Workers: 2, Chats: 1, Edges: 1, Worker: drained}, Tokens: 200, Spared: true, Play: drains(workersOf)},
	{Name: "chat-service drains, another one continues", Layout: lab.Layout{Workers: 1, Chats: 2, Edges: 1, Chat: drained}, Tokens: 200, Spared: true, Play: drains(chatsOf)},
	{Name: "api-service gets a second signal", Layout: lab.Layout{Workers: 1, Chats: 1, Edges: 1}, Tokens: 200, Play: secondSignal(edgesOf)},
	{Name: "chat-service gets a second signal", Layout: lab.Layout{Workers: 1, Chats: 1, Edges: 1}, Tokens: 200, Play: secondSignal(chatsOf)},
	{Name: "llm-worker gets a second signal", Layout: lab.Layout{Workers: 1, Chats: 1, Edges: 1}, Tokens: 200, Play: secondSignal(workersOf)},
	{Name: "workers restart, one after another", Layout: lab.Layout{Workers: 2, Chats: 1, Edges: 1, Worker: drained}, Tokens: 400, Spared: true, Play: rolled(workersOf)},
	{Name: "api-services restart, one after another", Layout: lab.Layout{Workers: 1, Chats: 1, Edges: 2, Edge: drained}, Prepare: withRedis, Kept: true, Tokens: 600, Spared: true, Play: rolled(edgesOf)},
	{Name: "chat-services restart, one after another", Layout: lab.Layout{Workers: 1, Chats: 2, Edges: 1, Chat: drained}, Tokens: 400, Spared: true, Play: rolled(chatsOf)},
}

// drains returns the play of a row that sends SIGTERM to one of two services.
func drains(which pick) func(context.Context, *trial.Trial) ([]trial.Finding, error) {
	return func(_ context.Context, t *trial.Trial) ([]trial.Finding, error) {
		took, err := trial.Terminate(which(t)[0])
		return []trial.Finding{
			{What: "time until the process has ended", Got: trial.InMillis(took)},
			t.Pause(),
		}, err
	}
}

// rolled returns the play of a row that restarts all services of a kind, one after another, while
// streams run and new requests come.
func rolled(which pick) func(context.Context, *trial.Trial) ([]trial.Finding, error) {
	return func(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
		asking, stop := context.WithCancel(ctx)
		defer stop()
		asked := make(chan []*reader.Reader, 1)
		go func() { asked <- askUntil(asking, t) }()
		var longest time.Duration
		for _, p := range which(t) {
			took, err := trial.Terminate(p)
			if err != nil {
				return nil, err
			}
			longest = max(longest, took)
			if err := p.Relaunch(); err != nil {
				return nil, err
			}
			if err := t.Usable(ctx); err != nil {
				return nil, err
			}
			for _, e := range t.Edges {
				if err := e.Answers(ctx, e.Addr); err != nil {
					return nil, err
				}
			}
		}
		stop()
		all := <-asked
		if len(all) == 0 {
			return nil, errors.New("no request came during the restarts")
		}
		t.Finish()
		return []trial.Finding{
			{What: "longest time until a process has ended", Got: trial.InMillis(longest)},
			{What: "requests during the restarts that fail", Got: float64(reader.Unanswered(all))},
		}, nil
	}
}

// askUntil asks ten times a second until ctx is canceled.
func askUntil(ctx context.Context, t *trial.Trial) (all []*reader.Reader) {
	for ctx.Err() == nil {
		all = append(all, t.Ask(context.WithoutCancel(ctx), "", 10, 500*time.Millisecond)...)
	}
	return all
}

// secondSignal returns the play of a row that sends two signals to the only service of a kind.
func secondSignal(which pick) func(context.Context, *trial.Trial) ([]trial.Finding, error) {
	return func(_ context.Context, t *trial.Trial) ([]trial.Finding, error) {
		p := which(t)[0]
		if err := p.Signal(syscall.SIGTERM); err != nil {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
		took, err := trial.Terminate(p)
		if err != nil {
			return nil, err
		}
		t.Finish()
		untold := 0
		for _, r := range t.Readers {
			if r.Ending != reader.Failed || r.Err.Reason != streamerr.Draining {
				untold++
			}
		}
		return []trial.Finding{
			{What: "second signal until the process has ended", Got: trial.InMillis(took)},
			{What: "clients that are not told draining", Got: float64(untold)},
		}, nil
	}
}
