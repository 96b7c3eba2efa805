package metrics

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// calls counts the gRPC calls of a hop's server.
type calls struct {
	served  atomic.Bool  // there was a call; hops without a gRPC server have no call metrics
	open    atomic.Int64 // calls that are open
	waiting atomic.Int64 // open calls whose first message has not arrived
}

// CallOpened counts a gRPC call that was admitted and waits for its first message.
func (h *Hop) CallOpened() {
	if h != nil {
		h.calls.served.Store(true)
		h.calls.open.Add(1)
		h.calls.waiting.Add(1)
	}
}

// CallBegun counts the first message of a gRPC call.
func (h *Hop) CallBegun() {
	if h != nil {
		h.calls.waiting.Add(-1)
	}
}

// CallClosed counts the end of an admitted gRPC call. begun reports whether the first message had
// arrived.
func (h *Hop) CallClosed(begun bool) {
	if h == nil {
		return
	}
	h.calls.open.Add(-1)
	if !begun {
		h.calls.waiting.Add(-1)
	}
}

// CallRefused counts a gRPC call that exceeded a limit. limit is a word of an enum.
func (h *Hop) CallRefused(limit string) {
	if h != nil {
		h.refusedCalls.Add(context.Background(), 1, metric.WithAttributes(h.name, attribute.String("limit", limit)))
	}
}

// Carried returns a function that counts the streams that h opens to the hop below, by transport. It
// returns nil if h is nil.
func (h *Hop) Carried() func(linked bool) {
	if h == nil {
		return nil
	}
	over := func(transport string) metric.AddOption {
		return metric.WithAttributeSet(attribute.NewSet(h.name, attribute.String("transport", transport)))
	}
	link, grpc := []metric.AddOption{over("link")}, []metric.AddOption{over("grpc")}
	return func(linked bool) {
		transport := grpc
		if linked {
			transport = link
		}
		h.carried.Add(context.Background(), 1, transport...)
	}
}
