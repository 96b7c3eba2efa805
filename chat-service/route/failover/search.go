package failover

import (
	"slices"
	"strings"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// This file implements the search for another worker: what starts a search, the order in which
// workers are asked, and how a search ends.

// RetryAfter is the Retry-After for callers when no worker can be reached.
const RetryAfter = time.Second

// ask requests a worker. The current attempt is over, or there was none.
func (m *Machine[W]) ask() {
	m.phase, m.wake, m.askedAgain = asking, 0, false
	m.do(Action[W]{Verb: Ask, Without: m.tried, Move: m.sent > 0, Retry: m.first != nil})
}

// found continues with the chosen worker.
func (m *Machine[W]) found(now time.Duration, to Choice[W]) {
	from, why := m.cur, m.latest
	if m.swap != nil {
		why = m.swap
		if m.recovered {
			m.barred = append(m.barred, to.Worker)
		}
		m.leave(now)
	}
	if m.first != nil {
		m.do(Action[W]{Verb: Moved, Err: why, From: from.Name, N: m.sent, Exact: m.sent == 0 || m.last.Exact && to.Exact})
	}
	m.cur, m.flowing, m.admitted, m.blamed, m.unhealthy = to, false, false, false, false
	if m.sent == 0 {
		m.room = to.Room
	}
	if to.Reader {
		m.phase, m.lastMessage = reading, now
		m.wake = m.deadline()
		m.do(Action[W]{Verb: ReadFor})
		return
	}
	m.call(now)
}

// leave abandons the current attempt after another worker was requested.
func (m *Machine[W]) leave(now time.Duration) {
	why := m.swap
	m.swap = nil
	if !m.unhealthy {
		m.blame(why, Failed)
	}
	m.note(now, why)
	m.do(Action[W]{Verb: Leave, Err: why})
	m.tried = append(m.tried, m.cur.Worker)
	if !m.flowing {
		if m.admitted {
			m.deaths++
		}
		m.slow = m.slow || m.admitted
		m.left = append(m.left, m.cur.Worker)
	}
}

// notFound continues without another worker: it stays with the slow current worker, pauses, or ends
// the stream.
func (m *Machine[W]) notFound(now time.Duration, refused error) {
	// rather than slow with its first token
	silent := m.unhealthy || !m.admitted || m.flowing
	// a worker that failed may have recovered
	if m.swap != nil && silent && len(m.tried) > len(m.barred) && !m.recovered {
		m.recovered = true
		m.do(Action[W]{Verb: Swap, Without: append(slices.Clip(m.barred), m.cur.Worker), Move: m.sent > 0, Retry: true, Idle: true})
		return
	}
	// there is no other worker: the current attempt continues, and the timers of the hops decide
	if m.swap != nil {
		m.swap = nil
		m.again(now)
		return
	}
	if m.first == nil {
		m.done(Action[W]{Verb: End, Err: refused})
		return
	}
	if without, some := m.failedForGood(); some && !m.askedAgain {
		m.askedAgain = true
		m.do(Action[W]{Verb: Ask, Without: without, Move: true, Retry: true, Again: true, Since: m.noted})
		return
	}
	if at := m.retryFull(now); at > 0 {
		m.phase, m.wake = waiting, at
		m.do(Action[W]{Verb: Wait})
		return
	}
	m.end()
}

// recovering waits for the probe of a worker that has failed this stream.
func (m *Machine[W]) recovering(now time.Duration) {
	m.phase, m.wake = waiting, m.since+Within
	if at := m.retryFull(now); at > 0 {
		m.wake = at
	}
	m.do(Action[W]{Verb: Wait})
}

// failedForGood returns the workers that are not asked to continue the answer once all workers were
// tried. some reports whether that leaves any: a worker that lost the stream may continue it,
// because a refusal by another worker, or the lack of one, says nothing about it.
func (m *Machine[W]) failedForGood() (without []W, some bool) {
	without = slices.Concat(m.barred, m.full, m.left, m.ended)
	return without, m.sent > 0 && slices.ContainsFunc(m.tried, func(w W) bool { return !slices.Contains(without, w) })
}

// retryFull returns when full and slow workers, and those that hold the stream's id, are asked again,
// or 0 if there are none or if the search would take too long.
func (m *Machine[W]) retryFull(now time.Duration) time.Duration {
	if (m.sent == 0 || len(m.full) == 0) && len(m.left) == 0 {
		return 0
	}
	if m.until > now {
		return m.until // a turn came during the pause
	}
	pause := max(min(m.pause, Within), min(firstPause<<min(m.pauses, 10), maxPause))
	if (m.sent > 0 || m.held) && now+pause >= m.since+Within {
		return 0
	}
	m.pauses++
	m.until = now + pause
	return m.until
}

// again schedules another search for when the current attempt has been silent for the same time
// again.
func (m *Machine[W]) again(now time.Duration) {
	if m.wake = m.deadline(); m.wake > 0 {
		m.wake += now - m.lastMessage
	}
	if m.unhealthy && !m.flowing {
		m.wake = now + RetryAfter
	}
}

// busy waits for the stream's turn to move.
func (m *Machine[W]) busy(now time.Duration) {
	if m.swap != nil {
		if m.recovered { // the awaited worker is one of those that have failed
			m.tried = append(m.tried[:0], m.barred...)
		}
		m.leave(now)
	}
	m.phase, m.wake = waiting, m.since+Within
	m.do(Action[W]{Verb: Wait})
}

// fail handles the end of the current attempt.
func (m *Machine[W]) fail(now time.Duration, cause error) {
	switch {
	case m.stopped != nil:
		m.done(Action[W]{Verb: End, Err: m.stopped}) // the stop wins over the worker's ending
		return
	case cause == nil: // the worker's call ended without an ending, and so does the stream
		m.done(Action[W]{Verb: Done})
		return
	}
	why := streamerr.As(cause)
	rule := RuleOf(why.Reason)
	response := rule.Before
	if m.sent > 0 {
		response = rule.After
	}
	if why.Reason == streamerr.Deadline && m.flowing && now-m.lastMessage < quiet {
		rule, response = Rule{}, Tell
	}
	if holds(why) {
		response = Elsewhere
	}
	if response == Once {
		m.suspect(why, rule.Blame)
	} else {
		m.blame(why, rule.Blame)
	}
	refusal := m.first != nil && response == Tell && !wanted(why.Reason)
	if m.first == nil && response == Tell || wanted(why.Reason) {
		m.done(Action[W]{Verb: End, Err: cause})
		return
	}
	m.note(now, why)
	m.tried = append(m.tried, m.cur.Worker)
	switch {
	case m.admitted && !m.flowing && (why.Reason == streamerr.PeerLost || why.Reason == streamerr.PeerReset):
		m.deaths++
	case rule.Blame == Full:
		m.full, m.pause = append(m.full, m.cur.Worker), why.RetryAfter
	case response == Once:
		m.once++
		m.barred = append(m.barred, m.cur.Worker)
	case holds(why):
		m.left, m.held = append(m.left, m.cur.Worker), true
	case refusal:
		m.barred = append(m.barred, m.cur.Worker)
	case why.Reason == streamerr.Draining || why.Reason == streamerr.Deadline:
		m.ended = append(m.ended, m.cur.Worker)
	}
	m.continueSearch(refusal)
}

// continueSearch asks for another worker if the stream may continue on one.
func (m *Machine[W]) continueSearch(refusal bool) {
	switch {
	case m.complete():
		m.done(Action[W]{Verb: Finish})
	case m.once > 1 && !refusal || m.deaths >= maxDeaths || m.sent > 0 && !m.mayMove():
		m.end()
	default:
		m.ask()
	}
}

// complete reports whether the answer has all the tokens that it may have, so that only its End is
// missing.
func (m *Machine[W]) complete() bool { return m.sent > 0 && m.sent >= m.room && !m.last.Text }

// mayMove reports whether an answer that has begun may move to another worker.
func (m *Machine[W]) mayMove() bool { return m.moves < m.limits.Moves && m.last.MayMove }

// wanted reports whether a reason means that somebody ended the stream on purpose.
func wanted(reason streamerr.Reason) bool {
	switch reason {
	case streamerr.ClientGone, streamerr.UserStop, streamerr.OperatorStop, streamerr.SlowReader:
		return true
	default:
		return false
	}
}

// note records a failure. The first failure of a search becomes the stream's ending, unless it is the
// refusal of a worker that holds the stream's id, which says nothing about the stream.
func (m *Machine[W]) note(now time.Duration, why *streamerr.Error) {
	m.latest, m.noted = why, now
	switch {
	case m.first == nil:
		m.first, m.since = why, now
		return
	case holds(m.first) && !holds(why):
		m.first = why
		return
	}
	refusal := m.cur.Name + ": " + why.Reason.String()
	if text := why.Text(); text != why.Reason.Error() {
		refusal += ", " + text
	}
	m.later = append(m.later, refusal)
}

func (m *Machine[W]) blame(why *streamerr.Error, as Blame) {
	if as == Nothing || m.blamed {
		return
	}
	m.blamed = true
	m.do(Action[W]{Verb: Blamed, Worker: m.cur.Worker, Err: why, As: as})
}

// suspect withholds a blame until it is known whether another worker answers the request.
func (m *Machine[W]) suspect(why *streamerr.Error, as Blame) {
	if as == Nothing || m.blamed {
		return
	}
	m.blamed = true
	m.suspects = append(m.suspects, Action[W]{Verb: Blamed, Worker: m.cur.Worker, Err: why})
}

// accuse blames the suspects in the given way.
func (m *Machine[W]) accuse(as Blame) {
	for _, a := range m.suspects {
		a.As = as
		m.do(a)
	}
	m.suspects = m.suspects[:0]
}

// end ends the stream with the failure that began the search, and lists the later refusals in the
// message.
func (m *Machine[W]) end() {
	if m.once < 2 {
		m.accuse(Failed) // no other worker has failed on the request
	}
	e := *m.first
	if len(m.later) > 0 {
		e.Message = e.Text() + "; then " + strings.Join(m.later, "; then ")
	}
	if holds(&e) && len(m.left) == 0 { // the worker that held the stream's id is gone
		e = streamerr.Error{Reason: streamerr.Unavailable, Message: "no worker is left; " + e.Text(), RetryAfter: RetryAfter}
	}
	if e.Reason == streamerr.PeerLost && !m.started {
		e.Reason, e.RetryAfter = streamerr.Unavailable, max(e.RetryAfter, RetryAfter)
	}
	e.Repeated = e.Repeated || m.once > 1
	m.done(Action[W]{Verb: End, Err: &e})
}

// lost creates a failure of the current attempt that the worker did not report itself.
func (m *Machine[W]) lost(reason streamerr.Reason, format string, args ...any) *streamerr.Error {
	e := streamerr.New(reason, format, args...)
	e.Path = streamerr.NewPath(m.called().Name)
	return e
}

// downSilence is how long a worker with failing health probes may be silent in mid-stream. A worker
// that is merely too busy for probes sends tokens.
const downSilence = 2 * time.Second

// down leaves a worker whose health probes fail: immediately if it has delivered nothing, otherwise
// after a silence of downSilence.
func (m *Machine[W]) down(now time.Duration) {
	switch {
	case m.stopped != nil:
		return
	case m.flowing:
		if m.phase == calling && m.swap == nil && m.wake > 0 {
			m.wake = min(m.wake, max(now, m.lastMessage+downSilence))
			m.tick(now)
		}
		return
	}
	why := m.lost(streamerr.Unavailable, "%s is no longer healthy, and had sent nothing for %v", m.called().Name, (now - m.lastMessage).Round(time.Millisecond))
	switch m.phase {
	case reading:
		m.leaveReader(now, why, true)
	case calling:
		m.unhealthy = true
		m.change(now, why, false)
	default:
	}
}

// tick leaves a worker that is silent for too long, or ends a pause.
func (m *Machine[W]) tick(now time.Duration) {
	if m.wake == 0 || now < m.wake {
		return
	}
	silent := m.lost(streamerr.Deadline, "%s sent nothing for %v", m.called().Name, (now - m.lastMessage).Round(time.Millisecond))
	switch m.phase {
	case waiting:
		if m.sent > 0 && now >= m.since+Within {
			m.end()
			return
		}
		m.tried = slices.DeleteFunc(m.tried, func(w W) bool { return slices.Contains(m.full, w) || slices.Contains(m.left, w) })
		m.full, m.left, m.until = m.full[:0], m.left[:0], 0
		m.ask()
	case reading:
		// a reader that admitted the prompt may have long prompts ahead of it
		m.leaveReader(now, silent, !m.admitted)
	case calling:
		slow := m.admitted && !m.flowing
		// a slow worker may have long prompts ahead of it; it is to blame if another worker has
		// room
		if !slow {
			m.blame(silent, Failed)
		}
		switch {
		case m.complete():
			m.do(Action[W]{Verb: Leave, Err: silent})
			m.done(Action[W]{Verb: Finish})
		case m.sent > 0 && !m.mayMove():
			m.wake = 0
		default:
			m.change(now, silent, slow && !m.unhealthy)
		}
	default:
	}
}

// change asks for another worker while the current attempt continues.
func (m *Machine[W]) change(now time.Duration, why *streamerr.Error, idle bool) {
	if m.sent > 0 && !m.mayMove() {
		return
	}
	if m.admitted && !m.flowing && m.deaths+1 >= maxDeaths { // the request may be what hangs the workers
		if m.wake = 0; m.unhealthy {
			m.note(now, why)
			m.do(Action[W]{Verb: Leave, Err: why})
			m.end()
		}
		return
	}
	m.swap, m.wake, m.recovered = why, 0, false
	m.do(Action[W]{Verb: Swap, Without: append(slices.Clip(m.tried), m.cur.Worker), Move: m.sent > 0, Retry: true, Idle: idle})
}

// leaveReader abandons the worker that reads the prompt: the worker that answers reads it itself.
func (m *Machine[W]) leaveReader(now time.Duration, why *streamerr.Error, failed bool) {
	if failed {
		m.do(Action[W]{Verb: Blamed, Worker: m.reader.Worker, Err: why, As: Failed})
	}
	m.do(Action[W]{Verb: Leave, Err: why})
	m.call(now)
}
