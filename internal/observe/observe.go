// Package observe is how a process is watched, for its main function: the flags of metrics and traces, and what begins before
// its services and ends after them.
package observe

import (
	"flag"
	"log/slog"

	"github.com/whence-dev/whence/internal/otlp"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// A Config says what is kept of a process's streams, and who is shown it. The zero value keeps what happened to each stream, and
// shows it to nobody.
type Config struct {
	Metrics metrics.Config
	Traces  streamtrace.Config
	OTLP    otlp.Collector // of both
}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Metrics.Flags(fs)
	c.Traces.Flags(fs)
	fs.StringVar((*string)(&c.OTLP), "otlp", "", otlp.Usage)
}

// Run runs a process's services with what watches them: either is nil if it is off. Both are there before services is called, and
// what it leaves behind is exported before Run returns.
func (c *Config) Run(name string, log *slog.Logger, services func(*metrics.Metrics, *streamtrace.Tracer) error) error {
	if err := c.OTLP.Validate(); err != nil {
		return err
	}
	return c.Metrics.Run(name, c.OTLP, log, func(m *metrics.Metrics) error {
		return c.Traces.Run(name, c.OTLP, log, func(t *streamtrace.Tracer) error { return services(m, t) })
	})
}
