package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRowsFindEveryStream runs two rows with a few streams: every stream has its text and its
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
		if r.name != "worker killed, another is there" && r.name != "api-service gets a second signal" {
			continue
		}
		s := &stand{builds: b, streams: 3}
		all, err := s.play(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		counts := 0
		for _, f := range all {
			if f.unit != count {
				continue
			}
			if counts++; f.got != 0 {
				t.Errorf("%s: %s: %v", f.row, f.what, f.got)
			}
		}
		if counts < 4 || len(s.readers) != 3 {
			t.Errorf("%s: %d figures of %d streams", r.name, counts, len(s.readers))
		}
	}
}

// TestMissedBoundsAreReported: a figure over its bound is marked in every output.
func TestMissedBoundsAreReported(t *testing.T) {
	all := []finding{{row: "r", what: "pause", unit: millis, got: 501.2, bound: 500}, {row: "r", what: "streams", got: 0, bound: 0}}
	var out strings.Builder
	if err := print(&out, all); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if !strings.Contains(lines[1], "501.2ms") || !strings.HasSuffix(lines[1], "MISSED") || strings.Contains(lines[2], "MISSED") {
		t.Error(out.String())
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
	if all[0].what != "streams that hang" || all[0].got != 2 || all[0].within() {
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
