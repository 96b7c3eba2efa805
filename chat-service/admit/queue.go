package admit

import (
	"cmp"
	"math"
	"slices"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// agesAfter is the waiting time after which a stream counts as one tier more urgent, repeatedly, so
// that no tier starves.
const agesAfter = 30 * time.Second

// share is the part of the queue that one named tenant may occupy, so that other tenants can wait
// too.
const share = 0.5

// maxGone is the maximum number of tenants without a stream that are remembered.
const maxGone = 256

// maxReturns is how often a stream may return to the queue. Each time it is on hold for twice as
// long, 3.75 s in all. By then the probes have found a worker that is gone.
const maxReturns = 4

// tiers is the number of tiers; tier 0 is the least urgent.
const tiers = 3

// A tenant shares the workers with other tenants. All requests without a tenant share one.
type tenant struct {
	name    string
	weight  float64
	waiting [tiers][]*ticket // in order of arrival
	tokens  int              // of the waiting prompts
	running int
	// served is the number of prompt and answer tokens that the tenant was served, divided by its
	// weight. The tenant with the lowest counter is next.
	served float64
}

func (t *tenant) active() bool {
	return t.running > 0 || t.queued() > 0
}

func (t *tenant) queued() (n int) {
	for _, line := range t.waiting {
		n += len(line)
	}
	return n
}

// head returns the tenant's next stream in a tier: the oldest stream of that tier, or of a lower
// tier if it has waited long enough to count as that urgent. It skips streams on hold, and returns
// nil if there is none.
func (t *tenant) head(tier int, now time.Time) (first *ticket) {
	for below := 0; below <= tier; below++ {
		oldest := t.oldest(tier-below, now)
		if oldest != nil && now.Sub(oldest.arrived) >= time.Duration(below)*agesAfter && (first == nil || oldest.arrived.Before(first.arrived)) {
			first = oldest
		}
	}
	return first
}

// oldest returns the oldest stream of a tier that is not on hold, or nil if there is none.
func (t *tenant) oldest(tier int, now time.Time) *ticket {
	for _, waiting := range t.waiting[tier] {
		if !now.Before(waiting.notBefore) {
			return waiting
		}
	}
	return nil
}

// remove takes a stream out of its line.
func (t *tenant) remove(waiting *ticket) {
	line := t.waiting[waiting.tier]
	if line[0] == waiting { // almost always
		line[0] = nil // otherwise the slice's array would keep the ticket alive
		t.waiting[waiting.tier] = line[1:]
		return
	}
	i := slices.Index(line, waiting)
	t.waiting[waiting.tier] = slices.Delete(line, i, i+1)
}

func tierOf(c *llmv1.Claim) int {
	switch c.GetTier() {
	case llmv1.Tier_TIER_FLEX:
		return 0
	case llmv1.Tier_TIER_PRIORITY:
		return 2
	default:
		return 1
	}
}

// enter takes a place at a worker or in the queue, or returns why there is neither.
func (q *Queue) enter(claim *llmv1.Claim, tokens int) (*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	t := &ticket{tier: tierOf(claim), tokens: tokens, arrived: now, ready: make(chan struct{})}
	t.tenant = q.tenant(claim)
	q.dispatch(now)     // there may be unnoticed room, and the waiting streams come first
	if q.hasRoom(now) { // all waiting streams are on hold
		q.admit(t)
		return t, nil
	}
	err := q.full(t)
	if q.outlasted(now) {
		err = q.unavailable()
	}
	if err != nil {
		q.forget()
		return nil, err
	}
	q.queue(t)
	return t, nil
}

// full returns why a stream cannot wait, or nil.
func (q *Queue) full(t *ticket) error {
	var err *streamerr.Error
	switch {
	case q.waiting >= q.opts.MaxStreams:
		err = streamerr.New(streamerr.Overloaded, "%d streams are running and %d are waiting; the queue is full", q.running, q.waiting)
	case q.tokens+t.tokens > q.opts.MaxTokens && q.waiting > 0: // a prompt of any length may wait alone
		err = streamerr.New(streamerr.Overloaded, "prompts of %d tokens are waiting; the queue has no room for a prompt of %d tokens", q.tokens, t.tokens)
	case t.tenant.name != "" && (float64(t.tenant.queued()) >= math.Ceil(share*float64(q.opts.MaxStreams)) ||
		t.tenant.tokens > 0 && float64(t.tenant.tokens+t.tokens) > share*float64(q.opts.MaxTokens)):
		err = streamerr.New(streamerr.Overloaded, "%d streams of %s are waiting, and the queue has no room for more of its streams", t.tenant.queued(), t.tenant.name)
	default:
		return nil
	}
	err.RetryAfter = q.turnover.After(q.waiting)
	return err
}

// leave releases a place.
func (q *Queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch t.state {
	case running:
		q.vacate(t)
		q.turnover.Freed()
	case queued:
		t.tenant.remove(t)
		q.unqueue(t)
	case expired: // its place was released before
	}
	q.dispatch(time.Now())
	q.forget()
}

// restore returns a stream that reached no worker to its place in the queue. It returns false if
// the stream must end with why: there is a healthy worker and why is not the loss of a worker, so
// another attempt would fail the same way; the stream has returned maxReturns times, or for as long
// as an outage may last; or the queue is full. The stream is on hold for a moment, in which probes
// find out about the worker. Its place at the workers goes to the next stream.
func (q *Queue) restore(t *ticket, why *streamerr.Error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if _, healthy := q.opts.Room(); !lostWorker(why) && (healthy || why.Reason != streamerr.Unavailable) {
		return false
	}
	if t.returns == 0 {
		t.returned = now
	}
	if t.returns >= maxReturns || now.Sub(t.returned) >= q.opts.Outage || q.full(t) != nil {
		return false
	}
	q.vacate(t)
	t.tenant.served -= float64(t.tokens) / t.tenant.weight // no worker has read its prompt
	t.state, t.ready, t.notBefore = queued, make(chan struct{}), now.Add(lookEvery<<t.returns)
	t.returns++
	q.queue(t)
	q.dispatch(now)
	return true
}

// charge adds answer tokens of a stream to its tenant's service counter.
func (q *Queue) charge(t *ticket, tokens int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.tenant.served += float64(tokens) / t.tenant.weight
}

// dispatch admits waiting streams in order while there is room.
func (q *Queue) dispatch(now time.Time) {
	for q.waiting > 0 && q.hasRoom(now) {
		t := q.next(now)
		if t == nil {
			return
		}
		t.tenant.remove(t)
		q.unqueue(t)
		q.admit(t)
	}
}

// hasRoom reports whether another stream may run. It records the beginning and the end of an
// outage.
func (q *Queue) hasRoom(now time.Time) bool {
	places, healthy := q.opts.Room()
	switch {
	case healthy:
		q.down = time.Time{}
	case q.down.IsZero():
		q.down = now
	}
	return healthy && (places < 0 || q.running < places)
}

// outlasted reports whether the outage has lasted longer than streams wait.
func (q *Queue) outlasted(now time.Time) bool {
	return !q.down.IsZero() && now.Sub(q.down) >= q.opts.Outage
}

// expire ends the waiting streams if an outage has lasted too long.
func (q *Queue) expire(now time.Time) {
	if !q.outlasted(now) {
		return
	}
	for _, tenant := range q.tenants {
		for tier, line := range tenant.waiting {
			for _, t := range line {
				t.state = expired
				q.unqueue(t)
				close(t.ready)
			}
			tenant.waiting[tier] = nil
		}
	}
}

func (q *Queue) admit(t *ticket) {
	t.state = running
	q.running++
	t.tenant.running++
	t.tenant.served += float64(t.tokens) / t.tenant.weight
	close(t.ready)
	if q.opts.Admitted != nil && t.returns == 0 {
		q.opts.Admitted(time.Since(t.arrived))
	}
}

// vacate releases a stream's place at the workers.
func (q *Queue) vacate(t *ticket) {
	q.running--
	t.tenant.running--
}

// queue inserts a stream into the line of its tenant and tier, in order of arrival.
func (q *Queue) queue(t *ticket) {
	line := t.tenant.waiting[t.tier]
	i := len(line)
	for i > 0 && t.arrived.Before(line[i-1].arrived) {
		i--
	}
	t.tenant.waiting[t.tier] = slices.Insert(line, i, t)
	t.tenant.tokens += t.tokens
	q.waiting++
	q.tokens += t.tokens
}

func (q *Queue) unqueue(t *ticket) {
	t.tenant.tokens -= t.tokens
	q.waiting--
	q.tokens -= t.tokens
}

// next returns the stream to admit next: in the most urgent tier with a waiting stream, the oldest
// stream of the tenant with the least service. It skips streams on hold, and returns nil if there
// is none.
func (q *Queue) next(now time.Time) *ticket {
	for tier := tiers - 1; tier >= 0; tier-- {
		var best *ticket
		// wanted means that a stream of this tier itself waits. Aged streams of lower tiers need
		// not be admitted early if there is none.
		wanted := false
		for _, t := range q.tenants {
			wanted = wanted || t.oldest(tier, now) != nil
			if head := t.head(tier, now); head != nil && (best == nil || before(head, best)) {
				best = head
			}
		}
		if wanted {
			return best
		}
	}
	return nil
}

// before reports whether stream a goes before stream b of the same tier: its tenant has the lower
// service counter, or else fewer running streams (whose tokens are not charged yet), or else a
// arrived first.
func before(a, b *ticket) bool {
	return cmp.Or(
		cmp.Compare(a.tenant.served, b.tenant.served),
		cmp.Compare(a.tenant.running, b.tenant.running),
		a.arrived.Compare(b.arrived),
	) < 0
}

// tenant returns the tenant of a claim. The service counter of a returning tenant is raised to the
// lowest counter of the active tenants, so that a tenant cannot save up service while it is absent.
func (q *Queue) tenant(claim *llmv1.Claim) *tenant {
	t := q.tenants[claim.GetTenant()]
	if t == nil {
		t = &tenant{name: claim.GetTenant()}
		q.tenants[t.name] = t
	}
	if least := q.minServed(); !t.active() && !math.IsInf(least, 1) {
		t.served = max(t.served, least)
	}
	t.weight = float64(max(claim.GetWeight(), 1))
	return t
}

// minServed returns the lowest service counter among the active tenants, or +Inf if there are none.
func (q *Queue) minServed() float64 {
	least := math.Inf(1)
	for _, t := range q.tenants {
		if t.active() {
			least = min(least, t.served)
		}
	}
	return least
}

// forget drops the tenants without a stream whose counters are no higher than a new tenant's. The
// others are kept: a tenant that sends its next request after each answer is absent for a moment
// each time, and would always come first if it were forgotten.
func (q *Queue) forget() {
	least, gone := q.minServed(), 0
	for name, t := range q.tenants {
		if !t.active() {
			if gone++; t.served <= least || gone > maxGone {
				delete(q.tenants, name)
			}
		}
	}
}
