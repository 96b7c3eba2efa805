package main

import (
	"context"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/process"
	"github.com/whence-dev/whence/bench/trust/stand"
)

var dependencyRows = []row{
	{name: "Redis is frozen", layout: stand.Layout{Workers: 1, Chats: 1, Edges: 1}, prepare: withRedis, tokens: 400, spared: true, play: redisAway(syscall.SIGSTOP)},
	{name: "Redis is killed", layout: stand.Layout{Workers: 1, Chats: 1, Edges: 1}, prepare: withRedis, tokens: 400, spared: true, play: redisAway(syscall.SIGKILL)},
}

// redisAway returns the play of a row in which Redis gets a signal. No stream of the row is kept, so
// none may notice.
func redisAway(signal syscall.Signal) func(context.Context, *trial) ([]finding, error) {
	return func(ctx context.Context, t *trial) ([]finding, error) {
		const lasts = 5 * time.Second
		before := t.ask(ctx, "", 20, lasts)
		if err := t.Others[0].Signal(signal); err != nil {
			return nil, err
		}
		after := t.ask(ctx, "", 20, lasts)
		silent := 1.0
		if err := stand.Await(ctx, "the log says that Redis does not answer", func() bool { return says(t.Edges[0].Process, "redis does not answer") }); err == nil {
			silent = 0
		}
		t.finish()
		return append(beside(before, after, 5), finding{What: "api-services whose logs do not name Redis", Got: silent}), nil
	}
}

// says reports whether the log of a process contains a text.
func says(p *process.Process, text string) bool { return strings.Contains(p.Output(), text) }
