package ledger_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// TestRecordHasThePaceOfEachDirection: a hop that delays tokens has longer gaps to its caller than
// from its callee.
func TestRecordHasThePaceOfEachDirection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger.Ledger{Traces: &streamtrace.Tracer{Messages: 4}}
		r, _ := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "chat", Peer: "peer:1"}).(*ledger.Record)
		if p := r.Proto(); p.GetReceivedPace() != nil || p.GetSentPace() != nil {
			t.Error("there is a pace before the first token:", p)
		}
		for _, delay := range []time.Duration{0, 0, 300 * time.Millisecond, 0} {
			time.Sleep(20 * time.Millisecond)
			r.Received(1, nil)
			time.Sleep(delay)
			r.Sent(1, nil)
		}
		p := r.Proto()
		if first := p.GetReceivedPace().GetFirst().AsDuration(); first != 20*time.Millisecond {
			t.Errorf("the first token came after %v", first)
		}
		if got := p.GetSentPace().GetLongest().AsDuration(); got != 320*time.Millisecond {
			t.Errorf("the longest gap to the caller is %v", got)
		}
		if p50 := p.GetReceivedPace().GetP50().AsDuration(); p50 <= 0 || p50 > 25*time.Millisecond {
			t.Errorf("the median gap from the callee is %v", p50)
		}
	})
}
