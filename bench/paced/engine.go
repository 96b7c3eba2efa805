// Package paced is an engine for comparisons. It generates tokens at a fixed pace, and each token's
// text is the time at which the token was due, so that a reader can compute the latency of each
// token.
//
// One engine has two interfaces: a server of OpenAI's API over server-sent events, for proxies and
// for clients without one, and a whence.worker.v1 Worker. Requests name their stream in the field
// seed, which passes through every hop. The engine records when each stream ended, and the number
// of its tokens.
package paced

import (
	"math/rand/v2"
	"sync"
	"time"
)

// A Pace is the pace of streams that begin after it was set.
type Pace struct {
	Period  time.Duration `json:"period"`  // between two tokens of a stream; 0 generates as fast as the reader reads
	InStep  bool          `json:"in_step"` // tokens of all streams are due at the same times; otherwise each stream has a random phase
	Prefill time.Duration `json:"prefill"` // before the first token
}

// An Ending is the engine's record of an ended stream.
type Ending struct {
	Stream    uint64    `json:"stream"`    // the request's seed
	At        time.Time `json:"at"`        // when the engine stopped
	Generated int       `json:"generated"` // tokens
	Stopped   bool      `json:"stopped"`   // the stream ended before it was complete
}

// maxEndings bounds the unread endings that an engine keeps. Above it, the oldest half is dropped.
const maxEndings = 1 << 20

// An Engine generates tokens. The zero value generates them as fast as they are read. It is safe
// for concurrent use.
type Engine struct {
	mu      sync.Mutex
	pace    Pace
	running int
	endings []Ending
}

// Set sets the pace of streams that begin from now on.
func (e *Engine) Set(p Pace) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pace = p
}

// Endings returns the streams that have ended since the last call, and the number of running
// streams.
func (e *Engine) Endings() (ended []Ending, running int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ended, e.endings = e.endings, nil
	return ended, e.running
}

func (e *Engine) begin() Pace {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running++
	return e.pace
}

func (e *Engine) end(ended Ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	if len(e.endings) == maxEndings {
		e.endings = append([]Ending(nil), e.endings[maxEndings/2:]...)
	}
	e.endings = append(e.endings, ended)
}

// run generates the tokens of one stream: it calls emit with the due time of each token, in ticks,
// until there are n, emit returns false, or stop is closed. A late token keeps its due time, and
// the next tokens follow at once until the stream is on time again; so time spent waiting for a
// slow reader counts as latency.
func (e *Engine) run(stream uint64, n int, stop <-chan struct{}, emit func(at int64) bool) {
	p := e.begin()
	ended := Ending{Stream: stream}
	defer func() {
		ended.At = time.Now()
		ended.Stopped = ended.Generated < n
		e.end(ended)
	}()
	due := time.Now().Add(p.Prefill)
	var wait *time.Timer
	for i := range n {
		if i == 1 {
			due = p.second(due)
		} else if i > 1 {
			due = due.Add(p.Period)
		}
		if p.Period == 0 && i > 0 {
			due = time.Now()
		}
		if left := time.Until(due); left > 0 {
			if wait == nil {
				wait = time.NewTimer(left)
				defer wait.Stop()
			} else {
				wait.Reset(left)
			}
			select {
			case <-wait.C:
			case <-stop:
				return
			}
		}
		select {
		case <-stop:
			return
		default:
		}
		if !emit(ticks(due)) {
			return
		}
		ended.Generated++
	}
}

// second returns when the second token is due. The first token is due as soon as the prompt is
// read, and from the second token on the stream has its phase.
func (p Pace) second(first time.Time) time.Time {
	switch {
	case p.Period == 0:
		return first
	case p.InStep:
		return first.Truncate(p.Period).Add(p.Period)
	default:
		return first.Add(rand.N(p.Period))
	}
}
