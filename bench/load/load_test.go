package load_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/bench/load"
	"github.com/whence-dev/whence/bench/paced"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/lab"
)

// start serves an engine, behind a handler that may delay it, and returns the address.
func start(t *testing.T, pace paced.Pace, around func(http.Handler) http.Handler) (*paced.Engine, string) {
	t.Helper()
	e := &paced.Engine{}
	e.Set(pace)
	h := e.Handler()
	if around != nil {
		h = around(h)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return e, strings.TrimPrefix(srv.URL, "http://")
}

func TestEveryTokenArrivesAndIsMeasured(t *testing.T) {
	for name, pace := range map[string]paced.Pace{"full speed": {}, "spread": {Period: time.Millisecond}, "in step": {Period: time.Millisecond, InStep: true}} {
		t.Run(name, func(t *testing.T) {
			_, addr := start(t, pace, nil)
			r := load.NewRecorder()
			r.Measure(true)
			l := load.Closed(t.Context(), addr, 4, r, func() load.Request { return load.Request{Tokens: 50, Prompt: "Hello."} })
			polltest.Eventually(t, "eight answers", func() bool { return r.Requests() >= 8 })
			l.Stop()
			sum := r.Summary()
			if sum.Failed > 0 {
				t.Errorf("%d streams failed: %v", sum.Failed, sum.Errors)
			}
			if sum.Tokens < 50*sum.Requests || sum.Latency.Count() != sum.Tokens || sum.TTFT.Count() < sum.Requests {
				t.Errorf("%d answers of 50 tokens: %d tokens, %d latencies, %d first tokens", sum.Requests, sum.Tokens, sum.Latency.Count(), sum.TTFT.Count())
			}
		})
	}
}

// TestOpenLoopCountsTheWaitForAClient: there is one client and a server that takes 50 ms per
// request, and requests are due every millisecond. A generator that measures from the time of
// sending would report 50 ms for each request.
func TestOpenLoopCountsTheWaitForAClient(t *testing.T) {
	const takes = 50 * time.Millisecond
	_, addr := start(t, paced.Pace{}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lab.Pause(r.Context(), takes)
			h.ServeHTTP(w, r)
		})
	})
	r := load.NewRecorder()
	l := load.Open(t.Context(), addr, 1000, 1, r, func() load.Request { return load.Request{Tokens: 1, Prompt: "Hello."} })
	polltest.Eventually(t, "four answers", func() bool { return r.Requests() >= 4 })
	l.Stop()
	sum := r.Summary()
	// Only one request can be due at a time while the previous request waits for the client: the
	// generator sends late requests first, so each is late by at least one answer.
	if late := time.Duration(sum.TTFT.Percentile(75)) * time.Microsecond; late < 2*takes*9/10 {
		t.Errorf("the 75th percentile is %v after the due time, want twice %v", late, takes)
	}
}

// TestSlowServerDelaysEveryTokenThatWasDue: after a server has stalled, all tokens that the engine
// could not write meanwhile are late, not only the first one.
func TestSlowServerDelaysEveryTokenThatWasDue(t *testing.T) {
	const stall = 200 * time.Millisecond
	_, addr := start(t, paced.Pace{Period: time.Millisecond}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(&stallingWriter{ResponseWriter: w, after: 20, stall: stall}, r)
		})
	})
	r := load.NewRecorder()
	r.Measure(true)
	l := load.Closed(t.Context(), addr, 1, r, func() load.Request { return load.Request{Tokens: 100, Prompt: "Hello."} })
	polltest.Eventually(t, "an answer", func() bool { return r.Requests() >= 1 })
	l.Stop()
	// 80 tokens were due at 1 ms each after a stall of 200 ms: all of them are late by more than
	// 100 ms.
	if late := time.Duration(r.Summary().Latency.Percentile(50)) * time.Microsecond; late < stall/2 {
		t.Errorf("the median latency of a token is %v, want more than %v", late, stall/2)
	}
}

// A stallingWriter delays one write.
type stallingWriter struct {
	http.ResponseWriter
	after int
	stall time.Duration
}

func (s *stallingWriter) Write(b []byte) (int, error) {
	if s.after--; s.after == 0 {
		lab.Pause(context.Background(), s.stall)
	}
	return s.ResponseWriter.Write(b)
}

func (s *stallingWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func TestDeparturesAndEndingsAreTheSameStreams(t *testing.T) {
	e, addr := start(t, paced.Pace{Period: time.Millisecond}, nil)
	r := load.NewRecorder()
	l := load.Closed(t.Context(), addr, 4, r, func() load.Request {
		return load.Request{Tokens: 1 << 20, Prompt: "Hello.", Life: 50 * time.Millisecond}
	})
	polltest.Eventually(t, "eight departures", func() bool { return len(r.Summary().Left) >= 8 })
	l.Stop()
	ended := map[uint64]paced.Ending{}
	polltest.Eventually(t, "end of all streams", func() bool {
		all, running := e.Endings()
		for _, one := range all {
			ended[one.Stream] = one
		}
		return running == 0
	})
	sum := r.Summary()
	if sum.Failed > 0 {
		t.Errorf("%d streams failed: %v", sum.Failed, sum.Errors)
	}
	for _, d := range sum.Left {
		if d.Received == 0 {
			continue // the engine may never have seen the request
		}
		if got, ok := ended[d.Stream]; !ok || !got.Stopped || got.Generated < d.Received {
			t.Errorf("the client left stream %d after %d tokens; the engine has %+v", d.Stream, d.Received, got)
		}
	}
}

func TestRefusalsAndCutStreamsFail(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "full", http.StatusTooManyRequests) },
		"cut":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"short":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("data: [DONE]\n\n")) },
		"event": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("data: {\"error\":{\"message\":\"lost\"}}\n\n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(answer)
			defer srv.Close()
			r := load.NewRecorder()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := load.Closed(ctx, strings.TrimPrefix(srv.URL, "http://"), 1, r, func() load.Request { return load.Request{Tokens: 3, Prompt: "Hello."} })
			polltest.Eventually(t, "failure", func() bool { return r.Summary().Failed > 0 })
			l.Stop()
			if n := r.Requests(); n > 0 {
				t.Errorf("%d requests are counted as completed", n)
			}
		})
	}
}
