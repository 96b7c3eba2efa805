package leave_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestPoliciesAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]leave.Policy{
		"cancel": {}, "detach": {Kind: leave.Detach}, "drain": {Kind: leave.Drain}, "linger:1m30s": {Kind: leave.Linger, For: 90 * time.Second},
	} {
		p, err := leave.Parse(text)
		if err != nil || p != want {
			t.Errorf("%q: %v, %v", text, p, err)
		}
		if again, err := leave.Parse(p.String()); again != p || err != nil {
			t.Errorf("%q: %v, %v", p, again, err)
		}
	}
	for _, text := range []string{"", "stay", "linger", "linger:", "linger:0s", "linger:-1s", "linger:2h", "linger:5", "cancel:1s", "Cancel"} {
		if p, err := leave.Parse(text); !errors.Is(err, streamerr.Invalid) || streamerr.As(err).Param != leave.Header {
			t.Errorf("%q is %v, %v", text, p, err)
		}
	}
}

// A stream records the calls of its watch.
type stream struct {
	mu      sync.Mutex
	cause   *streamerr.Error
	dropped bool
	ago     time.Duration
	seen    bool
}

func (s *stream) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *stream) watch(p leave.Policy) *leave.Watch {
	return leave.New(p, leave.Stream{
		Stop: func(cause *streamerr.Error) { s.note(func() { s.cause = cause }) },
		Drop: func() { s.note(func() { s.dropped = true }) },
		Seen: func() (ago time.Duration, ok bool) { s.note(func() { ago, ok = s.ago, s.seen }); return ago, ok },
	})
}

func (s *stream) reason() streamerr.Reason {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		return streamerr.Unspecified
	}
	return s.cause.Reason
}

func (s *stream) isDropped() (dropped bool) {
	s.note(func() { dropped = s.dropped })
	return dropped
}

var slow = streamerr.New(streamerr.SlowReader, "asleep")

func TestCancelEndsTheStreamWithTheCauseOfTheLastReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stream
		w := s.watch(leave.Policy{})
		defer w.End()
		first, second := w.Enter(), w.Enter()
		first(streamerr.New(streamerr.ClientGone, "gone"))
		first(streamerr.New(streamerr.ClientGone, "and gone again"))
		if s.reason(); s.cause != nil {
			t.Fatal("the stream ended although it had a reader")
		}
		second(slow)
		if s.reason(); s.cause != slow {
			t.Fatal(s.cause)
		}
	})
}

// TestReaderThatLeavesDoesNotAwaitOtherInstances: the goroutine that finds the reader gone may carry
// other streams.
func TestReaderThatLeavesDoesNotAwaitOtherInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []leave.Kind{leave.Cancel, leave.Drain} {
			answers, acted := make(chan bool), false
			act := func() { acted = true }
			w := leave.New(leave.Policy{Kind: kind}, leave.Stream{
				Stop: func(*streamerr.Error) { act() }, Drop: act,
				Seen: func() (time.Duration, bool) { <-answers; return 0, false },
			})
			w.Enter()(slow)
			if synctest.Wait(); acted {
				t.Errorf("%d: it acts before the other instances have answered", kind)
			}
			close(answers)
			if synctest.Wait(); !acted {
				t.Errorf("%d: nothing happens", kind)
			}
			w.End()
		}
	})
}

func TestAStreamWaitsForItsFirstReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stream
		w := s.watch(leave.Policy{})
		defer w.End()
		time.Sleep(29 * time.Second)
		if s.reason() != streamerr.Unspecified {
			t.Fatal("it did not wait", s.cause)
		}
		time.Sleep(2 * time.Second)
		if s.reason() != streamerr.ClientGone || s.cause.Path.String() != "client" {
			t.Fatal(s.cause)
		}
	})
}

func TestLingerWaitsForAReaderToReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stream
		w := s.watch(leave.Policy{Kind: leave.Linger, For: 10 * time.Second})
		defer w.End()
		for range 3 {
			time.Sleep(9 * time.Second)
			leave := w.Enter()
			time.Sleep(time.Minute)
			leave(slow)
		}
		time.Sleep(9 * time.Second)
		if s.reason() != streamerr.Unspecified {
			t.Fatal("it did not wait", s.cause)
		}
		time.Sleep(2 * time.Second)
		if s.reason() != streamerr.ClientGone || s.cause.Message != "the stream has had no reader for 10s" {
			t.Fatal(s.cause)
		}
	})
}

func TestReadersOfOtherInstancesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []leave.Policy{{}, {Kind: leave.Linger, For: 5 * time.Second}} {
			s := stream{seen: true, ago: time.Second}
			w := s.watch(p)
			w.Enter()(slow)
			time.Sleep(time.Minute) // a reader is seen each time
			if s.reason() != streamerr.Unspecified {
				t.Fatal(p, "the stream ended although it had a reader elsewhere", s.cause)
			}
			s.note(func() { s.ago = time.Minute })
			time.Sleep(10 * time.Second)
			if s.reason() == streamerr.Unspecified {
				t.Fatal(p, "the stream still runs without a reader")
			}
			w.End()
		}
	})
}

