package main

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRowsFindEveryStream runs three rows with a few streams: every stream has its text and its
// ending. It checks no times.
func TestRowsFindEveryStream(t *testing.T) {
	if testing.Short() {
		t.Skip("this test builds the services")
	}
	b, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	for _, r := range rows {
		if !slices.Contains([]string{"worker killed, another is there", "api-service gets a second signal", "workers restart, one after another"}, r.name) {
			continue
		}
		s := &stand{builds: b, streams: 3}
		all, err := s.play(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		counts := 0
		for _, f := range all {
			if f.Unit != report.Count {
				continue
			}
			if counts++; f.Got != 0 {
				t.Errorf("%s: %s: %v", f.Row, f.What, f.Got)
			}
		}
		if counts < 4 || len(s.readers) != 3 {
			t.Errorf("%s: %d figures of %d streams", r.name, counts, len(s.readers))
		}
	}
}

// TestEndingsAreStrict: a stream has one ending, and nothing after it.
func TestEndingsAreStrict(t *testing.T) {
	const (
		text   = `{"choices":[{"delta":{"content":"x"},"finish_reason":null}]}`
		finish = `{"choices":[{"delta":{},"finish_reason":"length"}]}`
		usage  = `{"choices":[],"usage":{}}`
		fails  = `{"error":{"message":"m","type":"t","whence":{"reason":"draining"}}}`
		done   = "[DONE]"
	)
	for _, c := range []struct {
		want   ending
		events []string
	}{
		{completed, []string{text, finish, usage, done}},
		{failed, []string{text, fails}},
		{cut, []string{text}},
		{cut, []string{text, finish}},
		{cut, []string{text, done}},
		{cut, []string{text, finish, text, done}},
		{cut, []string{text, finish, done, text}},
		{cut, []string{text, finish, done, done}},
		{cut, []string{text, fails, fails}},
		{cut, []string{text, fails, done}},
	} {
		resp := &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("data: " + strings.Join(c.events, "\n\ndata: ") + "\n\n"))}
		r := &reader{ending: cut}
		if err := r.answer(resp); r.ending != c.want {
			t.Errorf("%q: ending %d, %v; want %d", c.events, r.ending, err, c.want)
		}
	}
}

// TestHangingStreamsAreFound: a hanging stream is found even if the row itself has waited for it.
func TestHangingStreamsAreFound(t *testing.T) {
	s := &stand{readers: []*reader{{ending: left}, {ending: completed}, {ending: left}}}
	s.finish()
	all := s.common(t.Context(), row{kept: true})
	if all[0].What != "streams that hang" || all[0].Got != 2 || all[0].Within() {
		t.Errorf("%+v", all[0])
	}
}

// TestFailedServicesDoNotBlockTheEndOfARow: a stand ends although a service did not start.
func TestFailedServicesDoNotBlockTheEndOfARow(t *testing.T) {
	s := &stand{builds: &builds{dir: t.TempDir()}}
	if err := s.add(&s.workers, "llm-worker", 0); err == nil || len(s.workers) != 1 {
		t.Errorf("%v, with %d workers", err, len(s.workers))
	}
	s.end()
}

// TestFaultsStrikeRunningStreams: a row whose streams ended before the fault is an error.
func TestFaultsStrikeRunningStreams(t *testing.T) {
	s := &stand{streams: 2}
	if err := s.allRun(); err != nil {
		t.Error(err)
	}
	s.run(func() {})
	s.reading.Wait()
	if err := s.allRun(); err == nil {
		t.Error("allRun does not report a stream that ended before the fault")
	}
}

// TestRequestsBesideTheStreamsAreCounted: a request without an answer counts, and has no time to first
// token.
func TestRequestsBesideTheStreamsAreCounted(t *testing.T) {
	at := time.Now()
	all := []*reader{{ending: refused, asked: at}, {ending: completed, asked: at, begun: at.Add(time.Second)}, {ending: cut, asked: at}}
	if n, first := unanswered(all), ttft(all); n != 2 || first != time.Second {
		t.Errorf("%d without an answer, time to first token %v", n, first)
	}
	if ttft(nil) != 0 {
		t.Error("no request has a time to first token")
	}
}

// TestGrowthIgnoresOneStep: a difference within noise is none, and a larger one counts from there.
func TestGrowthIgnoresOneStep(t *testing.T) {
	if got := growth(100*time.Millisecond, 100*time.Millisecond+noise); got != 0 {
		t.Errorf("within noise, the growth is %v", got)
	}
	if got := growth(100*time.Millisecond, 150*time.Millisecond+noise); got != 50 {
		t.Errorf("the growth is %v, not 50", got)
	}
}
