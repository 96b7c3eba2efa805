// Command llm-worker serves an engine over gRPC: token ids in, token ids out.
package main

import (
	"context"
	"log/slog"
	"net"

	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/process"
)

func main() {
	var c worker.Config
	process.Main("llm-worker", worker.DefaultListen, c.Flags, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
		return worker.Run(ctx, c, ln, log)
	})
}
