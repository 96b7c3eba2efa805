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

func TestRecordHasTheLatenciesOfItsTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger.Ledger{Traces: &streamtrace.Tracer{}}
		r, _ := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "api-service", First: true}).(*ledger.Record)
		if p := r.Proto(); p.GetFirstToken() != nil || p.GetPerToken() != nil || p.GetLongestGap() != nil {
			t.Errorf("a stream without tokens has latencies: %v", p)
		}
		time.Sleep(40 * time.Millisecond)
		r.Sent(1, nil)
		if p := r.Proto(); p.GetFirstToken().AsDuration() != 40*time.Millisecond || p.GetPerToken() != nil {
			t.Errorf("after the first token: %v", p)
		}
		for _, gap := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 30 * time.Millisecond} {
			time.Sleep(gap)
			r.Sent(1, nil)
		}
		p := r.Proto()
		if p.GetFirstToken().AsDuration() != 40*time.Millisecond || p.GetPerToken().AsDuration() != 30*time.Millisecond || p.GetLongestGap().AsDuration() != 50*time.Millisecond {
			t.Errorf("first token %v, per token %v, longest gap %v", p.GetFirstToken().AsDuration(), p.GetPerToken().AsDuration(), p.GetLongestGap().AsDuration())
		}
	})
}
