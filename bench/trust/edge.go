package main

import (
	"context"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/bench/trust/stand"
	"github.com/whence-dev/whence/bench/trust/trial"
)

var edgeRows = []trial.Row{
	{Name: "api-service killed", Layout: stand.Layout{Workers: 1, Chats: 1, Edges: 1, Worker: []string{"--log-level", "info", "--log-json"}}, Tokens: 200, Play: edgeKilled},
	{Name: "api-service killed, its streams are kept", Layout: stand.Layout{Workers: 1, Chats: 1, Edges: 2}, Prepare: withRedis, Kept: true, Tokens: 500, Spared: true, Play: func(_ context.Context, t *trial.Trial) ([]trial.Finding, error) {
		return strike(t, t.Edges[0], syscall.SIGKILL, 2*time.Second)
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
	err := stand.Await(ctx, "the engine has stopped all streams", func() bool {
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
	return []trial.Finding{{What: "death until the engine has stopped the last stream", Unit: report.Millis, Got: trial.InMillis(last), Bound: 250}}, err
}

var ended = regexp.MustCompile(`"time":"([^"]+)".*"msg":"stream ended","stream":"([^"]+)"`)

// stops returns the time when each stream stopped, from the worker's log: the api-service is dead and
// cannot return the stories.
func stops(t *trial.Trial) map[string]time.Time {
	all := map[string]time.Time{}
	for line := range strings.Lines(t.Workers[0].Output()) {
		if m := ended.FindStringSubmatch(line); m != nil {
			all[m[2]], _ = time.Parse(time.RFC3339Nano, m[1]) // slog's own format
		}
	}
	return all
}
