// Command api-service answers HTTP and server-sent events, OpenAI-compatible, in front of a chat-service.
package main

import (
	"context"
	"log/slog"
	"net"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/pkg/process"
)

func main() {
	var c edge.Config
	process.Main("api-service", edge.DefaultListen, c.Flags, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
		edge.LogTo(process.Lines(log, "cloudwego"))
		return edge.Run(ctx, c, ln, log)
	})
}
