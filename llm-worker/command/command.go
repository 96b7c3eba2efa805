// Package command is llm-worker as a command.
package command

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/observe"
	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/llm-worker/worker"
)

// New returns the service. Its flags set c.
func New(c *worker.Config) *cli.Service {
	return &cli.Service{
		Name: "llm-worker", Listen: worker.DefaultListen, Flags: c.Flags,
		Check: func() error { return Check(c) },
		Run: func(ctx context.Context, ln net.Listener, log *slog.Logger, out observe.Outputs) error {
			c.Metrics, c.Traces, c.Usage, c.Progress = out.Metrics, out.Traces, out.Usage, out.Progress
			return worker.Run(ctx, *c, ln, log)
		},
	}
}

// Check reports what is wrong with c and with the files that it names.
func Check(c *worker.Config) error {
	if n := len(c.Further); n > 0 {
		return fmt.Errorf("--upstream names %d servers, and a worker has one: start a worker for each of them, with a --listen of its own, or run whence gateway, which has a worker for each", n+1)
	}
	if n := len(c.Models); n > 1 {
		return fmt.Errorf("--upstream-model names %d models, and a worker has one: start a worker for each of them, with a --listen of its own, or run whence gateway, which has a worker for each", n)
	}
	if err := c.Validate(); err != nil {
		return err
	}
	if !c.NeedsWeights() {
		return process.CheckModel(c.Model, "config.json")
	}
	return process.CheckModel(c.Model)
}
