package streamtrace

import (
	"flag"
	"fmt"
	"log/slog"
)

// Values of --trace.
const (
	on  = "on"
	off = "off"
)

// A Config says what a process keeps of its streams, and who is shown it. The zero value is on, and keeps events of state.
type Config struct {
	Trace    string // on or off; "" is on
	Messages int    // of the first and of the last messages in each direction
}

// maxMessages bounds what a stream can cost: 16 bytes for each, four times.
const maxMessages = 10000

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Trace, "trace", on, "on keeps what happens to each stream, header by header and message by message; off keeps nothing of that")
	fs.IntVar(&c.Messages, "trace-messages", DefaultMessages, "how many of the first messages of a stream are kept in each direction, and how many of the last; 0 for none")
}

// Validate reports what is wrong with c.
func (c *Config) Validate() error {
	switch {
	case c.Trace != "" && c.Trace != on && c.Trace != off:
		return fmt.Errorf("--trace is %.64q; it must be on or off", c.Trace)
	case c.Messages < 0 || c.Messages > maxMessages:
		return fmt.Errorf("--trace-messages is %d; it must be 0 to %d", c.Messages, maxMessages)
	}
	return nil
}

// Run runs a process's services with a tracer of c, which is nil if traces are off.
func (c *Config) Run(name string, log *slog.Logger, services func(*Tracer) error) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Trace == off {
		return services(nil)
	}
	return services(&Tracer{Messages: c.Messages})
}
