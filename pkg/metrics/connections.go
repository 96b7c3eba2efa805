package metrics

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// connections counts the connections of the clients of a hop.
type connections struct {
	served atomic.Bool  // there was a connection; hops without clients have no connection metrics
	open   atomic.Int64 // connections that are open
}

// ConnectionOpened counts a connection of a client.
func (h *Hop) ConnectionOpened() {
	if h != nil {
		h.connections.served.Store(true)
		h.connections.open.Add(1)
	}
}

// ConnectionClosed counts the end of a connection.
func (h *Hop) ConnectionClosed() {
	if h != nil {
		h.connections.open.Add(-1)
	}
}

// ConnectionRefused counts a connection that met a limit. limit is a word of an enum.
func (h *Hop) ConnectionRefused(limit string) {
	if h != nil {
		h.refusedConnections.Add(context.Background(), 1, metric.WithAttributes(h.name, attribute.String("limit", limit)))
	}
}
