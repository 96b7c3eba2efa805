// Command llm-worker serves an engine over gRPC: token ids in, token ids out.
package main

import (
	"context"
	"flag"
	"log/slog"
	"net"

	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/process"
)

func main() {
	var c worker.Config
	var shown metrics.Config
	process.Main("llm-worker", worker.DefaultListen, func(fs *flag.FlagSet) { c.Flags(fs); shown.Flags(fs) }, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
		return shown.Run("llm-worker", log, func(m *metrics.Metrics) error {
			c.Metrics = m
			return worker.Run(ctx, c, ln, log)
		})
	})
}
