package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// A Collector takes pushes of OpenTelemetry over HTTP and throws them away.
type Collector struct {
	Addr string

	server  http.Server
	pushes  atomic.Int64
	stalled chan struct{} // closed by Stall
	served  chan struct{} // closed when the server has ended
}

// NewCollector starts a collector.
func NewCollector() (*Collector, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Collector{Addr: l.Addr().String(), stalled: make(chan struct{}), served: make(chan struct{})}
	c.server.Handler, c.server.ReadHeaderTimeout = http.HandlerFunc(c.take), time.Second
	go func() {
		_ = c.server.Serve(l) // until Close
		close(c.served)
	}()
	return c, nil
}

// take takes a push. A collector that is stalled does not answer.
func (c *Collector) take(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	c.pushes.Add(1)
	select {
	case <-c.stalled:
		<-r.Context().Done()
	default:
	}
}

// Stall makes the collector answer no more pushes. It is called once.
func (c *Collector) Stall() error {
	close(c.stalled)
	return nil
}

// Used reports whether a service has pushed anything: otherwise a fault would change nothing.
func (c *Collector) Used() bool { return c.pushes.Load() > 0 }

// Close ends the collector.
func (c *Collector) Close() error {
	err := c.server.Close()
	<-c.served
	return err
}
