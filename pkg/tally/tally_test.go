package tally_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/tally"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func newTimed() *tally.Tally {
	c := tally.New(time.Now())
	c.Time()
	return c
}

// TestWaitsForTheCallerAreLeftOut: the time to the first token and the gaps between tokens exclude
// the time that the stream waited for its caller. The times of the kept messages include it.
func TestWaitsForTheCallerAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTimed()
		c.Keep(2)
		time.Sleep(3 * time.Second)
		c.Waited(2 * time.Second)
		if first := c.Sent(1, nil); first != time.Second {
			t.Errorf("the first token took %v", first)
		}
		time.Sleep(20 * time.Millisecond)
		if first := c.Sent(2, nil); first != 0 {
			t.Errorf("Sent reported another first token, after %v", first)
		}
		time.Sleep(time.Minute)
		c.Waited(time.Minute - 50*time.Millisecond)
		c.Sent(3, nil)
		s := c.Snapshot()
		if s.Sent.GapSum != 70*time.Millisecond || s.Sent.Longest != 50*time.Millisecond || s.Sent.Gaps[tally.Bucket(20*time.Millisecond)] != 1 ||
			s.Sent.Gaps[tally.Bucket(50*time.Millisecond)] != 1 || s.Waited != time.Minute+2*time.Second-50*time.Millisecond {
			t.Errorf("%+v", s)
		}
		if mean, ok := s.Sent.PerToken(); !ok || mean != 14*time.Millisecond {
			t.Errorf("%v per token", mean)
		}
		if c.FirstSent() != 3*time.Second {
			t.Errorf("the first message came after %v", c.FirstSent())
		}
		var at []time.Duration
		if n := c.EachSent(func(_ uint64, m *tally.Message) { at = append(at, m.At) }); n != 3 || len(at) != 3 || at[2] != 3*time.Second+20*time.Millisecond+time.Minute {
			t.Error(n, at)
		}
	})
}

func TestUndeliveredTokensAreWasted(t *testing.T) {
	c := tally.New(time.Now())
	c.Received(4, nil)
	c.Sent(3, nil)
	c.TakenBack(2)
	if c.Unreceived(5) {
		t.Error("Unreceived reported late before Close")
	}
	s := c.Close()
	if s.Delivered() != 1 || s.Wasted() != 8 {
		t.Errorf("%d delivered, %d wasted", s.Delivered(), s.Wasted())
	}
	if !c.Unreceived(2) || c.Snapshot().Received.Tokens != 11 {
		t.Errorf("%+v", c.Snapshot())
	}
}

// TestUntimedTallyCounts: without Time and Keep there are tokens and messages, but no times and
// sizes.
func TestUntimedTallyCounts(t *testing.T) {
	c := tally.New(time.Now())
	c.Received(2, &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{1, 2}}}})
	c.Received(0, nil)
	if first := c.Sent(2, nil); first != 0 || c.FirstSent() != 0 {
		t.Error("an untimed tally has a time:", first, c.FirstSent())
	}
	s := c.Snapshot()
	if s.Received.Messages != 2 || s.Received.Tokens != 2 || s.Received.Bytes != 0 || s.Sent.Messages != 1 {
		t.Errorf("%+v", s)
	}
}

// TestSnapshotsOnlyGrow: while several goroutines receive and one sends, under the race detector.
func TestSnapshotsOnlyGrow(t *testing.T) {
	c := newTimed()
	c.Keep(4)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 500 {
				c.Received(1, nil)
			}
		})
	}
	all.Go(func() {
		for range 500 {
			c.Wrote(3)
			c.Sent(1, nil)
		}
	})
	var before tally.Snapshot
	for range 100 {
		now := c.Snapshot()
		if now.Received.Tokens < before.Received.Tokens || now.Sent.Bytes < before.Sent.Bytes {
			t.Fatalf("%+v after %+v", now, before)
		}
		c.EachReceived(func(uint64, *tally.Message) {})
		before = now
	}
	all.Wait()
	if s := c.Snapshot(); s.Received.Tokens != 1500 || s.Sent.Tokens != 500 || s.Sent.Bytes != 1500 {
		t.Errorf("%+v", s)
	}
}

func TestMessagesAllocateNothing(t *testing.T) {
	m := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{1}}}}
	for name, c := range map[string]*tally.Tally{"counted": tally.New(time.Now()), "newTimed": newTimed(), "kept": tally.New(time.Now())} {
		if name == "kept" {
			c.Keep(4)
		}
		if n := testing.AllocsPerRun(1000, func() {
			c.Received(1, m)
			c.Wrote(9)
			c.Sent(1, m)
		}); n != 0 {
			t.Errorf("%s: %v allocations per message", name, n)
		}
	}
}

// TestMergedMessagesAreCounted: both ends of a connection count the same messages, though one end
// has merged them.
func TestMergedMessagesAreCounted(t *testing.T) {
	c := newTimed()
	c.Received(1, nil)
	c.Merged(3)
	c.Received(4, nil)
	if got := c.Snapshot().Received; got.Messages != 5 || got.Tokens != 5 || sum(got.Gaps[:]) != 1 {
		t.Errorf("%+v", got)
	}
}

func sum(all []uint64) (n uint64) {
	for _, one := range all {
		n += one
	}
	return n
}
