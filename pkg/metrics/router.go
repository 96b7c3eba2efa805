package metrics

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Router is what a hop measures of how it chooses workers. A nil Router takes everything.
type Router struct {
	hop    *Hop
	policy attribute.KeyValue
	add    map[string][]metric.AddOption // by the worker's role
}

// The roles of workers, as labels have them.
const (
	RoleBoth    = "both"
	RolePrefill = "prefill"
	RoleDecode  = "decode"
)

// Router returns the metrics of a hop that chooses by this policy, or nil if the hop is nil. The policy's name must come from the
// configuration.
func (h *Hop) Router(policy string) *Router {
	if h == nil {
		return nil
	}
	r := &Router{hop: h, policy: attribute.String("policy", policy), add: map[string][]metric.AddOption{}}
	for _, role := range []string{RoleBoth, RolePrefill, RoleDecode} {
		r.add[role] = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(h.name, r.policy, attribute.String("role", role)))}
	}
	return r
}

// Chose notes that a worker of this role was chosen.
func (r *Router) Chose(role string) {
	if r != nil {
		r.hop.chosen.Add(context.Background(), 1, r.add[role]...)
	}
}

// Expect notes that so many tokens of a prompt are expected in the cache of the worker that reads it; negative if nobody knows.
func (r *Router) Expect(expected int) {
	if r != nil && expected >= 0 {
		r.hop.expected.Add(context.Background(), int64(expected), r.hop.add...)
	}
}

// HandedOver notes that a prompt was read by one worker for another, in so long, or, where the reason is not COMPLETED, that it was
// not.
func (r *Router) HandedOver(reason streamerr.Reason, took time.Duration) {
	if r != nil {
		r.hop.handover.Record(context.Background(), took.Seconds(), metric.WithAttributes(r.hop.name, reasonLabel(reason)))
	}
}

// Retried counts a stream for which another worker was asked after a failure: a retry before the stream's first
// token, a move after it.
func (r *Router) Retried(reason streamerr.Reason, move bool) {
	if r == nil {
		return
	}
	phase := "retry"
	if move {
		phase = "move"
	}
	r.hop.retried.Add(context.Background(), 1, metric.WithAttributes(r.hop.name, reasonLabel(reason), attribute.String("phase", phase)))
}

// Unretried notes that a request was not retried for want of budget.
func (r *Router) Unretried() {
	if r != nil {
		r.hop.unretried.Add(context.Background(), 1, r.hop.add...)
	}
}

// Cooled notes that a worker was ejected for a cool-down.
func (r *Router) Cooled(reason streamerr.Reason) {
	if r != nil {
		r.hop.cooled.Add(context.Background(), 1, metric.WithAttributes(r.hop.name, reasonLabel(reason)))
	}
}
