package load_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/load"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A server takes a fixed time for each request, and records the requests.
type server struct {
	takes   time.Duration
	refuses bool

	mu      sync.Mutex
	running int
	most    int // maximum number of concurrent requests
	late    []time.Duration
	clients int
	open    int
}

func (s *server) connect(context.Context) load.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients++
	s.open++
	return s
}

func (s *server) Do(ctx context.Context, intended time.Time) bool {
	s.mu.Lock()
	s.running++
	s.most = max(s.most, s.running)
	s.late = append(s.late, time.Since(intended))
	s.mu.Unlock()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	return !s.refuses
}

func (s *server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

func TestClosedLoopKeepsEachClientBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: time.Second}
		l := load.Start(t.Context(), load.Plan{Clients: 3}, s.connect)
		time.Sleep(10*time.Second + time.Millisecond)
		l.Stop()
		if len(s.late) != 33 || s.most != 3 || l.Begun() != 33 || s.open != 0 {
			t.Errorf("%d requests, %d at a time; %d clients are open", len(s.late), s.most, s.open)
		}
	})
}

func TestClosedLoopBacksOffAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{refuses: true}
		l := load.Start(t.Context(), load.Plan{Clients: 1}, s.connect)
		time.Sleep(time.Second + time.Millisecond)
		l.Stop()
		if n := l.Begun(); n < 10 || n > 60 {
			t.Errorf("%d requests in a second", n)
		}
	})
}

func TestLoadEndsAfterItsRequests(t *testing.T) {
	for name, plan := range map[string]load.Plan{"closed": {Clients: 4, Requests: 10}, "open": {Clients: 4, Rate: 100, Requests: 10}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{takes: time.Second}
				l := load.Start(t.Context(), plan, s.connect)
				l.Wait()
				if len(s.late) != 10 || l.Begun() != 10 || s.most != 4 || s.open != 0 {
					t.Errorf("%d requests, %d at a time; %d clients are open", len(s.late), s.most, s.open)
				}
			})
		})
	}
}

// TestOpenLoopDoesNotWaitForAnswers: requests are due at random times, so their number varies: 1,000
// are expected, with a standard deviation of 32.
func TestOpenLoopDoesNotWaitForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 100 * time.Millisecond}
		l := load.Start(t.Context(), load.Plan{Clients: 1000, Rate: 100}, s.connect)
		time.Sleep(10 * time.Second)
		l.Stop()
		if n := len(s.late); n < 800 || n > 1200 {
			t.Errorf("%d requests in 10 seconds, at 100 a second", n)
		}
		for _, late := range s.late {
			if late > 0 {
				t.Fatalf("a request is late by %v although clients are free", late)
			}
		}
		if s.clients > 100 || l.Unsent() != 0 {
			t.Errorf("%d clients, %d unsent", s.clients, l.Unsent())
		}
	})
}

// TestOpenLoopCountsTheWaitForAClient: two requests a second are due, and one can be answered. A
// generator that counts from the time of sending would report no wait.
func TestOpenLoopCountsTheWaitForAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: time.Second}
		l := load.Start(t.Context(), load.Plan{Clients: 1, Rate: 2}, s.connect)
		const lasts = 1000 * time.Second
		time.Sleep(lasts)
		l.Stop()
		last := s.late[len(s.late)-1]
		if last < 400*time.Second || last > 600*time.Second {
			t.Errorf("the last request is late by %v", last)
		}
		if all := l.Begun() + l.Unsent(); all < 1800 || all > 2200 || l.Unsent() < 800 {
			t.Errorf("%d requests have begun, and %d were unsent", l.Begun(), l.Unsent())
		}
	})
}

func TestHistogramKeepsLatenciesWithinItsRange(t *testing.T) {
	h := load.NewHistogram()
	if h.Percentile(50) != 0 {
		t.Errorf("the median of no latency is %d", h.Percentile(50))
	}
	for _, latency := range []time.Duration{-time.Second, 5 * time.Millisecond, 100 * time.Hour} {
		h.Record(latency)
	}
	if h.Count() != 3 || h.Percentile(0) != 0 || h.Percentile(50) < 4995 || h.Percentile(50) > 5005 || h.Max() != time.Hour.Microseconds() {
		t.Errorf("%d latencies, %d, %d, %d", h.Count(), h.Percentile(0), h.Percentile(50), h.Max())
	}
}

// TestPercentilesAreExactToOneInThousand compares percentiles of latencies from 1 us to an hour with
// those of the sorted list.
func TestPercentilesAreExactToOneInThousand(t *testing.T) {
	const n = 20_000
	parts := [2]*load.Histogram{load.NewHistogram(), load.NewHistogram()}
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(math.Exp(random.Float64() * math.Log(float64(time.Hour.Microseconds()))))
		parts[i%2].Record(time.Duration(all[i]) * time.Microsecond)
	}
	slices.Sort(all)
	h := parts[0]
	h.Merge(parts[1])
	for percent := 1; percent <= 100; percent++ {
		exact, got := all[percent*n/100-1], h.Percentile(float64(percent))
		if got < exact || float64(got) > float64(exact)*1.001 {
			t.Errorf("percentile %d is %d, and must be %d", percent, got, exact)
		}
	}
	if h.Count() != n || h.Max() != all[n-1] {
		t.Errorf("%d latencies, the largest %d", h.Count(), h.Max())
	}
}
