package protocol

import (
	"container/heap"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

var (
	seeds = flag.Int("seeds", 20_000, "how many schedules TestSchedules plays")
	seed  = flag.Uint64("seed", 0, "play this schedule alone, and print it")
)

// A world has two machines, a link between them with delays, an engine, a reader, and a clock.
type world struct {
	rng    *rand.Rand
	now    time.Duration
	queue  schedule
	events uint64 // scheduled so far
	log    strings.Builder

	caller   *Caller
	callee   *Callee       // nil until the request has arrived
	cut      bool          // the link is broken
	down, up time.Duration // messages sent later do not arrive earlier than this

	// The engine.
	stubborn bool  // ignores a stop until it is killed
	stopped  error // why the engine was stopped
	engineAt int   // items left
	engine   bool  // the engine runs
	blocked  bool  // an item waits for the caller to read

	// The reader.
	stopAt   time.Duration // when the stream was stopped from above; 0 means never
	cause    error
	pausedTo time.Duration // the reader does not read before this time

	// What happened.
	finished, recorded []string
	told, gone         int // how often the callee's hop was told that its caller has received the ending, or has gone
	reset              bool
	confirmed          bool
	delivered          int
	failures           []string
}

// An occurrence is a scheduled event.
type occurrence struct {
	at  time.Duration
	seq uint64
	do  func()
}

type schedule []occurrence

func (s *schedule) Len() int { return len(*s) }
func (s *schedule) Less(i, j int) bool {
	a, b := (*s)[i], (*s)[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}
func (s *schedule) Swap(i, j int) { (*s)[i], (*s)[j] = (*s)[j], (*s)[i] }
func (s *schedule) Push(x any)    { *s = append(*s, x.(occurrence)) } //nolint:forcetypeassert // heap.Push gets only occurrences
func (s *schedule) Pop() any {
	old := *s
	last := old[len(old)-1]
	*s = old[:len(old)-1]
	return last
}

func (w *world) after(d time.Duration, do func()) {
	w.events++
	heap.Push(&w.queue, occurrence{w.now + d, w.events, do})
}

// between returns a random duration.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)+1))
}

func (w *world) fail(format string, args ...any) {
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

// sends runs do at the other end, in order, unless the link breaks before.
func (w *world) sends(last *time.Duration, do func()) {
	at := max(*last, w.now+w.between(0, 5*time.Millisecond))
	*last = at
	w.after(at-w.now, func() {
		if !w.cut {
			do()
		}
	})
}

func (w *world) tellCaller(e Event) {
	for _, a := range append([]Action(nil), w.caller.Step(w.now, e)...) {
		fmt.Fprintf(&w.log, "%v caller: %v after %v %v\n", w.now, verbs[a.Verb], e.Kind, a.Err)
		switch a.Verb {
		case Call:
			if w.cut {
				w.after(0, func() { w.tellCaller(Event{Kind: Over, Err: streamerr.New(streamerr.PeerLost, "no connection")}) })
				continue
			}
			w.sends(&w.down, w.accept)
			w.after(w.between(0, time.Millisecond), func() { w.tellCaller(Event{Kind: Opened}) })
		case SendStop:
			if a.Grace <= 0 || a.Grace > DefaultGrace {
				w.fail("a Stop with a grace of %v", a.Grace)
			}
			w.sends(&w.down, func() {
				w.tellCallee(Event{Kind: Stop, Err: streamerr.Via("caller", a.Err), Grace: a.Grace})
				w.tellCallee(Event{Kind: HalfClose})
			})
		case Reset:
			w.reset = true
			// A reset overtakes messages.
			w.after(w.between(0, 5*time.Millisecond), func() { w.lose(streamerr.PeerReset) })
			w.after(0, func() { w.tellCaller(Event{Kind: Over, Err: streamerr.New(streamerr.PeerReset, "reset")}) })
		case Deliver:
			w.delivered++
			if w.reset {
				w.fail("an item was delivered after the reset")
			}
		case Confirm:
			w.confirmed = true
			if w.cut || w.reset {
				w.fail("confirmed by a call that broke")
			}
		case Finish:
			w.finished = append(w.finished, streamerr.As(orCompleted(a.Err)).Reason.String())
			if w.stopAt > 0 && w.now-w.stopAt > DefaultGrace+time.Millisecond && w.pausedTo < w.now {
				w.fail("the caller ended %v after its stop", w.now-w.stopAt)
			}
		default:
		}
	}
	w.wake(w.caller, w.tellCaller)
}

func (w *world) accept() {
	w.callee = NewCallee(CalleeConfig{})
	w.engine = true
	w.after(w.between(0, 10*time.Millisecond), w.produce)
}

// produce yields the engine's next item, or ends the engine.
func (w *world) produce() {
	switch {
	case !w.engine || w.blocked:
	case w.stopped != nil && !w.stubborn:
		w.endEngine(w.stopped)
	case w.engineAt == 0:
		w.sends(&w.up, func() { w.tellCaller(Event{Kind: End}) })
		w.endEngine(nil)
	default:
		w.engineAt--
		w.tellCallee(Event{Kind: Item})
	}
}

func (w *world) endEngine(err error) {
	if w.engine {
		w.engine = false
		w.tellCallee(Event{Kind: Done, Err: err})
	}
}

func (w *world) tellCallee(e Event) {
	if w.callee == nil {
		return
	}
	for _, a := range append([]Action(nil), w.callee.Step(w.now, e)...) {
		fmt.Fprintf(&w.log, "%v callee: %v after %v %v\n", w.now, verbs[a.Verb], e.Kind, a.Err)
		switch a.Verb {
		case Deliver:
			if w.now < w.pausedTo { // the reader does not read: flow control blocks the item
				w.blocked = true
				w.after(w.pausedTo-w.now, w.unblock)
				continue
			}
			w.sent()
		case Drop:
			w.after(w.between(0, time.Millisecond), w.produce)
		case StopEngine:
			w.stopped = a.Err
			w.after(w.between(0, 40*time.Millisecond), w.produce)
			w.tellCallee(Event{Kind: Halt, Err: a.Err, Grace: a.Grace})
		case Kill:
			w.stopped, w.stubborn = a.Err, false
			w.after(0, func() {
				if !w.blocked {
					w.endEngine(w.stopped)
				}
			})
		case Abandon: // the handler returns, which unblocks the sender
			if !w.callee.Lost() {
				w.told++
			}
			w.after(0, w.unblock)
			w.sends(&w.up, func() { w.tellCaller(Event{Kind: Over, Own: true, Err: a.Err}) })
		case Answer:
			w.sends(&w.up, func() { w.tellCaller(Event{Kind: Over, Own: true, Err: streamerrOrNil(a.Err)}) })
			w.after(0, func() { w.tellCallee(Event{Kind: Answered}) })
		case Gone:
			w.gone++
		case Record:
			w.recorded = append(w.recorded, streamerr.As(orCompleted(a.Err)).Reason.String())
		default:
		}
	}
	w.wake(w.callee, w.tellCallee)
}

func (w *world) sent() {
	w.sends(&w.up, func() { w.tellCaller(Event{Kind: Item}) })
	w.tellCallee(Event{Kind: Sent})
	w.after(w.between(0, 10*time.Millisecond), w.produce)
}

func (w *world) unblock() {
	if !w.blocked {
		return
	}
	w.blocked = false
	if w.cut || w.reset || w.callee.abandoned {
		w.tellCallee(Event{Kind: Unsent, Err: streamerr.New(streamerr.PeerLost, "cut")})
		w.endEngine(w.stopped)
		return
	}
	w.sent()
}

// lose ends the call on the callee's side.
func (w *world) lose(reason streamerr.Reason) {
	w.tellCallee(Event{Kind: Lost, Err: &streamerr.Error{Reason: reason, Path: streamerr.NewPath("caller")}})
	w.after(w.between(0, 2*time.Millisecond), func() { w.tellCallee(Event{Kind: HalfClose}) })
	w.after(0, w.unblock)
}

func (w *world) wake(m machine, tell func(Event)) {
	if at := m.Wake(); at > 0 {
		w.after(max(0, at-w.now), func() {
			if m.Wake() > 0 && w.now >= m.Wake() {
				tell(Event{Kind: Tick})
			}
		})
	}
}

func orCompleted(err error) error {
	if err == nil {
		return streamerr.Completed
	}
	return err
}

func streamerrOrNil(err error) error {
	if err == nil || errors.Is(err, streamerr.Completed) {
		return nil
	}
	return err
}

func play1(n uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(n, 1))} //nolint:gosec // a schedule, not a secret
	w.caller = NewCaller(CallerConfig{Self: "caller", Peer: "callee"})
	w.engineAt = w.rng.IntN(12)
	w.stubborn = w.rng.IntN(4) == 0
	chance := func(of int, do func()) {
		if w.rng.IntN(of) == 0 {
			w.after(w.between(0, 80*time.Millisecond), do)
		}
	}
	chance(2, func() {
		w.stopAt, w.cause = w.now, &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client")}
		w.tellCaller(Event{Kind: Stop, Err: w.cause})
	})
	chance(4, func() { w.tellCaller(Event{Kind: Left}) })
	chance(4, func() {
		w.tellCallee(Event{Kind: Halt, Err: streamerr.New(streamerr.Draining, "drain"), Grace: DefaultGrace})
		w.stopCallee()
	})
	chance(4, func() { w.pausedTo = w.now + w.between(0, 600*time.Millisecond) })
	chance(6, func() {
		w.cut = true
		w.after(w.between(0, 20*time.Millisecond), func() {
			if w.caller.phase != idle {
				w.tellCaller(Event{Kind: Over, Err: streamerr.New(streamerr.PeerLost, "cut")})
			}
		})
		w.after(w.between(0, 20*time.Millisecond), func() { w.lose(streamerr.PeerLost) })
	})
	w.after(w.between(0, 10*time.Millisecond), func() { w.tellCaller(Event{Kind: Open}) })
	for steps := 0; len(w.queue) > 0; steps++ {
		if steps > 10_000 {
			w.fail("the schedule does not end")
			break
		}
		next, _ := heap.Pop(&w.queue).(occurrence)
		w.now = next.at
		next.do()
	}
	return w
}

