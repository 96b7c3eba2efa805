package connection

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cloudwego/hertz/pkg/common/test/mock"
	"github.com/cloudwego/hertz/pkg/protocol"
	"github.com/cloudwego/hertz/pkg/protocol/http1/req"
)

func TestHeadsAreFollowed(t *testing.T) {
	const get = "GET / HTTP/1.1\r\n"
	for name, c := range map[string]struct {
		head   string
		done   bool
		http1  bool
		fields int
	}{
		"nothing":          {"", false, false, 0},
		"a method":         {"GET", false, false, 0},
		"a line":           {get, false, true, 0},
		"no fields":        {get + "\r\n", true, true, 0},
		"two fields":       {get + "A: b\r\nC: d\r\n\r\n", true, true, 2},
		"bare LF":          {"GET / HTTP/1.0\nA: b\n\n", true, true, 1},
		"an open field":    {get + "A: b\r\nC: d\r\n", false, true, 2},
		"HTTP/2":           {"PRI * HTTP/2.0\r\n\r\n", true, false, 0},
		"HTTP/1.2":         {"GET / HTTP/1.2\r\n\r\n", true, false, 0},
		"TLS":              {"\x16\x03\x01\x02", true, false, 0},
		"no version":       {"GET /\r\n", true, false, 0},
		"an empty line":    {"\r\n", true, false, 0},
		"without an end":   {get + "A: " + strings.Repeat("x", MaxHeader), true, true, 0},
		"no request line":  {"GET " + strings.Repeat("x", MaxHeader), true, false, 0},
		"a method of sort": {strings.Repeat("x", 100), false, false, 0},
	} {
		for piece := 1; piece < 100; piece += 30 {
			var h head
			text, done := []byte(c.head), false
			for n := 0; n < len(text) && !done; {
				n = min(n+piece, len(text))
				done = h.follow(text[:n])
			}
			if done != c.done || h.http1 != c.http1 || h.lines > 0 && !h.wrong && h.fields() != c.fields {
				t.Errorf("%s, in pieces of %d: done %v, http1 %v, %d lines", name, piece, done, h.http1, h.lines)
			}
		}
	}
}

// FuzzHead checks that Hertz can parse or refuses a header as soon as a head says so, and that the
// pieces in which a header arrives change nothing.
func FuzzHead(f *testing.F) {
	for _, text := range []string{"GET / HTTP/1.1\r\nA: b\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM", "\r\n", "GET /\n\n", "a b HTTP/1.0\nX:y\n\r\n"} {
		f.Add([]byte(text), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, piece uint8) {
		if len(text) >= MaxHeader {
			return
		}
		end := func(piece int) (head, int) {
			var h head
			for n := 0; n < len(text); {
				n = min(n+piece, len(text))
				if h.follow(text[:n]) {
					return h, h.seen
				}
			}
			return h, -1
		}
		whole, at := end(len(text) + 1)
		pieces, other := end(int(piece) + 1)
		if begins(text) && (at != other || whole != pieces) {
			t.Fatalf("whole: %+v at %d; in pieces: %+v at %d", whole, at, pieces, other)
		}
		if at < 0 || !begins(text) {
			return
		}
		// With the end of the connection right behind, Hertz must not miss anything.
		var h protocol.RequestHeader
		err := req.ReadHeaderWithLimit(&h, mock.NewZeroCopyReader(string(text[:max(at, 1)])), MaxHeader)
		if err == nil && bytes.Count(text[:at], []byte("\n")) != whole.lines+1 {
			t.Errorf("Hertz accepts %q, but the head has %d lines", text[:at], whole.lines)
		}
	})
}
