package besidetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// BenchmarkStop measures the time from a stop until the server has received it, and until the
// server has confirmed it.
func BenchmarkStop(b *testing.B, s Subject) {
	var heard time.Time
	e, server := s.Start(b, func(a *Answer) error {
		a.Chunk(100)
		a.Wait()
		heard = time.Now()
		return a.Aborted()
	})
	var knows, confirmed []time.Duration
	for b.Loop() {
		ctx, ctl := stream.WithControl(context.Background(), time.Minute)
		var at time.Time
		Read(ctx, e, Ask(100), func(r *Result) {
			if len(r.Tokens) == 1 {
				at = time.Now()
				ctl.Stop(streamerr.ClientGone)
			}
		})
		confirmed = append(confirmed, time.Since(at))
		ctl.Release()
		polltest.Eventually(b, "the answer has ended", func() bool { return server.Live.Load() == 0 })
		knows = append(knows, heard.Sub(at))
	}
	for name, took := range map[string][]time.Duration{"knows": knows, "confirmed": confirmed} {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), name+"-p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), name+"-p99-µs")
	}
}

// BenchmarkTokens measures the cost of a token, from the server's message to the item.
func BenchmarkTokens(b *testing.B, s Subject) {
	e, _ := s.Start(b, func(a *Answer) error {
		for range b.N {
			a.Chunk(100)
		}
		a.Complete("length")
		return nil
	})
	req := Ask(1)
	req.Sampling = nil
	b.ReportAllocs()
	b.ResetTimer()
	if r := Read(b.Context(), e, req, nil); r.Err != nil || len(r.Tokens) != b.N {
		b.Fatal(len(r.Tokens), r.Err)
	}
}
