package metrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// A Router is what a hop measures of how it chooses workers. A nil Router takes everything.
type Router struct {
	hop *Hop
	add []metric.AddOption
}

// Router returns the metrics of a hop that chooses by this policy, or nil if the hop is nil. The policy's name must come from the
// configuration.
func (h *Hop) Router(policy string) *Router {
	if h == nil {
		return nil
	}
	return &Router{hop: h, add: []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(h.name, attribute.String("policy", policy)))}}
}

// Chose notes that a worker was chosen, in whose cache so many tokens of the prompt are expected; negative if nobody knows.
func (r *Router) Chose(expected int) {
	if r == nil {
		return
	}
	r.hop.chosen.Add(context.Background(), 1, r.add...)
	if expected >= 0 {
		r.hop.expected.Add(context.Background(), int64(expected), r.hop.add...)
	}
}
