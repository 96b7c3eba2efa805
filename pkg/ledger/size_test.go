package ledger_test

import (
	"context"
	"sync"
	"testing"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// tokens is a message of 4 bytes, and one for each of so many ids.
func tokens(n int) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: make([]uint32, n)}}}
}

func traced(messages int) (*ledger.Ledger, *ledger.Record) {
	l := &ledger.Ledger{Traces: &streamtrace.Tracer{Messages: messages}}
	r, _ := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "chat", Peer: "peer:1"}).(*ledger.Record)
	return l, r
}

// TestSizesAreThoseOfTheFirstAndOfOneInEight, in each direction: the others are taken to be alike. What has no tokens is weighed.
func TestSizesAreThoseOfTheFirstAndOfOneInEight(t *testing.T) {
	for name, note := range map[string]func(*ledger.Record, int, any){
		"below": (*ledger.Record).Received,
		"above": (*ledger.Record).Sent,
	} {
		t.Run(name, func(t *testing.T) { sizes(t, note) })
	}
}

func sizes(t *testing.T, note func(*ledger.Record, int, any)) {
	t.Helper()
	l, r := traced(100)
	note(r, 0, tokens(100))
	for i := range 20 {
		note(r, 1, tokens(1+i))
	}
	note(r, 0, "no message of protobuf")
	want := []uint32{104, 5, 6, 7, 8, 8, 8, 8, 8, 13, 13, 13, 13, 13, 13, 13, 13, 21, 21, 21, 21, 0}
	events := l.Get("a").GetEvents()[1:] // behind the call's header
	if len(events) != len(want) {
		t.Fatal(events)
	}
	for i, e := range events {
		if e.GetBytes() != want[i] {
			t.Errorf("message %d has %d bytes, want %d", i, e.GetBytes(), want[i])
		}
	}
}

// TestSeveralCallsOfOneStreamAreWeighedTogether: a stream with several choices has a call below for each, and each call is
// received by its own goroutine. The race detector is the judge.
func TestSeveralCallsOfOneStreamAreWeighedTogether(t *testing.T) {
	l, r := traced(100)
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for range 100 {
				r.Received(1, tokens(1))
			}
		})
	}
	calls.Wait()
	if p := l.Get("a"); p.GetTokensIn() != 400 {
		t.Errorf("%d tokens came in, want 400", p.GetTokensIn())
	}
	for _, e := range l.Get("a").GetEvents() {
		if e.GetKind() == streamv1.EventKind_EVENT_KIND_RECV && e.GetBytes() != 5 {
			t.Errorf("message %d has %d bytes, want 5", e.GetIndex(), e.GetBytes())
		}
	}
}

// BenchmarkMessage is what one message costs a hop that is traced, below and above.
func BenchmarkMessage(b *testing.B) {
	_, r := traced(streamtrace.DefaultMessages)
	m := tokens(1)
	b.ReportAllocs()
	for b.Loop() {
		r.Received(1, m)
		r.Sent(1, m)
	}
}
