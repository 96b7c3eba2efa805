package main

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/bench/trust/stand"
	"github.com/whence-dev/whence/client"
)

var edgeRows = []row{
	{name: "api-service killed", layout: stand.Layout{Workers: 1, Chats: 1, Edges: 1, Worker: []string{"--log-level", "info", "--log-json"}}, tokens: 200, play: edgeKilled},
	{name: "api-service killed, its streams are kept", layout: stand.Layout{Workers: 1, Chats: 1, Edges: 2}, prepare: withRedis, kept: true, tokens: 500, spared: true, play: func(_ context.Context, t *trial) ([]finding, error) {
		return t.strike(t.Edges[0], syscall.SIGKILL, 2*time.Second)
	}},
}

// withRedis starts a Redis that the api-services use.
func withRedis(t *trial, l *stand.Layout) error {
	url, err := t.Redis()
	l.Edge = append(slices.Clone(l.Edge), "--redis", url, "--token-key", "trust")
	return err
}

// keep creates kept streams at the first edge and reads them at the second edge.
func (t *trial) keep(ctx context.Context, n int) error {
	maker, err := client.New("http://"+t.Edges[0].Addr, client.Options{})
	if err != nil {
		return err
	}
	other, err := client.New("http://"+t.Edges[1].Addr, client.Options{})
	if err != nil {
		return err
	}
	ask := client.Request{
		Model: reader.Model, Messages: []client.Message{{Role: "user", Content: reader.Prompt}}, MaxTokens: t.row.tokens, Temperature: new(0.0),
		Extra: map[string]any{"seed": 1, "ignore_eos": true},
	}
	for range n {
		made, err := maker.Stream(ctx, ask)
		if err != nil {
			return err
		}
		r := t.newReader(made.ID())
		t.run(func() { r.Follow(ctx, other.Resume(made.ID(), made.Cursor())) })
	}
	return t.flowing(ctx)
}

// edgeKilled kills the only api-service.
func edgeKilled(ctx context.Context, t *trial) ([]finding, error) {
	begun := time.Now()
	if err := t.Edges[0].Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	t.finish()
	var last time.Duration
	err := stand.Await(ctx, "the engine has stopped all streams", func() bool {
		stops := t.stops()
		last = 0
		for _, r := range t.readers {
			at, found := stops[r.ID]
			if !found {
				return false
			}
			last = max(last, at.Sub(begun))
		}
		return true
	})
	return []finding{{What: "death until the engine has stopped the last stream", Unit: report.Millis, Got: inMillis(last), Bound: 250}}, err
}

var ended = regexp.MustCompile(`"time":"([^"]+)".*"msg":"stream ended","stream":"([^"]+)"`)

// stops reads from the worker's log when each stream stopped. Its api-service is dead, and tells no story.
func (t *trial) stops() map[string]time.Time {
	all := map[string]time.Time{}
	for line := range strings.Lines(t.Workers[0].Output()) {
		if m := ended.FindStringSubmatch(line); m != nil {
			all[m[2]], _ = time.Parse(time.RFC3339Nano, m[1]) // slog's own format
		}
	}
	return all
}
