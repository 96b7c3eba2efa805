// Package observe sets up the metrics, traces and usage records of a process for its main function:
// their flags, and exporters that start before the services and stop after them.
package observe

import (
	"flag"
	"log/slog"

	"github.com/whence-dev/whence/internal/otlp"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/usage"
)

// A Config configures the metrics, traces and usage records of a process. The zero value records the
// events of each stream, and exports nothing.
type Config struct {
	Metrics metrics.Config
	Traces  streamtrace.Config
	Usage   usage.Config
	OTLP    otlp.Collector // for metrics, traces and, if Usage says so, usage records
}

// Outputs are what the services of a process write to. A nil field is off.
type Outputs struct {
	Metrics *metrics.Metrics
	Traces  *streamtrace.Tracer
	Usage   *usage.Log
}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Metrics.Flags(fs)
	c.Traces.Flags(fs)
	c.Usage.Flags(fs)
	fs.StringVar((*string)(&c.OTLP), "otlp", "", otlp.Usage)
}

// Run runs a process's services with its outputs. They are ready before services is called, and the
// remaining data is exported before Run returns.
func (c *Config) Run(name string, log *slog.Logger, services func(Outputs) error) error {
	if err := c.OTLP.Validate(); err != nil {
		return err
	}
	return c.Metrics.Run(name, c.OTLP, log, func(m *metrics.Metrics) error {
		return c.Usage.Run(name, c.OTLP, log, m.Recorded, func(u *usage.Log) error {
			return c.Traces.Run(name, c.OTLP, log, func(t *streamtrace.Tracer) error { return services(Outputs{m, t, u}) })
		})
	})
}