// TestEndedStreamIsKeptOnlyIfThePolicyKeepsIt: the events of a stream are dropped after its end,
// once its last reader has left, or when the time for its first reader is over.
func TestEndedStreamIsKeptOnlyIfThePolicyKeepsIt(t *testing.T) {
	for kind, keeps := range map[leave.Kind]bool{leave.Cancel: false, leave.Drain: false, leave.Linger: true, leave.Detach: true} {
		policy := leave.Policy{Kind: kind, For: 20 * time.Second}
		for name, read := range map[string]func(w *leave.Watch, check func(dropped bool)){
			"a reader that has the ending first": func(w *leave.Watch, check func(bool)) {
				w.Enter()(nil)
				check(false)
				w.End()
			},
			"a reader that leaves after the end": func(w *leave.Watch, check func(bool)) {
				leave := w.Enter()
				w.End()
				time.Sleep(time.Hour)
				check(false)
				leave(nil)
			},
			"two readers": func(w *leave.Watch, check func(bool)) {
				first, second := w.Enter(), w.Enter()
				first(nil)
				w.End()
				check(false)
				second(slow)
			},
			"no reader": func(w *leave.Watch, check func(bool)) {
				time.Sleep(10 * time.Second)
				w.End()
				time.Sleep(19 * time.Second)
				check(false)
				time.Sleep(2 * time.Second)
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				var s stream
				w := s.watch(policy)
				check := func(dropped bool) {
					if s.reason() != streamerr.Unspecified || s.isDropped() != dropped {
						t.Errorf("%v, %s: stopped with %v; dropped %t, want %t", policy, name, s.cause, s.isDropped(), dropped)
					}
				}
				read(w, check)
				check(!keeps)
				time.Sleep(time.Hour)
				check(!keeps)
			})
		}
	}
}

// TestReadersOfOtherInstancesDelayTheDrop: events are dropped only after the last reader elsewhere
// has left.
func TestReadersOfOtherInstancesDelayTheDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []leave.Kind{leave.Cancel, leave.Drain} {
			s := stream{seen: true, ago: time.Second}
			w := s.watch(leave.Policy{Kind: kind})
			w.Enter()(nil)
			w.End()
			time.Sleep(time.Minute)
			if s.reason(); s.isDropped() {
				t.Errorf("%d: it is dropped although it has a reader elsewhere", kind)
			}
			s.note(func() { s.ago = time.Minute })
			time.Sleep(10 * time.Second)
			if s.reason(); !s.isDropped() {
				t.Errorf("%d: it is not dropped after its last reader elsewhere", kind)
			}
		}
	})
}

// TestDrainWaitsForItsFirstReader: if no reader arrives, the events of a drained stream are dropped
// while the stream continues.
func TestDrainWaitsForItsFirstReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stream
		w := s.watch(leave.Policy{Kind: leave.Drain})
		defer w.End()
		time.Sleep(29 * time.Second)
		if s.reason(); s.isDropped() {
			t.Error("it did not wait")
		}
		time.Sleep(2 * time.Second)
		if s.reason() != streamerr.Unspecified || !s.isDropped() {
			t.Errorf("after 31 s it is stopped with %v, dropped: %t", s.cause, s.isDropped())
		}
	})
}

func TestDetachAndDrainLetTheStreamContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []leave.Kind{leave.Detach, leave.Drain} {
			var s stream
			w := s.watch(leave.Policy{Kind: kind})
			time.Sleep(time.Hour)
			w.Enter()(slow)
			time.Sleep(time.Hour)
			if s.reason() != streamerr.Unspecified || s.isDropped() != (kind == leave.Drain) {
				t.Errorf("%d: %v, dropped %t", kind, s.cause, s.isDropped())
			}
			w.End()
		}
	})
}

func TestEndedStreamIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stream
		w := s.watch(leave.Policy{Kind: leave.Linger, For: time.Second})
		leave := w.Enter()
		w.End()
		leave(slow)
		time.Sleep(time.Minute)
		if s.reason() != streamerr.Unspecified {
			t.Error(s.cause)
		}
	})
}

func TestPoliciesAreBounded(t *testing.T) {
	order := []string{"cancel", "linger:1s", "linger:1m", "drain", "detach"}
	within := map[string]string{
		"cancel": "cancel", "linger:1s": "cancel linger:1s", "linger:1m": "cancel linger:1s linger:1m", "drain": "cancel drain",
		"detach": "cancel linger:1s linger:1m drain detach",
	}
	for limit, want := range within {
		for _, policy := range order {
			p, err := leave.Parse(policy)
			l, err2 := leave.Parse(limit)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			if got := p.Within(l); got != slices.Contains(strings.Fields(want), policy) {
				t.Errorf("%s is within %s: %t", policy, limit, got)
			}
		}
	}
}
