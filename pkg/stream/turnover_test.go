package stream

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTurnoverEstimatesRetryDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var to Turnover
		if got := to.After(100); got != soonest {
			t.Errorf("without history: %v", got)
		}
		for range 50 {
			time.Sleep(500 * time.Millisecond)
			to.Freed()
		}
		for ahead, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 9: 5 * time.Second, 10: 6 * time.Second, 1000: latest} {
			if got := to.After(ahead); got != want {
				t.Errorf("%d ahead: %v, want %v", ahead, got, want)
			}
		}
		time.Sleep(24 * time.Hour) // a night without traffic
		for range 60 {
			to.Freed()
			time.Sleep(500 * time.Millisecond)
		}
		if got := to.After(9); got != 5*time.Second && got != 6*time.Second {
			t.Errorf("after a night without traffic: %v", got)
		}
	})
}
