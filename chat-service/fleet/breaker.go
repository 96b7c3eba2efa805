package fleet

import (
	"math"
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// ejectAfter failures in a row eject a worker, and so does a failure rate of ejectRate over ejectSample or more streams.
	ejectAfter  = 3
	ejectRate   = 0.5
	ejectSample = 5
	// recoveredRate is the failure rate below which a delivered token resets the backoff.
	recoveredRate = 0.3
	// rateWeight is the weight of the latest stream in the failure rate, an exponentially weighted moving average.
	rateWeight = 0.2

	// cooldown is the first cool-down. Each further cool-down in a row is twice as long, up to a maximum. The maximum
	// is lower for a full worker than for a failing one, because a full worker recovers sooner.
	cooldown         = time.Second
	maxCooldown      = 30 * time.Second
	maxFullCooldown  = 8 * time.Second
	maxRetryAfter    = time.Minute // bounds the Retry-After of a worker
	failureHalfLife  = 5 * time.Second
	negligibleFailed = 0.25
)

// A Standing rates a worker by the outcomes of its streams; health probes are separate.
type Standing int

// The standings.
const (
	// Good workers get streams.
	Good Standing = iota
	// OnTrial workers have finished a cool-down, and get one stream at a time until that stream has a token.
	OnTrial
	// Poor workers get streams only if there is no other worker: a stream failed there and no health probe has
	// succeeded since, a probe is late, they cool down, or a trial runs.
	Poor
)

// A breaker is the circuit breaker of one worker. A failed stream casts doubt on the worker until a health probe
// succeeds. Several failures in a row, or a high failure rate, eject the worker for a cool-down, and a refusal because it
// is full does so at once. After the cool-down one stream at a time tries the worker: a token closes the breaker, a
// failure ejects the worker for twice as long. The zero value is closed. Time is an argument, so tests need no clock.
type breaker struct {
	mu      sync.Mutex // guards the following fields
	doubted bool       // since a stream failed or a probe was late, until a probe succeeds
	doubts  int        // failures since the last token that may be the requests' fault
	streak  int        // failures since the last token
	rate    float64    // failure rate
	sample  int        // streams in rate, up to ejectSample

	open   bool             // ejected, until a trial has a token
	why    streamerr.Reason // of the last failure or refusal
	until  time.Time        // the end of the cool-down, while open
	level  int              // ejections for failures without recovery between
	full   int              // ejections for being full without a token between
	trying bool             // a trial runs
	trial  int              // the number of the last trial

	failed   float64   // failed streams, halved each failureHalfLife
	failedAt time.Time // when failed was last computed
}

// fail records a failed stream, and returns the cool-down if it ejects the worker. Streams that fail together count once.
func (b *breaker) fail(now time.Time, why streamerr.Reason) (ejected time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.open && now.Before(b.until):
		return 0 // the stream was begun before, or for want of another worker
	case !b.open && b.doubted:
		return 0 // it failed together with a stream that was counted
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

// doubt records a failure that may be the request's fault. It returns true, and resets the count, once ejectAfter doubts have
// come without a token in between.
func (b *breaker) doubt() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.doubts++; b.doubts < ejectAfter {
		return false
	}
	b.doubts = 0
	return true
}

// refuse records that the worker was full and wants callers to come back after retryAfter, or does not say when if that is 0. It
// returns the cool-down if there is a new one.
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

// deliver records that a stream of the worker has its first token, and reports whether that closes the breaker.
func (b *breaker) deliver(now time.Time) (closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streak, b.doubts = 0, 0
	b.record(0)
	if b.open && now.Before(b.until) {
		return false // it began before the cool-down, or for want of another worker
	}
	closed = b.open
	b.open, b.trying, b.full = false, false, 0
	if b.rate < recoveredRate {
		b.level = 0
	}
	return closed
}

// late records that the worker has not answered a probe in time, which is no failure yet.
func (b *breaker) late() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doubted = true
}

// answered records that a probe has succeeded.
func (b *breaker) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doubted = false
}

// reset forgets everything: the worker was away, and may be a new process.
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

// begin records that a stream goes to the worker, and returns the number of the trial if the stream is one, else 0.
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

// end records that a trial is over, which may have been decided before.
func (b *breaker) end(trial int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if trial == b.trial {
		b.trying = false
	}
}

// failures returns the number of recently failed streams. It counts as load: a worker that fails at once has no streams,
// and must not look idle for that.
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

// state returns the breaker's state for operators: whether the worker is ejected, the reason, the time left, and the
// number of failures in a row.
func (b *breaker) state(now time.Time) (open bool, why streamerr.Reason, left time.Duration, streak int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open, b.why, max(0, b.until.Sub(now)), b.streak
}
