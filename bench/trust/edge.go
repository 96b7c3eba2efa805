package main

import (
	"context"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/lab"
)

var edgeRows = []trial.Row{
	{Name: "api-service is killed", Layout: lab.Layout{Workers: 1, Chats: 1, Edges: 1}, Tokens: 200, Play: edgeKilled},
	{Name: "api-service is killed, another one runs its kept streams", Layout: lab.Layout{Workers: 1, Chats: 1, Edges: 2}, Prepare: withRedis, Kept: true, Tokens: 500, Spared: true, Play: func(_ context.Context, t *trial.Trial) ([]trial.Finding, error) {
		return strike(t, t.Edges[0], syscall.SIGKILL)
	}},
}

// edgeKilled kills the only api-service.
func edgeKilled(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
	begun := time.Now()
	if err := t.Edges[0].Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	t.Finish()
	var last time.Duration
	err := lab.Await(ctx, "the engine has stopped all streams", func() bool {
		stops := stops(t)
		last = 0
		for _, r := range t.Readers {
			at, found := stops[r.ID]
			if !found {
				return false
			}
			last = max(last, at.Sub(begun))
		}
		return true
	})
	return []trial.Finding{{What: "death until the engine has stopped the last stream", Got: trial.InMillis(last)}}, err
}

// stops returns the time when each stream stopped, from the worker's log: the api-service is dead and
// cannot return the stories.
func stops(t *trial.Trial) map[string]time.Time {
	all := map[string]time.Time{}
	for _, r := range t.Workers[0].Records() {
		if r.Msg == "stream ended" {
			all[r.Stream] = r.Time
		}
	}
	return all
}
