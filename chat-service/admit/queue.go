package admit

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// agesAfter is how long a stream waits until it counts as one tier more urgent, and then again, so that no tier starves.
const agesAfter = 30 * time.Second

// share is how much of the queue one named tenant may fill, so that there is room for others to wait.
const share = 0.5

// maxGone is how many tenants are remembered that have nothing here; any of more are forgotten.
const maxGone = 256

// The tiers, least urgent first.
const tiers = 3

// A tenant is one of those that share the workers. Those who are nobody in particular are one together.
type tenant struct {
	name    string
	weight  float64
	waiting [tiers][]*ticket // in order of arrival
	tokens  int              // of the prompts that wait
	running int
	// served is what the tenant has had, in tokens of prompts and answers, by its weight. Who has had least is next.
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

// head is who of the tenant's streams is next in a tier, at a time: the one that came first of those that are of it, and those
// that have waited long enough to count as it; nil if there are none.
func (t *tenant) head(tier int, now time.Time) (first *ticket) {
	for below := 0; below <= tier; below++ {
		line := t.waiting[tier-below]
		if len(line) > 0 && now.Sub(line[0].arrived) >= time.Duration(below)*agesAfter && (first == nil || line[0].arrived.Before(first.arrived)) {
			first = line[0]
		}
	}
	return first
}

// A ticket is one stream's place, in the queue and then with a worker.
type ticket struct {
	tenant  *tenant
	tier    int
	tokens  int // of the prompt
	arrived time.Time
	ready   chan struct{} // closed when there is room

	admitted bool // owned by the queue's lock
}

func tierOf(c *streamv1.Claim) int {
	switch c.GetTier() {
	case streamv1.Tier_TIER_FLEX:
		return 0
	case streamv1.Tier_TIER_PRIORITY:
		return 2
	default:
		return 1
	}
}

// hold has run called in a place of the queue's, when there is one. The error is why there was none.
func (q *Queue) hold(ctx context.Context, claim *streamv1.Claim, tokens int, run func(*ticket)) error {
	t, err := q.enter(claim, tokens)
	if err != nil {
		return err
	}
	defer q.leave(t)
	if !t.wait(ctx) {
		return stream.Cause(ctx)
	}
	run(t)
	return nil
}

// enter takes a place, or says why there is none.
func (q *Queue) enter(claim *streamv1.Claim, tokens int) (*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &ticket{tier: tierOf(claim), tokens: tokens, arrived: time.Now(), ready: make(chan struct{})}
	t.tenant = q.tenant(claim)
	q.dispatch() // there may be room that nobody has noticed yet, and those who wait come first
	if q.waiting == 0 && q.hasRoom() {
		q.admit(t)
		return t, nil
	}
	if err := q.full(t); err != nil {
		q.forget()
		return nil, err
	}
	t.tenant.waiting[t.tier] = append(t.tenant.waiting[t.tier], t)
	t.tenant.tokens += tokens
	q.waiting++
	q.tokens += tokens
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
	if t.admitted {
		q.running--
		t.tenant.running--
		q.turnover.Freed()
	} else {
		line := t.tenant.waiting[t.tier]
		i := slices.Index(line, t)
		t.tenant.waiting[t.tier] = slices.Delete(line, i, i+1)
		q.unqueue(t)
	}
	q.dispatch()
	q.forget()
}

// charge notes that a stream has had tokens of its answer.
func (q *Queue) charge(t *ticket, tokens int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.tenant.served += float64(tokens) / t.tenant.weight
}

// dispatch admits those that are next, as long as there is room.
func (q *Queue) dispatch() {
	for q.waiting > 0 && q.hasRoom() {
		t := q.next(time.Now())
		line := t.tenant.waiting[t.tier]
		line[0] = nil // a slice that moves on keeps what is before it
		t.tenant.waiting[t.tier] = line[1:]
		q.unqueue(t)
		q.admit(t)
	}
}

func (q *Queue) hasRoom() bool {
	room := q.opts.Room()
	return room < 0 || q.running < room
}

func (q *Queue) admit(t *ticket) {
	t.admitted = true
	q.running++
	t.tenant.running++
	t.tenant.served += float64(t.tokens) / t.tenant.weight
	close(t.ready)
	if q.opts.Admitted != nil {
		q.opts.Admitted(time.Since(t.arrived))
	}
}

func (q *Queue) unqueue(t *ticket) {
	t.tenant.tokens -= t.tokens
	q.waiting--
	q.tokens -= t.tokens
}

// next returns who is next: of the most urgent tier that anybody waits in, the oldest of the tenant that has had least. It is
// called only while somebody waits.
func (q *Queue) next(now time.Time) *ticket {
	for tier := tiers - 1; ; tier-- {
		var best *ticket
		wanted := false // by a stream of the tier itself: else those that have waited long have nobody to pass but their equals
		for _, t := range q.tenants {
			wanted = wanted || len(t.waiting[tier]) > 0
			if head := t.head(tier, now); head != nil && (best == nil || before(head, best)) {
				best = head
			}
		}
		if wanted {
			return best
		}
	}
}

// before reports whether a stream comes before another one of the same tier: its tenant has had less, or as much and has fewer that
// run, whose tokens are still to be charged; or else it came first.
func before(a, b *ticket) bool {
	return cmp.Or(
		cmp.Compare(a.tenant.served, b.tenant.served),
		cmp.Compare(a.tenant.running, b.tenant.running),
		a.arrived.Compare(b.arrived),
	) < 0
}

// tenant returns the tenant of a claim. One that comes anew has had at least as much as the one of those here that has had least: it
// neither pays for having been away nor saves up for its return.
func (q *Queue) tenant(claim *streamv1.Claim) *tenant {
	t := q.tenants[claim.GetTenant()]
	if t == nil {
		t = &tenant{name: claim.GetTenant()}
		q.tenants[t.name] = t
	}
	if least := q.least(); !t.active() && !math.IsInf(least, 1) {
		t.served = max(t.served, least)
	}
	t.weight = float64(max(claim.GetWeight(), 1))
	return t
}

// least returns what the one of those here has had that has had least; infinity if nobody is here.
func (q *Queue) least() float64 {
	least := math.Inf(1)
	for _, t := range q.tenants {
		if t.active() {
			least = min(least, t.served)
		}
	}
	return least
}

// forget drops tenants that have nothing here, and have had no more than they would be taken to have had if they came anew. The
// others are remembered until then: who asks for one answer after another has left after each, and would come first each time.
func (q *Queue) forget() {
	least, gone := q.least(), 0
	for name, t := range q.tenants {
		if !t.active() {
			if gone++; t.served <= least || gone > maxGone {
				delete(q.tenants, name)
			}
		}
	}
}
