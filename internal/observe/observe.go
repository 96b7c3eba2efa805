// Package observe sets up the metrics, traces and usage records of a process for its main function:
// their flags, and exporters that start before the services and stop after them. It also has the
// memory of bursts returned to the system, and logs when file descriptors run out.
package observe

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"sync"

	"github.com/whence-dev/whence/internal/descriptors"
	"github.com/whence-dev/whence/internal/flags"
	"github.com/whence-dev/whence/internal/otlp"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/usage"
)

// A Config configures the metrics, traces and usage records of a process. The zero value records
// the events of each stream, and exports nothing.
type Config struct {
	Metrics metrics.Config
	Traces  streamtrace.Config
	Usage   usage.Config
	OTLP    otlp.Collector // for metrics, traces and, if enabled in Usage, usage records
}

// Outputs are the destinations of a process's metrics, traces and usage records. A nil field is
// disabled.
type Outputs struct {
	Metrics *metrics.Metrics
	Traces  *streamtrace.Tracer
	Usage   *usage.Log
	// Progress is a terminal on which a service may draw its progress, in one line that it removes; nil
	// if the log does not go to a terminal.
	Progress io.Writer
}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Metrics.Flags(fs)
	c.Traces.Flags(fs)
	c.Usage.Flags(fs)
	fs.StringVar((*string)(&c.OTLP), "otlp", "", otlp.Usage)
	flags.Group(fs, flags.Observability)
}

// Validate reports what is wrong with c.
func (c *Config) Validate() error {
	for _, validate := range []func() error{c.OTLP.Validate, c.Metrics.Validate, c.Traces.Validate} {
		if err := validate(); err != nil {
			return err
		}
	}
	return c.Usage.Validate(c.OTLP)
}

// Run runs services with their outputs. The outputs are ready before services is called, and the
// remaining data is exported before Run returns. The caller has validated c.
func (c *Config) Run(name string, log *slog.Logger, services func(Outputs) error) error {
	ctx, stop := context.WithCancel(context.Background())
	var returning sync.WaitGroup
	defer returning.Wait()
	defer stop()
	returning.Go(func() { returnMemory(ctx) })
	returning.Go(func() { descriptors.Watch(ctx, log) })
	return c.Metrics.Run(name, c.OTLP, log, func(m *metrics.Metrics) error {
		return c.Usage.Run(name, c.OTLP, log, m.Recorded, func(u *usage.Log) error {
			return c.Traces.Run(name, c.OTLP, log, func(t *streamtrace.Tracer) error { return services(Outputs{Metrics: m, Traces: t, Usage: u}) })
		})
	})
}
