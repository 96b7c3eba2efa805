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

// A Config configures what a process keeps of its streams, and where it exports spans to. The zero
// value keeps state events and exports nothing.
type Config struct {
	Trace    string  // on or off; "" means on
	Messages int     // kept at each end of each direction
	Ratio    float64 // share of the completed streams that are exported, 0 to 1
	File     string  // receives the spans; "" for none
}

const (
	// DefaultRatio is the default share of the completed streams that are exported.
	DefaultRatio = 0.01
	// maxMessages bounds the cost of a stream: four lists of that many messages, of 16 bytes each.
	maxMessages = 10000
)

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Trace, "trace", on, "on keeps the events of each stream (headers, resets, messages) and exports spans; off keeps and exports nothing")
	fs.IntVar(&c.Messages, "trace-messages", DefaultMessages, "number of messages to keep at the beginning and at the end of a stream, per direction; 0 for none")
	fs.Float64Var(&c.Ratio, "trace-ratio", DefaultRatio, "share of the completed streams to export to --otlp and --trace-file, 0 to 1; all other streams are always exported")
	fs.StringVar(&c.File, "trace-file", "", "`file` to append spans to, as lines of OTLP's JSON; at 64 MB the file is renamed to FILE.1; empty disables it")
}

// Validate returns an error if c is invalid.
func (c *Config) Validate() error {
	switch {
	case c.Trace != "" && c.Trace != on && c.Trace != off:
		return fmt.Errorf("--trace is %.64q; it must be on or off", c.Trace)
	case c.Messages < 0 || c.Messages > maxMessages:
		return fmt.Errorf("--trace-messages is %d; it must be 0 to %d", c.Messages, maxMessages)
	case !(c.Ratio >= 0 && c.Ratio <= 1): // and not NaN
		return fmt.Errorf("--trace-ratio is %g; it must be 0 to 1", c.Ratio)
	case c.Trace == off && c.File != "":
		return errors.New("--trace-file needs --trace on")
	}
	return nil
}

// Run runs services with a tracer of c, which is nil if traces are off. The tracer exports spans to
// the collector to, and to the file. Before Run returns, it exports the spans of streams that have
// ended.
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
		if err := end(ctx); err != nil { // a lost collector must not fail a process that has done its work
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

// A loggingExporter logs its own errors, because the SDK passes them to a handler of the whole
// process.
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
