// Command chat-service answers conversations: chat template, tokens, a worker, and text again.
package main

import (
	"context"
	"flag"
	"log/slog"
	"net"

	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/internal/observe"
	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

func main() {
	var c server.Config
	var watched observe.Config
	process.Main("chat-service", server.DefaultListen, func(fs *flag.FlagSet) { c.Flags(fs); watched.Flags(fs) }, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
		kitexrpc.LogTo(process.Lines(log, "kitex"))
		return watched.Run("chat-service", log, func(out observe.Outputs) error {
			c.Metrics, c.Traces, c.Usage = out.Metrics, out.Traces, out.Usage
			return server.Run(ctx, c, ln, log)
		})
	})
}
