package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMessagesAllocateNothing(t *testing.T) {
	s := begin(newMetrics(t).Hop("h", metrics.Chat))
	defer s.End(streamerr.Completed, "engine")
	s.Started("m", 1)
	s.Out(1) // the first token is recorded separately
	if n := testing.AllocsPerRun(1000, func() {
		s.In(1)
		s.Out(1)
		s.tally.Wrote(10)
	}); n != 0 {
		t.Errorf("%v allocations per message", n)
	}
}

// BenchmarkMessage measures the cost of a message that comes from below and is passed on.
func BenchmarkMessage(b *testing.B) {
	for name, h := range map[string]*metrics.Hop{"off": nil, "on": newMetrics(b).Hop("h", metrics.Chat)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				s := begin(h)
				s.Started("m", 1)
				for p.Next() {
					s.In(1)
					s.Out(1)
					s.tally.Wrote(9)
				}
				s.End(streamerr.Completed, "engine")
			})
		})
	}
}

// BenchmarkStream measures the cost of a stream without messages.
func BenchmarkStream(b *testing.B) {
	h := newMetrics(b).Hop("h", metrics.Chat)
	b.ReportAllocs()
	for b.Loop() {
		s := begin(h)
		s.Started("m", 1)
		s.Out(1)
		s.End(streamerr.Completed, "engine")
	}
}

// BenchmarkScrape measures a scrape of a hop with ten thousand live streams, and what an endpoint picker
// reads of it.
func BenchmarkScrape(b *testing.B) {
	m := newMetrics(b)
	h := m.Hop("h", metrics.Chat)
	for range 10000 {
		s := begin(h)
		s.Started("m", 1)
		s.Out(1)
	}
	if _, err := h.Load(func() metrics.Load { return metrics.Load{KVLimit: 64, Block: 16, Model: "m"} }); err != nil {
		b.Fatal(err)
	}
	for name, handler := range map[string]http.Handler{"all": m.Handler(), "pool": m.Pool()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				_, _ = io.Copy(io.Discard, w.Body)
			}
		})
	}
}
