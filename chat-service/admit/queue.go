package admit

import (
	"cmp"
	"math"
	"slices"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// agesAfter is how long a stream waits until it counts as one tier more urgent, and then again, so that no tier starves.
const agesAfter = 30 * time.Second

// share is the part of the queue that one named tenant may fill, so that there is room for others to wait.
const share = 0.5

// maxGone is how many tenants without a stream are remembered at most.
const maxGone = 256

// maxReturns is how often a stream is put back into the queue at most. Each time it is on hold for twice as long as the time before,
// 3.75 s in all: probes have then found out about a worker that is gone.
const maxReturns = 4

// tiers is how many tiers there are; tier 0 is the least urgent.
const tiers = 3

// A tenant shares the workers with other tenants. All requests without a tenant share one.
type tenant struct {
	name    string
	weight  float64
	waiting [tiers][]*ticket // in order of arrival
	tokens  int              // of the prompts that wait
	running int
	// served counts the tokens of prompts and answers that the tenant was served, divided by its weight. The tenant with the
	// lowest counter is next.
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

// head returns the tenant's next stream in a tier: the oldest of the streams of that tier, and of those that have waited long enough
// to count as that urgent. Streams that were returned and are on hold do not count. It returns nil if there is none.
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

// remove takes a waiting stream out of its line.
func (t *tenant) remove(waiting *ticket) {
	line := t.waiting[waiting.tier]
	if line[0] == waiting { // nearly always
		line[0] = nil // a slice that moves on keeps what is before it
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

// enter takes a place, or says why there is none.
func (q *Queue) enter(claim *llmv1.Claim, tokens int) (*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	t := &ticket{tier: tierOf(claim), tokens: tokens, arrived: now, ready: make(chan struct{})}
	t.tenant = q.tenant(claim)
	q.dispatch(now)     // there may be room that nobody has noticed yet, and the streams that wait come first
	if q.hasRoom(now) { // then the streams that wait are all on hold
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

// full says why a stream cannot wait.
func (q *Queue) full(t *ticket) error {
	var err *streamerr.Error
	switch {
	case q.waiting >= q.opts.MaxStreams:
		err = streamerr.New(streamerr.Overloaded, "%d streams run and %d wait; no more are taken", q.running, q.waiting)
	case q.tokens+t.tokens > q.opts.MaxTokens && q.waiting > 0: // the only one that waits may have any prompt
		err = streamerr.New(streamerr.Overloaded, "prompts of %d tokens wait; one of %d more is not taken", q.tokens, t.tokens)
	case t.tenant.name != "" && (float64(t.tenant.queued()) >= math.Ceil(share*float64(q.opts.MaxStreams)) ||
		t.tenant.tokens > 0 && float64(t.tenant.tokens+t.tokens) > share*float64(q.opts.MaxTokens)):
		err = streamerr.New(streamerr.Overloaded, "%d streams of %s wait; no more of its streams are taken", t.tenant.queued(), t.tenant.name)
	default:
		return nil
	}
	err.RetryAfter = q.turnover.After(q.waiting)
	return err
}

// leave gives a place back.
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
	case expired: // it has no place any more
	}
	q.dispatch(time.Now())
	q.forget()
}

// restore puts a stream that reached no worker back into the queue, at the place of its arrival. It reports false if the stream ends
// with why: a healthy worker is there and why is not the loss of a worker, so another attempt would fail as this one did; or the
// stream was returned maxReturns times, or for as long as an outage may last; or the queue is full. Only the stream itself is held
// back for a moment, in which the probes find out about the worker. Its place goes to the next stream.
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
	t.tenant.served -= float64(t.tokens) / t.tenant.weight // nobody has read its prompt
	t.state, t.ready, t.notBefore = queued, make(chan struct{}), now.Add(lookEvery<<t.returns)
	t.returns++
	q.queue(t)
	q.dispatch(now)
	return true
}

// charge adds tokens of a stream's answer to its tenant's service counter.
func (q *Queue) charge(t *ticket, tokens int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.tenant.served += float64(tokens) / t.tenant.weight
}

// dispatch admits the streams that are next, as long as there is room.
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

// hasRoom reports whether one more stream may run. It notes when an outage begins and ends.
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

// outlasted reports whether no worker has been healthy for longer than streams wait for one.
func (q *Queue) outlasted(now time.Time) bool {
	return !q.down.IsZero() && now.Sub(q.down) >= q.opts.Outage
}

// expire ends the streams that wait if an outage lasts for too long.
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

// vacate takes a stream off its worker's place.
func (q *Queue) vacate(t *ticket) {
	q.running--
	t.tenant.running--
}

// queue puts a stream into the line of its tenant and tier, which is in order of arrival.
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

// next returns the stream to admit next: in the most urgent tier with a waiting stream, the oldest stream of the tenant that was
// served least. Streams on hold do not count. It returns nil if there is no other stream.
func (q *Queue) next(now time.Time) *ticket {
	for tier := tiers - 1; tier >= 0; tier-- {
		var best *ticket
		wanted := false // by a stream of the tier itself: else those that have waited long have nobody to pass but their equals
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

// before reports whether stream a goes before stream b of the same tier: its tenant has a lower service counter; or
// an equal one and fewer running streams, whose tokens are not charged yet; or else a arrived first.
func before(a, b *ticket) bool {
	return cmp.Or(
		cmp.Compare(a.tenant.served, b.tenant.served),
		cmp.Compare(a.tenant.running, b.tenant.running),
		a.arrived.Compare(b.arrived),
	) < 0
}

// tenant returns the tenant of a claim. The service counter of a returning tenant is raised to the lowest counter
// among the active tenants: a tenant neither pays for its absence nor saves up for its return.
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

// forget drops the tenants without a stream whose counters are no higher than those of a new tenant. The others are
// remembered until then: a tenant that sends its next request after each answer is absent for a moment each time, and
// would always come first if it were forgotten.
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
