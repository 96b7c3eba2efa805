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
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

func main() {
	var c worker.Config
	var watched observe.Config
	process.Main("llm-worker", worker.DefaultListen, func(fs *flag.FlagSet) { c.Flags(fs); watched.Flags(fs) }, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
		return watched.Run("llm-worker", log, func(m *metrics.Metrics, t *streamtrace.Tracer) error {
			c.Metrics, c.Traces = m, t
			return worker.Run(ctx, c, ln, log)
		})
	})
}
