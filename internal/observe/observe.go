// Package observe sets up the metrics and traces of a process for its main function: their flags,
// and exporters that start before the services and stop after them.
package observe

import (
	"flag"
	"log/slog"

	"github.com/whence-dev/whence/internal/otlp"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// A Config configures the metrics and traces of a process. The zero value records the events of
// each stream, and exports nothing.
type Config struct {
	Metrics metrics.Config
	Traces  streamtrace.Config
	OTLP    otlp.Collector // for metrics and traces
}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Metrics.Flags(fs)
	c.Traces.Flags(fs)
	fs.StringVar((*string)(&c.OTLP), "otlp", "", otlp.Usage)
}

// Run runs a process's services with metrics and traces; either is nil if it is off. Both are ready
// before services is called, and the remaining data is exported before Run returns.
func (c *Config) Run(name string, log *slog.Logger, services func(*metrics.Metrics, *streamtrace.Tracer) error) error {
	if err := c.OTLP.Validate(); err != nil {
		return err
	}
	return c.Metrics.Run(name, c.OTLP, log, func(m *metrics.Metrics) error {
		return c.Traces.Run(name, c.OTLP, log, func(t *streamtrace.Tracer) error { return services(m, t) })
	})
}
