package usage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"

	"github.com/whence-dev/whence/internal/otlp"
)

// A Config configures where a process writes usage records. The zero value writes none.
type Config struct {
	File string // receives the records as lines of JSON; "-" means the standard output, "" means no file
	OTLP bool   // send the records to the OpenTelemetry collector as logs
}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.File, "usage-file", "", "`file` to append a usage record for each stream to, as a line of JSON; - means the standard output, empty disables it")
	fs.BoolVar(&c.OTLP, "usage-otlp", false, "send a usage record for each stream to --otlp, as a log record")
}

// Validate reports what is wrong with c. to is the collector.
func (c *Config) Validate(to otlp.Collector) error {
	if c.OTLP && to == "" {
		return errors.New("--usage-otlp needs --otlp, the address of a collector")
	}
	return nil
}

// Run runs a process's services with a log of c, which is nil if no records are written. to is the
// collector. Records that were added before services returned are written before Run returns,
// within a bounded time.
func (c *Config) Run(name string, to otlp.Collector, log *slog.Logger, count Count, services func(*Log) error) error {
	if err := c.Validate(to); err != nil {
		return err
	}
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
		if err := l.Close(ctx); err != nil { // a lost collector must not fail a process that has done its work
			log.Warn("the last usage records could not be written", "err", err)
		}
	}()
	return services(l)
}

func (c *Config) sinks(name string, to otlp.Collector) (all []Sink, err error) {
	if c.OTLP {
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
