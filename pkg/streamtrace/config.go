package streamtrace

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/whence-dev/whence/internal/otlp"
)

// Values of --trace.
const (
	on  = "on"
	off = "off"
)

// A Config says what a process keeps of its streams, and who is shown it. The zero value is on, keeps events of state, and
// exports nothing.
type Config struct {
	Trace    string  // on or off; "" is on
	Messages int     // of the first and of the last messages in each direction
	Ratio    float64 // of completed streams that are exported, 0 to 1
	File     string  // that spans are appended to; "" for none
}

const (
	// DefaultRatio is the part of the completed streams that are exported.
	DefaultRatio = 0.01
	// maxMessages bounds what a stream can cost: 16 bytes for each, four times.
	maxMessages = 10000
)

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Trace, "trace", on, "on keeps what happens to each stream, header by header and message by message; off keeps and exports nothing of that")
	fs.IntVar(&c.Messages, "trace-messages", DefaultMessages, "how many of the first messages of a stream are kept in each direction, and how many of the last; 0 for none")
	fs.Float64Var(&c.Ratio, "trace-ratio", DefaultRatio, "part of the completed streams that are exported to --otlp and --trace-file, 0 to 1; all others always are")
	fs.StringVar(&c.File, "trace-file", "", "`file` that spans are appended to, as lines of OTLP's JSON; of its former lines the last 64 MB are in FILE.1; empty is off")
}

// Validate reports what is wrong with c.
func (c *Config) Validate() error {
	switch {
	case c.Trace != "" && c.Trace != on && c.Trace != off:
		return fmt.Errorf("--trace is %.64q; it must be on or off", c.Trace)
	case c.Messages < 0 || c.Messages > maxMessages:
		return fmt.Errorf("--trace-messages is %d; it must be 0 to %d", c.Messages, maxMessages)
	case !(c.Ratio >= 0 && c.Ratio <= 1): // nor NaN
		return fmt.Errorf("--trace-ratio is %g; it must be 0 to 1", c.Ratio)
	case c.Trace == off && c.File != "":
		return errors.New("--trace-file needs --trace on")
	}
	return nil
}

// Run runs a process's services with a tracer of c, which is nil if traces are off. to is who is shown spans, beside the file. What has ended when services returns is exported before Run does.
func (c *Config) Run(name string, to otlp.Collector, log *slog.Logger, services func(*Tracer) error) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Trace == off {
		return services(nil)
	}
	exporters, err := c.exporters(to, log)
	if err != nil {
		return err
	}
	t := &Tracer{Messages: c.Messages, Ratio: c.Ratio}
	if len(exporters) == 0 {
		return services(t)
	}
	end := t.Export(name, exporters...)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), otlp.Timeout)
		defer cancel()
		if err := end(ctx); err != nil { // a collector that is gone fails no process that has done its work
			log.Warn("the last spans could not be exported", "err", err)
		}
	}()
	return services(t)
}

func (c *Config) exporters(to otlp.Collector, log *slog.Logger) (all []sdk.SpanExporter, err error) {
	if c.File != "" {
		f, err := FileExporter(c.File)
		if err != nil {
			return nil, fmt.Errorf("--trace-file: %w", err)
		}
		all = append(all, loggingExporter{f, log, c.File})
	}
	if to != "" {
		e, err := to.Spans(context.Background())
		if err != nil {
			return nil, err
		}
		all = append(all, loggingExporter{e, log, string(to)})
	}
	return all, nil
}

// A loggingExporter logs its own errors: the SDK reports them to a handler that the whole process shares.
type loggingExporter struct {
	sdk.SpanExporter
	log *slog.Logger
	to  string
}

// ExportSpans implements the SDK's SpanExporter.
func (f loggingExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := f.SpanExporter.ExportSpans(ctx, spans); err != nil {
		f.log.Warn("spans could not be exported", "to", f.to, "spans", len(spans), "err", err)
	}
	return nil
}
