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
	"github.com/whence-dev/whence/pkg/streamtrace"
)

func main() {
	var c worker.Config
	var shown metrics.Config
	var traced streamtrace.Config
	process.Main("llm-worker", worker.DefaultListen, func(fs *flag.FlagSet) { c.Flags(fs); shown.Flags(fs); traced.Flags(fs) }, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
		return shown.Run("llm-worker", log, func(m *metrics.Metrics) error {
			c.Metrics = m
			return traced.Run("llm-worker", shown.OTLP, log, func(t *streamtrace.Tracer) error {
				c.Traces = t
				return worker.Run(ctx, c, ln, log)
			})
		})
	})
}
