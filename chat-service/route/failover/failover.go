// Package failover decides how a stream continues when its worker fails: it is retried on another
// worker, moves to another worker, waits, or ends.
//
// A Machine is the state of one stream. It is pure: Step takes an event and the time, and returns
// actions. The caller chooses workers, calls them, delivers tokens and keeps the clock; Wake says
// when the machine needs a Tick. Rules is the policy in one table. The stories in testdata are
// scripts of events with the resulting actions.
package failover

import (
	"time"

	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Choice describes the worker that was chosen for a stream.
type Choice[W comparable] struct {
	Worker W
	Name   string
	Room   int // answer tokens that the worker's context and the request allow
	// the worker continues answers of other workers exactly, and other workers can continue its
	// answers exactly
	Exact   bool
	MayMove bool // another worker may continue this answer, exactly or as another sample of the model
	Text    bool // its answers are text, encoded in ids that the model need not have chosen
	Reader  bool // another worker reads the prompt first (prefill)
	Unread  int  // tokens that the worker must read before the first token of the answer
}

// A Kind is the kind of an event.
type Kind int

// The events. Found, NotFound and Recovering answer Ask and Swap. ReaderFound and Read answer ReadFor. Busy and
// Turn control the order in which streams move.
const (
	Begin    Kind = iota // the stream begins
	Found                // Choice is the chosen worker
	NotFound             // no worker is available; Err says why, if no worker was called before
	// no worker is available for an Ask with Again, but one of those that failed may be soon
	Recovering
	// all workers that could take the stream are reading the prompts of other moved streams
	Busy
	Turn        // a worker may have time for a moved stream again, or was probed
	ReaderFound // Choice is the worker that reads the prompt for the current worker
	Read        // the prompt was read by the other worker, or no other worker reads it
	Started     // the worker has admitted the stream
	Tokens      // the worker has sent N tokens
	Ended       // the worker has ended the stream properly
	Fail        // the call of the worker is over, with Err
	Down        // the worker's health probes fail
	Tick        // time has passed
	Stop        // the stream was stopped from above, with Err
)

// An Event concerns the stream or its current attempt.
type Event[W comparable] struct {
	Kind   Kind
	N      int
	Err    error
	Choice Choice[W]
}

// A Verb is the kind of an action.
type Verb int

// The actions. Ask, Swap and ReadFor are always the last action of a step.
const (
	Ask Verb = iota // choose a worker that is not in Without, and report it
	// like Ask, while the current attempt continues; Idle restricts the choice to workers with a
	// free place
	Swap
	ReadFor // have another worker read the prompt for the current worker
	Call    // call the current worker
	Deliver // pass on the worker's message, with at most N of its tokens
	Trust   // the worker has delivered its first token
	Blamed  // the worker is to blame for Err; As is the kind of blame
	Leave   // abandon the current attempt because of Err, without waiting
	Moved   // record that the stream moves from worker From to another one because of Err
	Wait    // no call is running: wait for Wake, Turn or a stop
	Finish  // end the stream: it has all the tokens that it may have
	End     // end the stream with Err
	Done    // the stream has ended without an error, as its worker's call did
)

// An Action is an instruction for the caller of Step.
type Action[W comparable] struct {
	Verb    Verb
	N       int
	Err     error
	Without []W
	Worker  W // the subject of Blamed
	As      Blame
	Idle    bool // of Swap
	Move    bool // of Ask and Swap: the stream has tokens already, so the move waits for its turn
	Retry   bool // of Ask: an additional attempt, which the retry budget pays for
	// Again, of Ask: the workers that are not in Without have failed this stream. Only workers whose
	// probe has succeeded since then are asked again.
	Again bool
	Since time.Duration // of Ask with Again: when the last attempt failed
	From  string        // of Moved
	Exact bool          // of Moved
}

type phase int

const (
	asking  phase = iota // a worker is being chosen
	waiting              // for the turn to move, or for the end of a pause
	reading              // another worker reads the prompt
	calling              // the current worker is called
	over
)

// A Machine is the state of one stream.
type Machine[W comparable] struct {
	limits Limits
	out    []Action[W] // scratch

	phase       phase
	stopped     error         // why the stream was stopped by its caller
	sent        int           // tokens delivered
	room        int           // maximum tokens of the answer; known from the first call on
	wake        time.Duration // when a Tick is needed; 0 means never
	lastMessage time.Duration // when the current attempt last sent a message
	cur         Choice[W]     // the current attempt
	started     bool          // Started has been delivered
	admitted    bool          // the current attempt, or its reader, has sent Started
	flowing     bool          // the current attempt has delivered a token
	blamed      bool          // the current attempt was blamed, or is a suspect
	unhealthy   bool          // the current worker's health probes fail
	// first is the first loss of a search, and the ending if the search fails; nil outside of a search.
	first *streamerr.Error

	moves  int       // moves that have delivered a token
	last   Choice[W] // the last attempt that delivered a token
	reader Choice[W] // the worker that reads the prompt for the current attempt, in phase reading

	// The search for a worker, since the last token.
	latest *streamerr.Error // why the last attempt failed
	since  time.Duration    // when the search began
	noted  time.Duration    // when the last attempt failed
	later  []string         // refusals since then
	// why another worker is wanted while the current attempt continues; nil if none is wanted
	swap *streamerr.Error
	// recovered means that swap accepts a worker that failed since the last token and is back in
	// good standing.
	recovered bool
	tried     []W // workers that failed or refused
	full      []W // the workers in tried that were full
	// the workers in tried that are not asked again: they refused the request, failed because of
	// it, or were already asked twice
	barred []W
	// the workers in tried that were left because of a late first token or failing probes, or that
	// hold the stream's id
	left []W
	held bool // a worker holds the stream's id
	// the workers in tried that ended the stream themselves, because they drain or because their
	// timer expired
	ended      []W
	askedAgain bool          // the current Ask is one with Again
	until      time.Duration // when the workers in full and left are asked again; 0 if not
	once       int           // failures with the response Once
	deaths     int           // attempts that were lost or left between Started and the first token
	suspects   []Action[W]   // withheld blames of workers whose failure may be the request's fault
	slow       bool          // a worker was left because its first token took too long
	pauses     int
	pause      time.Duration // the Retry-After of the last full worker
}

// New returns the machine of a stream. The first event must be Begin.
func New[W comparable](limits Limits) *Machine[W] {
	return &Machine[W]{limits: limits, out: make([]Action[W], 0, 2)}
}

// Touched implements prefetch.Toucher.
func (m *Machine[W]) Touched(to *prefetch.List) {
	to.Add(prefetch.Before(m, &m.moves), prefetch.Slice(m.out))
}

// Wake returns when the machine needs a Tick, as a time since Begin, or 0 if it needs none.
func (m *Machine[W]) Wake() time.Duration { return m.wake }

// Room returns how many more tokens the answer may have.
func (m *Machine[W]) Room() int { return m.room - m.sent }

// Sent returns the number of delivered tokens.
func (m *Machine[W]) Sent() int { return m.sent }

// Over reports whether the stream has ended.
func (m *Machine[W]) Over() bool { return m.phase == over }

// Step handles an event that occurred at now, a time since Begin, and returns the actions to
// execute, in order. The slice is valid until the next Step.
func (m *Machine[W]) Step(now time.Duration, e Event[W]) []Action[W] {
	m.out = m.out[:0]
	if m.phase == over {
		return nil
	}
	switch e.Kind {
	case Tokens:
		m.tokens(now, e.N)
	case Started:
		m.start(now)
	case Begin:
		m.ask()
	case Found:
		m.found(now, e.Choice)
	case NotFound:
		m.notFound(now, e.Err)
	case Recovering:
		m.recovering(now)
	case Busy:
		m.busy(now)
	case Turn:
		if m.phase == waiting {
			m.ask()
		}
	case ReaderFound:
		m.reader, m.wake = e.Choice, m.deadline()
	case Read:
		m.read(now)
	case Ended:
		m.accuse(Failed)
		m.do(Action[W]{Verb: Deliver})
		m.done(Action[W]{Verb: Done})
	case Fail:
		m.fail(now, e.Err)
	case Down:
		m.down(now)
	case Tick:
		m.tick(now)
	case Stop:
		m.stop(e.Err)
	}
	return m.out
}

func (m *Machine[W]) do(a Action[W]) { m.out = append(m.out, a) }

func (m *Machine[W]) done(a Action[W]) {
	m.accuse(Doubted)
	m.do(a)
	m.phase, m.wake = over, 0
}

func (m *Machine[W]) start(now time.Duration) {
	m.admitted, m.lastMessage = true, now
	m.wake = m.deadline()
	if m.phase == calling && !m.started {
		m.started = true
		m.do(Action[W]{Verb: Deliver})
	}
}

// tokens delivers n tokens from the worker. A message without tokens is only a sign of life: it is
// neither the first token of a move nor a reason to trust the worker.
func (m *Machine[W]) tokens(now time.Duration, n int) {
	if n == 0 {
		m.lastMessage = now
		if !m.unhealthy { // otherwise the machine keeps its pace of asking for another worker
			m.wake = m.deadline()
		}
		return
	}
	if m.stopped == nil && m.first != nil && m.sent > 0 {
		m.moves++
	}
	if !m.flowing {
		m.flowing, m.last = true, m.cur
		m.accuse(Failed) // the request was not at fault
		m.recover()
		m.do(Action[W]{Verb: Trust, Worker: m.cur.Worker})
	}
	left := m.room - m.sent
	if m.cur.Text {
		left = slackOfText*m.room - m.sent
	}
	passed := max(0, min(n, left))
	m.sent += passed
	m.lastMessage = now
	m.wake = m.deadline()
	if passed > 0 {
		m.do(Action[W]{Verb: Deliver, N: passed})
	}
	if passed < n {
		tooMuch := m.lost(streamerr.Completed, "the answer has the %d tokens that were asked for", m.room)
		m.do(Action[W]{Verb: Leave, Err: tooMuch})
		m.done(Action[W]{Verb: Finish})
	}
}

// recover ends the search for a worker, because a token has arrived.
func (m *Machine[W]) recover() {
	m.first, m.later, m.swap = nil, nil, nil
	m.tried, m.full, m.left, m.barred, m.ended = m.tried[:0], m.full[:0], m.left[:0], m.barred[:0], m.ended[:0]
	m.once, m.deaths, m.slow, m.held, m.pauses, m.pause, m.until = 0, 0, false, false, 0, 0, 0
}

// read continues with the worker that answers, whether or not another worker has read its prompt.
func (m *Machine[W]) read(now time.Duration) {
	switch {
	case m.phase != reading:
	case m.stopped != nil:
		m.done(Action[W]{Verb: End, Err: m.stopped})
	default:
		m.call(now)
	}
}

func (m *Machine[W]) call(now time.Duration) {
	m.phase, m.lastMessage, m.admitted = calling, now, false
	m.wake = m.deadline()
	m.do(Action[W]{Verb: Call})
}

// called returns the worker whose messages are awaited: the current worker, or the worker that
// reads its prompt.
func (m *Machine[W]) called() Choice[W] {
	if m.phase == reading {
		return m.reader
	}
	return m.cur
}

// deadline returns the time at which the current attempt will have been silent for too long, or 0
// for never.
func (m *Machine[W]) deadline() time.Duration {
	patience := m.limits.Silence
	switch {
	case m.stopped != nil:
		return 0
	case m.admitted && !m.flowing && m.slow:
		return 0 // another worker was no faster; the timers of the hops decide
	case m.admitted && !m.flowing:
		patience = m.limits.FirstToken + time.Duration(float64(m.limits.FirstToken)*float64(m.called().Unread)/TokensPerPatience)
	}
	if patience <= 0 {
		return 0
	}
	return m.lastMessage + patience
}

// stop records that the stream must end with cause. The caller stops a running call, whose end then
// arrives as Fail.
func (m *Machine[W]) stop(cause error) {
	m.stopped, m.wake = cause, 0
	if m.phase == asking || m.phase == waiting {
		m.done(Action[W]{Verb: End, Err: cause})
	}
}
