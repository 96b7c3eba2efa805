// Package monitor measures the streams of any service, over any transport.
//
// A Monitor belongs to a process. A Stream is one side of one stream. The suite of a framework
// begins the Stream, records each message, header, reset and trailer, and ends the Stream with a
// typed cause and a path. The Monitor has the counts, first-message times, gaps and endings of all
// methods, and exports a Record of a stream when it ends: always if the stream was broken or slow,
// otherwise by a ratio of trace ids. Package telemetry, a module of its own, makes spans and metrics
// of OpenTelemetry and Prometheus from them.
//
// A message takes no lock that streams share, reads the clock once and allocates nothing. The
// events of a stream are bounded: the first and the last messages, and the first and the last 16
// headers, resets and trailers.
package monitor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// A Config configures a Monitor. Only Name must be set.
type Config struct {
	// Name of this service in paths, such as "checkout" or "checkout/0".
	Name string
	// Messages is the number of first and of last messages that a record lists in each direction. 0
	// means 4; a negative number means none.
	Messages int
	// Ratio is the fraction of completed streams to export, 0 to 1. Broken streams are always
	// exported.
	Ratio float64
	// SlowFirst and SlowGap are limits for the first message and for the gap between two messages:
	// to the caller on servers, from the callee on clients. A completed stream past a limit is
	// always exported. 0 means no limit.
	SlowFirst, SlowGap time.Duration
	// ErrorTexts adds the texts of errors to records and to the log. Errors may quote requests and
	// secrets: the default is to export only the reason and the path.
	ErrorTexts bool
	// Exporter receives the records. nil exports none.
	Exporter Exporter
	// Span returns the span of the application's own tracer in a context, or the zero Parent. It
	// becomes the parent of a stream that begins in the context. nil stands for no tracer.
	Span func(context.Context) Parent
	// Log receives one line for each stream that did not complete. nil turns the log off.
	Log *slog.Logger
}

// A Monitor measures the streams of a process. All methods are safe for concurrent use.
type Monitor struct {
	config Config

	mu      sync.Mutex // guards the following fields
	series  map[Method]*series
	methods int // in series, without those named Other
	live    int
	idle    chan struct{} // closed when live becomes 0; nil while Close does not wait
}

// defaultMessages is the default of Config.Messages.
const defaultMessages = 4

// New returns a monitor. The caller must close it.
func New(c Config) *Monitor {
	switch {
	case c.Messages == 0:
		c.Messages = defaultMessages
	case c.Messages < 0:
		c.Messages = 0
	}
	if c.Span == nil {
		c.Span = func(context.Context) Parent { return Parent{} }
	}
	return &Monitor{config: c, series: map[Method]*series{}}
}

// Close waits for live streams and then exports the remaining records, both within ctx. Streams that
// end after Close are not exported.
func (r *Monitor) Close(ctx context.Context) error {
	r.mu.Lock()
	idle := r.idle
	if idle == nil {
		idle = make(chan struct{})
		if r.live == 0 {
			close(idle)
		} else {
			r.idle = idle
		}
	}
	r.mu.Unlock()
	var late error
	select {
	case <-idle:
	case <-ctx.Done():
		late = context.Cause(ctx)
	}
	if r.config.Exporter == nil {
		return late
	}
	return errors.Join(late, r.config.Exporter.Close(ctx))
}

// ended removes one stream from the count of live streams.
func (r *Monitor) ended() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live--
	if r.live == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}
