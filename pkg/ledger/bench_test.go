package ledger_test

import (
	"context"
	"testing"

	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// BenchmarkToken measures the cost of one token on a hop: a message from below and a message to the
// caller.
func BenchmarkToken(b *testing.B) {
	message := tokens(1)
	for name, l := range observed(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				r := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "chat"})
				for p.Next() {
					r.Received(1, message)
					r.Sent(1, message)
				}
			})
		})
	}
}

// BenchmarkTokenAtTheEdge is BenchmarkToken for a hop that converts messages before it writes them.
func BenchmarkTokenAtTheEdge(b *testing.B) {
	message := tokens(1)
	for name, l := range observed(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r, _ := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "chat"}).(*ledger.Record)
			for b.Loop() {
				r.Received(1, message)
				r.OutBytes(90)
				r.Sent(1, nil)
			}
		})
	}
}

// BenchmarkStream measures the cost of a stream of one token on a hop, from its beginning to its
// ending.
func BenchmarkStream(b *testing.B) {
	message := tokens(1)
	for name, l := range observed(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "chat"})
				r.Received(1, message)
				r.Sent(1, message)
				r.Note(observer.Event{Kind: observer.Ended, Reason: streamerr.Completed, Path: streamerr.NewPath("engine")})
				r.Close()
			}
		})
	}
}

// observed returns ledgers of hops without and with metrics and traces.
func observed(b *testing.B) map[string]*ledger.Ledger {
	b.Helper()
	m, err := metrics.New("bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close(context.Background()) })
	hop, tracer := m.Hop("chat", metrics.Chat), &streamtrace.Tracer{Messages: streamtrace.DefaultMessages}
	return map[string]*ledger.Ledger{
		"nothing":        {},
		"metrics":        {Metrics: hop},
		"traces":         {Traces: tracer},
		"metrics+traces": {Metrics: hop, Traces: tracer},
	}
}
