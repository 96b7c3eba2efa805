package sse_test

import (
	"fmt"
	"io"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge/sse"
)

// TestEventsOfAllSizes compares the events that a reader of chunks gets with the same events
// without chunks.
func TestEventsOfAllSizes(t *testing.T) {
	chunks, plain := sse.Encoder{}, sse.Encoder{Identity: true}
	var framed, want []byte
	for _, n := range []int{0, 1, 7, 8, 200, 247, 248, 300, 4000, 4096, 70000, 3} {
		for _, e := range []*sse.Encoder{&chunks, &plain} {
			data := []byte(strings.Repeat("x", n))
			e.KeepAlive()
			e.End(append(e.Begin(), data...))
			e.End(append(e.BeginEvent("named"), data...))
			e.Event("e.1", "delta", data)
			e.Retry(time.Second)
		}
		encoded, size := chunks.Take()
		framed = append(framed, encoded...)
		bare, sizeOfBare := plain.Take()
		want = append(want, bare...)
		if size != len(bare) || sizeOfBare != len(bare) {
			t.Errorf("%d bytes of data: the sizes are %d and %d, want %d", n, size, sizeOfBare, len(bare))
		}
		if !strings.Contains(string(bare), fmt.Sprintf(": keep-alive\ndata: %s\n\nevent: named\ndata: %[1]s\n\nevent: delta\ndata: %[1]s\nid: e.1\n\nretry: 1000\n\n", data(n))) {
			t.Errorf("%.200q", bare)
		}
	}
	chunks.Finish()
	end, _ := chunks.Take()
	got, err := io.ReadAll(httputil.NewChunkedReader(strings.NewReader(string(append(framed, end...)))))
	if err != nil || string(got) != string(want) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
	}
}

// TestAbandonedEventLeavesNothing: an event whose encoding panics is never ended. The next event
// follows the last complete one.
func TestAbandonedEventLeavesNothing(t *testing.T) {
	for _, identity := range []bool{false, true} {
		e, want := sse.Encoder{Identity: identity}, sse.Encoder{Identity: identity}
		for _, encoder := range []*sse.Encoder{&e, &want} {
			encoder.End(append(encoder.Begin(), "one"...))
			if encoder == &e {
				_ = append(e.Begin(), "half of an event"...)
				_ = append(e.BeginEvent("named"), data(300)...)
			}
			encoder.End(append(encoder.Begin(), "two"...))
		}
		got, size := e.Take()
		expected, sizeOfExpected := want.Take()
		if string(got) != string(expected) || size != sizeOfExpected {
			t.Errorf("%q of size %d, want %q of size %d", got, size, expected, sizeOfExpected)
		}
	}
}

func data(n int) string { return strings.Repeat("x", n) }

// BenchmarkLine measures the framing of one event.
func BenchmarkLine(b *testing.B) {
	var e sse.Encoder
	line := []byte(strings.Repeat("x", 160))
	b.ReportAllocs()
	for b.Loop() {
		e.End(append(e.Begin(), line...))
		_, _ = e.Take()
	}
}
