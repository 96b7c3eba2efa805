// Command llm-worker serves an engine over gRPC: token ids in, token ids out.
package main

import (
	"context"
	"flag"
	"log/slog"
	"net"

	"github.com/whence-dev/whence/internal/observe"
	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/llm-worker/worker"
)

func main() {
	var c worker.Config
	var watched observe.Config
	process.Main("llm-worker", worker.DefaultListen, func(fs *flag.FlagSet) { c.Flags(fs); watched.Flags(fs) }, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
		return watched.Run("llm-worker", log, func(out observe.Outputs) error {
			c.Metrics, c.Traces, c.Usage = out.Metrics, out.Traces, out.Usage
			return worker.Run(ctx, c, ln, log)
		})
	})
}
