package fleet

import (
	"math"
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// A worker is ejected after ejectAfter failures in a row, or at a failure rate of ejectRate
	// over at least ejectSample streams.
	ejectAfter  = 3
	ejectRate   = 0.5
	ejectSample = 5
	// recoveredRate is the failure rate below which a delivered token resets the backoff.
	recoveredRate = 0.3
	// rateWeight is the weight of the latest stream in the failure rate, an exponentially weighted
	// moving average.
	rateWeight = 0.2

	// cooldown is the first cool-down. Each further cool-down in a row is twice as long, up to a
	// maximum. The maximum is lower for a full worker than for a failing worker, because a full
	// worker recovers sooner.
	cooldown         = time.Second
	maxCooldown      = 30 * time.Second
	maxFullCooldown  = 8 * time.Second
	maxRetryAfter    = time.Minute // upper limit of a worker's Retry-After
	failureHalfLife  = 5 * time.Second
	negligibleFailed = 0.25
)

// A Standing rates a worker by the outcomes of its streams. Health probes are separate.
type Standing int

// The standings.
const (
	// Good workers get streams.
	Good Standing = iota
	// OnTrial workers have finished a cool-down and get one stream at a time, until a stream has a
	// token.
	OnTrial
	// Poor workers get streams only if there is no other worker: a stream failed and no health
	// probe has succeeded since, a probe is late, a cool-down lasts, or a trial runs.
	Poor
)

// A breaker is the circuit breaker of one worker. A failed stream casts doubt on the worker until a
// health probe succeeds. Several failures in a row or a high failure rate eject the worker for a
// cool-down; a refusal because it is full does so immediately. After the cool-down the worker gets
// one stream at a time as a trial: a token closes the breaker, and a failure ejects the worker for
// twice as long. The zero value is closed. Callers pass the time, so tests need no clock.
type breaker struct {
	mu      sync.Mutex // guards the following fields
	doubted bool       // from a failed stream or a late probe until a probe succeeds
	doubts  int        // failures since the last token for which a request may be to blame
	streak  int        // failures since the last token
	rate    float64    // failure rate
	sample  int        // streams in rate, up to ejectSample

	open   bool             // ejected, until a trial delivers a token
	why    streamerr.Reason // reason of the last failure or refusal
	until  time.Time        // end of the cool-down, while open
	level  int              // ejections for failures since the last recovery
	full   int              // ejections for being full since the last token
	trying bool             // a trial runs
	trial  int              // the number of the last trial

	failed   float64   // failed streams, halved every failureHalfLife
	failedAt time.Time // when failed was last computed
}

// fail records a failed stream, and returns the cool-down if the worker is ejected. Streams that
// fail together count once.
func (b *breaker) fail(now time.Time, why streamerr.Reason) (ejected time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.open && now.Before(b.until):
		return 0 // the stream began before the cool-down, or there was no other worker
	case !b.open && b.doubted:
		return 0 // it failed together with a stream that has been counted
	}
	b.failed, b.failedAt = b.recentlyFailed(now)+1, now
	b.doubted = true
	b.why = why
	b.streak++
	b.record(1)
	if !b.open && b.streak < ejectAfter && (b.sample < ejectSample || b.rate < ejectRate) {
		return 0
	}
	d := restFor(b.level, maxCooldown)
	b.level++
	b.eject(now.Add(d))
	return d
}

// doubt records a failure for which the request may be to blame. After ejectAfter doubts without a
// token in between it returns true and resets the count.
func (b *breaker) doubt() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.doubts++; b.doubts < ejectAfter {
		return false
	}
	b.doubts = 0
	return true
}

// refuse records that the worker was full and asked callers to wait for retryAfter, or gave no time
// if that is 0. It returns the cool-down if a new one begins.
func (b *breaker) refuse(now time.Time, retryAfter time.Duration) (ejected time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := min(retryAfter, maxRetryAfter)
	if b.open && now.Before(b.until) {
		if until := now.Add(asked); until.After(b.until) {
			b.until = until
		}
		return 0
	}
	d := max(asked, restFor(b.full, maxFullCooldown))
	b.full++
	b.why = streamerr.Overloaded
	b.eject(now.Add(d))
	return d
}

func (b *breaker) eject(until time.Time) { b.open, b.trying, b.until = true, false, until }

// restFor returns the cool-down at a level of the backoff.
func restFor(level int, most time.Duration) time.Duration {
	return min(cooldown<<min(level, 10), most)
}

func (b *breaker) record(failure float64) {
	b.rate += rateWeight * (failure - b.rate)
	b.sample = min(b.sample+1, ejectSample)
}

// deliver records that a stream has its first token, and reports whether that closes the breaker.
func (b *breaker) deliver(now time.Time) (closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streak, b.doubts = 0, 0
	b.record(0)
	if b.open && now.Before(b.until) {
		return false // the stream began before the cool-down, or there was no other worker
	}
	closed = b.open
	b.open, b.trying, b.full = false, false, 0
	if b.rate < recoveredRate {
		b.level = 0
	}
	return closed
}

// late records a late probe, which is not a failure yet.
func (b *breaker) late() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doubted = true
}

// answered records a successful probe.
func (b *breaker) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doubted = false
}

// reset clears the breaker, because the worker was away and may be a new process.
func (b *breaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doubted, b.streak, b.doubts, b.rate, b.sample = false, 0, 0, 0, 0
	b.open, b.trying, b.level, b.full, b.failed = false, false, 0, 0, 0
}

func (b *breaker) standing(now time.Time) Standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.doubted || b.open && (b.trying || now.Before(b.until)):
		return Poor
	case b.open:
		return OnTrial
	default:
		return Good
	}
}

// begin records that the worker gets a stream. If the stream is a trial, begin returns its number,
// otherwise 0.
func (b *breaker) begin(now time.Time) (trial int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open || b.trying || now.Before(b.until) {
		return 0
	}
	b.trying = true
	b.trial++
	return b.trial
}

// end records that a trial is over. It does nothing if a newer trial has begun.
func (b *breaker) end(trial int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if trial == b.trial {
		b.trying = false
	}
}

// failures returns the number of recently failed streams. They count as load: a worker that fails
// at once has no running streams, and must not look idle because of that.
func (b *breaker) failures(now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recentlyFailed(now)
}

func (b *breaker) recentlyFailed(now time.Time) float64 {
	left := b.failed * math.Exp2(-now.Sub(b.failedAt).Seconds()/failureHalfLife.Seconds())
	if left < negligibleFailed {
		return 0
	}
	return left
}

// state returns the breaker's state for operators: whether the worker is ejected, the reason, the
// time left, and the number of failures in a row.
func (b *breaker) state(now time.Time) (open bool, why streamerr.Reason, left time.Duration, streak int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open, b.why, max(0, b.until.Sub(now)), b.streak
}