// stopCallee stops the stream on the callee's hop.
func (w *world) stopCallee() {
	if w.callee == nil || w.stopped != nil {
		return
	}
	w.stopped = streamerr.New(streamerr.Draining, "drain")
	w.after(w.between(0, 40*time.Millisecond), w.produce)
}

// check reports violations of the rules that hold for every schedule.
func (w *world) check() {
	if len(w.finished) != 1 {
		w.fail("the caller ended %d times: %v", len(w.finished), w.finished)
	}
	if w.callee == nil {
		return
	}
	if len(w.recorded) != 1 {
		w.fail("the callee ended %d times: %v", len(w.recorded), w.recorded)
	}
	if len(w.finished) != 1 || len(w.recorded) != 1 {
		return
	}
	known := errors.Is(w.callee.stopped, w.callee.lost) // if the caller's loss is the reason of the stop, no Gone is needed
	if w.gone > 1 || w.callee.abandoned && !known && w.told+w.gone != 1 {
		w.fail("the caller was told %d times, and has gone %d times", w.told, w.gone)
	}
	if w.confirmed && w.stopAt == 0 {
		w.fail("confirmed without a stop")
	}
	// If the connection did not break and the call was not reset, both ends report the same ending.
	// If both ends stop the stream, each may report its own reason.
	held, both := !w.cut && !w.reset, w.finished[0] == "client_gone" && w.recorded[0] == "draining"
	left := w.caller.left != nil && w.finished[0] == "completed"
	if held && !both && !left && w.finished[0] != w.recorded[0] {
		w.fail("the caller says %s, the callee %s", w.finished[0], w.recorded[0])
	}
	if w.callee.Step(w.now, Event{Kind: Stop, Err: streamerr.Internal}) != nil || w.caller.Step(w.now, Event{Kind: Stop, Err: streamerr.Internal}) != nil {
		w.fail("an action after the end")
	}
}

// TestSchedules plays random schedules: stops at any time, readers that leave or do not read,
// engines that ignore a stop, drains, and links that break. go test -run Schedules -seed N plays
// and prints one schedule.
func TestSchedules(t *testing.T) {
	if *seed > 0 {
		w := play1(*seed)
		w.check()
		t.Log("\n" + w.log.String())
		for _, f := range w.failures {
			t.Error(f)
		}
		return
	}
	seen := map[string]int{}
	for n := range uint64(*seeds) {
		w := play1(n + 1)
		w.check()
		seen[fmt.Sprint(w.finished, w.recorded)]++
		if len(w.failures) > 0 {
			t.Fatalf("-seed %d: %v\n%s", n+1, w.failures, w.log.String())
		}
	}
	if len(seen) < 10 {
		t.Errorf("the schedules reach only %v", seen)
	}
	t.Log(seen)
}
