package protocol

import (
	"testing"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestGraceShrinksFromHopToHop stops a path whose last engine ignores the stop. Each hop ends
// before the hop above gives up, and all hops end within the grace of the first.
func TestGraceShrinksFromHopToHop(t *testing.T) {
	const trip = 5 * time.Millisecond
	var now, last time.Duration
	var grace time.Duration // unknown on the first hop
	limit := DefaultGrace
	for hop := range 4 {
		caller := NewCaller(CallerConfig{Peer: "peer"})
		caller.Step(now, Event{Kind: Open})
		caller.Step(now, Event{Kind: Opened})
		sent := caller.Step(now, Event{Kind: Stop, Err: streamerr.UserStop, Grace: grace})
		if len(sent) != 1 || sent[0].Verb != SendStop {
			t.Fatal(sent)
		}
		if caller.Wake() > limit {
			t.Errorf("hop %d waits until %v, the hop above until %v", hop, caller.Wake(), limit)
		}
		now += trip
		callee := NewCallee(CalleeConfig{})
		stopped := callee.Step(now, Event{Kind: Stop, Err: streamerr.UserStop, Grace: sent[0].Grace})
		if last = callee.Wake(); last+2*trip > caller.Wake() {
			t.Errorf("hop %d kills its engine at %v, and the hop above resets the call at %v", hop, last, caller.Wake())
		}
		limit, grace = last, stopped[0].Grace
	}
	if last > DefaultGrace-4*2*trip {
		t.Errorf("the last engine is killed at %v", last)
	}
}
