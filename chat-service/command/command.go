// Package command is chat-service as a command.
package command

import (
	"cmp"
	"context"
	"log/slog"
	"net"

	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/observe"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

// New returns the service. Its flags set c.
func New(c *server.Config) *cli.Service {
	return &cli.Service{
		Name: "chat-service", Listen: server.DefaultListen, Flags: c.Flags, LibraryLog: kitexrpc.LogTo,
		Check: func() error { return cmp.Or(c.MTLS.ValidateCallee(), c.Check()) },
		Run: func(ctx context.Context, ln net.Listener, log *slog.Logger, out observe.Outputs) error {
			c.Metrics, c.Traces, c.Usage = out.Metrics, out.Traces, out.Usage
			return server.Run(ctx, *c, ln, log)
		},
	}
}
