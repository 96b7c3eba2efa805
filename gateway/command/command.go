// Package command is the gateway as a command.
package command

import (
	"context"
	"log/slog"
	"net"

	api "github.com/whence-dev/whence/api-service/command"
	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/gateway"
	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/observe"
)

// New returns the service. Its flags set c.
func New(c *gateway.Config) *cli.Service {
	return &cli.Service{
		Name: "whence-gateway", Listen: edge.DefaultListen, Flags: c.Flags, LibraryLog: edge.LogTo, Pages: c.Edge.Admin.On,
		Check: func() error { return check(c) },
		Run: func(ctx context.Context, ln net.Listener, log *slog.Logger, out observe.Outputs) error {
			c.Edge.Metrics, c.Chat.Metrics = out.Metrics, out.Metrics
			c.Edge.Traces, c.Chat.Traces = out.Traces, out.Traces
			c.Edge.Usage, c.Chat.Usage = out.Usage, out.Usage
			return gateway.Run(ctx, *c, ln, log)
		},
	}
}

// check reports what is wrong with c and with the files that it names.
func check(c *gateway.Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := c.Chat.Check(); err != nil {
		return err
	}
	return api.Check(&c.Edge)
}
