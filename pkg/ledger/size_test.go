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

// tokens returns a message of 4 bytes plus one byte for each of n ids.
func tokens(n int) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: make([]uint32, n)}}}
}

func traced(messages int) (*ledger.Ledger, *ledger.Record) {
	l := &ledger.Ledger{Traces: &streamtrace.Tracer{Messages: messages}}
	r, _ := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "chat", Peer: "peer:1"}).(*ledger.Record)
	return l, r
}

// TestSizesOfFewMessagesAreComputed: of the first ones and of one in eight, in each direction. The
// other messages get the same size. The size of a message without tokens is always computed.
func TestSizesOfFewMessagesAreComputed(t *testing.T) {
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
	events := l.Get("a").GetEvents()[1:] // after the event of the call's header
	if len(events) != len(want) {
		t.Fatal(events)
	}
	for i, e := range events {
		if e.GetBytes() != want[i] {
			t.Errorf("message %d has %d bytes, want %d", i, e.GetBytes(), want[i])
		}
	}
}

// TestSizesOfSeveralCallsOfOneStream: a stream with several choices has a call below for each
// choice, and a goroutine for each call receives. The race detector checks this.
func TestSizesOfSeveralCallsOfOneStream(t *testing.T) {
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
		t.Errorf("received %d tokens, want 400", p.GetTokensIn())
	}
	for _, e := range l.Get("a").GetEvents() {
		if e.GetKind() == streamv1.EventKind_EVENT_KIND_RECV && e.GetBytes() != 5 {
			t.Errorf("message %d has %d bytes, want 5", e.GetIndex(), e.GetBytes())
		}
	}
}

// BenchmarkMessage measures the cost of one message, below and above, on a hop with traces.
func BenchmarkMessage(b *testing.B) {
	_, r := traced(streamtrace.DefaultMessages)
	m := tokens(1)
	b.ReportAllocs()
	for b.Loop() {
		r.Received(1, m)
		r.Sent(1, m)
	}
}
