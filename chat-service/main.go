// Command chat-service answers conversations: chat template, tokens, a worker, and text again.
package main

import (
	"context"
	"log/slog"
	"net"

	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/pkg/process"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

func main() {
	var c server.Config
	process.Main("chat-service", server.DefaultListen, c.Flags, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
		kitexrpc.LogTo(process.Lines(log, "kitex"))
		return server.Run(ctx, c, ln, log)
	})
}
