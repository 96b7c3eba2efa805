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
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

func main() {
	var c server.Config
	var watched observe.Config
	process.Main("chat-service", server.DefaultListen, func(fs *flag.FlagSet) { c.Flags(fs); watched.Flags(fs) }, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
		kitexrpc.LogTo(process.Lines(log, "kitex"))
		return watched.Run("chat-service", log, func(m *metrics.Metrics, t *streamtrace.Tracer) error {
			c.Metrics, c.Traces = m, t
			return server.Run(ctx, c, ln, log)
		})
	})
}
