package fleet

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWorkerThatKeepsLosingStreamsIsLeftAloneLongerAndLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w trust
		fail := func() {
			for range 20 { // all that were on it
				w.failed()
			}
		}
		for i, seconds := range []int{0, 0, 1, 2, 4, 8, 16, 30, 30} {
			alone := time.Duration(seconds) * time.Second
			if !w.holds() {
				t.Fatalf("failure %d: doubted before", i)
			}
			fail()
			if w.holds() {
				t.Fatalf("failure %d: still trusted, before any probe", i)
			}
			if alone > 0 {
				time.Sleep(alone - time.Nanosecond)
				w.answered()
				if w.holds() {
					t.Fatalf("failure %d: trusted before %v has passed", i, alone)
				}
				time.Sleep(time.Nanosecond)
			}
			w.answered()
		}
		w.delivered()
		fail()
		if w.answered(); !w.holds() {
			t.Error("a token in between did not count")
		}
		for range 4 {
			fail()
			w.answered()
		}
		if w.renew(); !w.holds() {
			t.Error("a new process is held to what the old one did")
		}
	})
}
