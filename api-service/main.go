// Command api-service serves OpenAI-compatible HTTP with server-sent events, in front of a
// chat-service.
package main

import (
	"context"
	"flag"
	"log/slog"
	"net"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/observe"
	"github.com/whence-dev/whence/internal/process"
)

func main() {
	var c edge.Config
	var watched observe.Config
	process.Main("api-service", edge.DefaultListen, func(fs *flag.FlagSet) { c.Flags(fs); watched.Flags(fs) }, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
		edge.LogTo(process.Lines(log, "cloudwego"))
		return watched.Run("api-service", log, func(out observe.Outputs) error {
			c.Metrics, c.Traces, c.Usage = out.Metrics, out.Traces, out.Usage
			return edge.Run(ctx, c, ln, log)
		})
	})
}
