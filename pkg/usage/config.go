package usage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"

	"github.com/whence-dev/whence/internal/otlp"
)

// A Config says where a process writes usage records. The zero value writes none.
type Config struct {
	File string // lines of JSON are appended to it; "-" is the standard output; "" is none
	OTLP bool   // records go to the OpenTelemetry collector as logs
}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.File, "usage-file", "", "`file` that a usage record for each stream is appended to, as a line of JSON; - is the standard output; empty is off")
	fs.BoolVar(&c.OTLP, "usage-otlp", false, "send a usage record for each stream to --otlp, as a log record")
}

// Run runs a process's services with a log of c, which is nil if no records are written. to is the collector. What was added when
// services returns is written before Run does, within a bounded time.
func (c *Config) Run(name string, to otlp.Collector, log *slog.Logger, count Count, services func(*Log) error) error {
	sinks, err := c.sinks(name, to)
	if err != nil {
		return err
	}
	if len(sinks) == 0 {
		return services(nil)
	}
	l := NewLog(log, count, sinks...)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), otlp.Timeout)
		defer cancel()
		if err := l.Close(ctx); err != nil { // a collector that is gone fails no process that has done its work
			log.Warn("the last usage records could not be written", "err", err)
		}
	}()
	return services(l)
}

func (c *Config) sinks(name string, to otlp.Collector) (all []Sink, err error) {
	if c.OTLP {
		if to == "" {
			return nil, errors.New("--usage-otlp needs --otlp, the address of a collector")
		}
		sink, err := newCollector(name, to)
		if err != nil {
			return nil, err
		}
		all = append(all, sink)
	}
	if c.File != "" {
		sink, err := openFile(c.File)
		if err != nil {
			return nil, fmt.Errorf("--usage-file: %w", err)
		}
		all = append(all, sink)
	}
	return all, nil
}
