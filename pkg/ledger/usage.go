package ledger

import (
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/usage"
)

// An account has the data that only the usage record of a stream needs. Its Record's mu guards it.
type account struct {
	tenant, key, surface, worker string

	of         string // the stream that this stream is a part of; empty if it is whole
	first      bool   // the stream began on this hop
	resumed    bool   // the stream began on another api-service
	orphaned   bool   // the caller's connection broke before the ending could be sent
	endingSent bool   // to the caller
	called     bool   // the stream has called a hop below
	left       int    // abandoned calls that are not over
	closed     bool   // the stream has ended
	settled    bool   // the usage record was written, or none is due
}

// open begins the account of a stream. It must be called before the first message.
func (r *Record) open(first bool) {
	if r.ledger.Usage == nil {
		return
	}
	r.account = &account{first: first}
	if r.seen == nil { // otherwise the metrics have already called Time
		r.tally.Time()
	}
}

// Charge records the tenant and the id of the API key that pay for a stream, and the API of its
// request. The first hop calls it. Each argument may be empty.
func (r *Record) Charge(tenant, key, surface string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.account; a != nil {
		a.tenant, a.key, a.surface = tenant, key, surface
	}
}

// Resumed records that another api-service began the stream. The tenant and the key of claim pay
// for the stream.
func (r *Record) Resumed(claim *llmv1.Claim) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.account; a != nil {
		a.resumed, a.tenant, a.key = true, claim.GetTenant(), claim.GetKey()
	}
}

// claimed reads the tenant and the key from the request, on all hops after the first.
func (r *Record) claimed(request any) {
	in, ok := request.(interface{ GetClaim() *llmv1.Claim })
	if !ok {
		return
	}
	claim := in.GetClaim()
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.account; a != nil && claim != nil {
		a.tenant, a.key, a.of = claim.GetTenant(), claim.GetKey(), claim.GetWhole()
	}
}

// settle changes the account, and writes the usage record when the account is complete. It tells
// the ledger while it holds mu: two calls at the same time must tell it in their order, or the
// ledger keeps a record that waits for nothing.
func (r *Record) settle(change func(*account)) {
	r.mu.Lock()
	a := r.account
	if a == nil {
		r.mu.Unlock()
		return
	}
	change(a)
	waits := a.closed && a.left > 0 && !a.settled
	due := a.closed && a.left <= 0 && !a.settled
	a.settled = a.settled || due
	r.ledger.owes(r, waits)
	r.mu.Unlock()
	if due {
		r.account.write(r)
	}
}

// owes adds r, whose mutex the caller holds, to the records to be written later, or removes it.
func (l *Ledger) owes(r *Record, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !waits {
		delete(l.owed, r)
		return
	}
	if l.owed == nil {
		l.owed = map[*Record]struct{}{}
	}
	l.owed[r] = struct{}{}
}

// Settle writes the usage records of ended streams that wait for the end of abandoned calls. It is
// called once, after the hop has drained.
func (l *Ledger) Settle() {
	l.mu.Lock()
	owed := l.owed
	l.owed = nil
	l.mu.Unlock()
	for r := range owed {
		r.settle(func(a *account) { a.left = 0 })
	}
}

// write writes the usage record of r, if this hop has to: the first hop always, another hop only if
// its caller cannot.
func (a *account) write(r *Record) {
	kind := usage.Final
	if !a.first {
		if !a.orphaned || a.endingSent {
			return
		}
		kind = usage.Orphan
	}
	r.ledger.Usage.Add(r.usage(kind))
}

// usage returns the usage record with the current figures.
func (r *Record) usage(kind usage.Kind) usage.Record {
	p, first := r.Proto(), r.tally.FirstSent()
	tokens := TokensOf(p)
	path := streamerr.Path(p.GetPath())
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.account
	out := usage.Record{
		Kind: kind, ID: r.id, Hop: r.hop, Tenant: a.tenant, Key: a.key, Model: r.model, Surface: a.surface, Worker: a.answered(p), Resumed: a.resumed, Ignored: r.ignored,
		Prompt: tokens.Prompt, Cached: tokens.Cached, Generated: tokens.Generated, Delivered: tokens.Delivered, Wasted: tokens.Wasted(), Estimated: r.estimated || r.turnsEstimated,
		Reason: r.reason.String(), Origin: path.Origin(), Path: path, Received: r.tally.Began().UTC(), Ended: r.ended.UTC(),
	}
	if a.of != "" {
		out.ID, out.Part = a.of, r.id
	}
	if first > 0 {
		at := out.Received.Add(first)
		out.FirstToken = &at
	}
	return out
}

// engine is the origin of completed answers, and of failures of a model server beside a worker.
const engine = "engine"

// answered returns the last worker of the stream with record p, as far as the hop knows: the path
// of an ending that began at the engine names the worker, and a hop without callees is the worker.
// It returns "" if no worker has admitted the stream.
func (a *account) answered(p *streamv1.Record) string {
	path := p.GetPath()
	switch {
	case len(path) > 1 && path[0] == engine:
		return path[1]
	case !a.called && p.GetModel() != "":
		return p.GetHop()
	default:
		return a.worker
	}
}
