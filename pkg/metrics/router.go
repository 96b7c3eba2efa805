package metrics

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Router has the metrics of a hop that chooses workers. A nil Router accepts all calls.
type Router struct {
	hop    *Hop
	policy attribute.KeyValue
	add    map[string][]metric.AddOption // by the worker's role
}

// The roles of workers, as label values.
const (
	RoleBoth    = "both"
	RolePrefill = "prefill"
	RoleDecode  = "decode"
)

// Router returns the metrics of a hop that chooses workers by policy, or nil if the hop is nil. The
// name of the policy must come from the configuration.
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

// Chose records that a worker with the given role was chosen.
func (r *Router) Chose(role string) {
	if r != nil {
		r.hop.chosen.Add(context.Background(), 1, r.add[role]...)
	}
}

// Expect records how many tokens of a prompt are expected in the cache of the worker that reads it.
// It ignores a negative number, which means unknown.
func (r *Router) Expect(expected int) {
	if r != nil && expected >= 0 {
		r.hop.expected.Add(context.Background(), int64(expected), r.hop.add...)
	}
}

// HandedOver records a handover of a prompt between two workers: its result and its duration. The
// reason is COMPLETED if it succeeded.
func (r *Router) HandedOver(reason streamerr.Reason, took time.Duration) {
	if r != nil {
		r.hop.handover.Record(context.Background(), took.Seconds(), metric.WithAttributes(r.hop.name, reasonLabel(reason)))
	}
}

// Retried counts a stream that continued on another worker after a failure: by a retry before the
// stream's first token, or by a move after it.
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

// Unretried records that a request was not retried because the retry budget was used up.
func (r *Router) Unretried() {
	if r != nil {
		r.hop.unretried.Add(context.Background(), 1, r.hop.add...)
	}
}

// Cooled records that a worker was ejected for a cool-down.
func (r *Router) Cooled(reason streamerr.Reason) {
	if r != nil {
		r.hop.cooled.Add(context.Background(), 1, metric.WithAttributes(r.hop.name, reasonLabel(reason)))
	}
}
