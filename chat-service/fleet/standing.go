package fleet

import (
	"fmt"
	"log/slog"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Fail records that the worker failed a stream: its engine failed, it was silent, or it was lost.
// The worker is probed immediately. Until a probe succeeds it gets streams only if there is no
// other worker. Repeated failures eject it.
func (w *Worker) Fail(why streamerr.Reason) {
	if d := w.breaker.fail(time.Now(), why); d > 0 {
		w.ejected(why, d)
	}
	w.Probe()
}

// Doubt records a failure for which the request may be to blame, because another worker has failed
// the stream too. Several doubts without a token in between count as one failure.
func (w *Worker) Doubt(why streamerr.Reason) {
	if w.breaker.doubt() {
		w.Fail(why)
	}
}

// Refuse records that the worker was full and asked callers to wait for retryAfter, or gave no time
// if that is 0.
func (w *Worker) Refuse(retryAfter time.Duration) {
	if d := w.breaker.refuse(time.Now(), retryAfter); d > 0 {
		w.ejected(streamerr.Overloaded, d)
	}
}

// Deliver records that a stream on the worker has its first token.
func (w *Worker) Deliver() {
	if w.breaker.deliver(time.Now()) {
		w.log.Info("worker gets streams again", "worker", w.Name(), "target", w.target)
	}
}

func (w *Worker) ejected(why streamerr.Reason, d time.Duration) {
	_, _, _, failures := w.breaker.state(time.Now())
	w.log.Warn("worker cools down: it gets streams only if there is no other worker", slog.String("worker", w.Name()), slog.String("target", w.target),
		slog.String("reason", why.String()), slog.Int("failures", failures), slog.Duration("for", d))
	if w.cooled != nil {
		w.cooled(why)
	}
}

// Probe requests an immediate probe of the worker.
func (w *Worker) Probe() {
	select {
	case w.probeNow <- struct{}{}:
	default:
	}
}

// A Snapshot is the state of a worker at one moment. A decision takes one snapshot of each worker,
// so that no value changes while it compares workers.
type Snapshot struct {
	Worker   *Worker
	Name     string
	Info     *llmv1.WorkerInfo // nil while the worker is unhealthy
	Standing Standing
	Streams  int64   // running streams: ours as of now, those of other callers as of the last probe
	Failures float64 // streams that failed there recently
	Unread   int64   // prompt tokens of our streams that the worker has still to read
	Tokens   int64   // tokens that our streams occupy in its KV cache
}

// Full reports whether the worker has as many streams as it can run. It is false if the worker
// reports no limit.
func (s *Snapshot) Full() bool {
	most := s.Info.GetLoad().GetMaxRunning()
	return most > 0 && s.Streams >= int64(most)
}

// Snapshot returns the worker's current state.
func (w *Worker) Snapshot(now time.Time) Snapshot {
	return Snapshot{
		Worker: w, Name: w.Name(), Info: w.info.Load(), Standing: w.breaker.standing(now), Streams: w.Load(), Failures: w.breaker.failures(now),
		Unread: w.unread.Load(), Tokens: w.tokens.Load(),
	}
}

// trouble says why the worker gets fewer streams than others, or returns "" if it does not.
func (w *Worker) trouble() string {
	now := time.Now()
	open, why, left, failures := w.breaker.state(now)
	switch {
	case open && left > 0:
		return fmt.Sprintf("it cools down for another %v (%s, %d failures in a row) and gets streams only if there is no other worker", left.Round(100*time.Millisecond), why, failures)
	case open:
		return fmt.Sprintf("it has cooled down (%s) and gets one stream at a time as a trial", why)
	case w.breaker.standing(now) == Poor:
		return "it has failed a stream or was late to answer, and is probed again"
	default:
		return ""
	}
}
