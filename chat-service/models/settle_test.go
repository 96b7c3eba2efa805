package models

import (
	"testing"
	"time"

	"github.com/whence-dev/whence/pkg/rpc"
)

// TestDefaultTimesYieldToThoseThatWereSet: a stream has time to move before a timer ends it, and no
// value that was set changes.
func TestDefaultTimesYieldToThoseThatWereSet(t *testing.T) {
	for name, test := range map[string]struct{ move, timer, wantMove, wantTimer time.Duration }{
		"defaults":            {DefaultFirstTokenMove, DefaultFirstToken, DefaultFirstTokenMove, DefaultFirstToken},
		"a short timer":       {DefaultFirstTokenMove, 3 * time.Second, 1500 * time.Millisecond, 3 * time.Second},
		"a late move":         {10 * time.Minute, DefaultFirstToken, 10 * time.Minute, 20 * time.Minute},
		"no timer":            {10 * time.Minute, 0, 10 * time.Minute, 0},
		"no move":             {0, time.Second, 0, time.Second},
		"both were set":       {time.Minute, 2 * time.Minute, time.Minute, 2 * time.Minute},
		"both were set wrong": {2 * time.Minute, time.Minute, 2 * time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			c := Card{Workers: "h:1,h:2", FirstTokenMove: test.move, Timers: rpc.Timers{FirstToken: test.timer}}
			settled := c.settle()
			if settled.FirstTokenMove != test.wantMove || settled.Timers.FirstToken != test.wantTimer {
				t.Errorf("a move after %v and a timer of %v", settled.FirstTokenMove, settled.Timers.FirstToken)
			}
			if err, wrong := c.Validate(), isLate(test.wantMove, test.wantTimer); (err != nil) != wrong {
				t.Error(err)
			}
		})
	}
}
