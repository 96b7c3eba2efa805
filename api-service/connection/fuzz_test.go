package connection_test

import (
	"io"
	"regexp"
	"testing"
	"testing/synctest"

	"github.com/cloudwego/hertz/pkg/protocol"
)

var date = regexp.MustCompile(`Date: [^\r]+`)

// transcript returns what a client reads that sends bytes in pieces, and nothing more.
func transcript(t *testing.T, text []byte, piece int) (heard string) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		server, client := newPipe()
		go func() {
			defer close(s.over)
			s.server.ServeStream(server)
		}()
		for len(text) > 0 {
			n := min(piece, len(text))
			client.Offer(text[:n])
			text = text[n:]
			synctest.Wait()
		}
		for len(s.given) > 0 {
			(<-s.given).Free(true)
		}
		b, err := io.ReadAll(client) // the server closes the connection when it is idle, or the request is late
		heard = date.ReplaceAllString(string(b), "")
		if err != nil {
			t.Errorf("%q, %v", heard, err)
		}
		<-s.over
	})
	return heard
}

// FuzzRequests checks that the pieces in which requests arrive change no answer, and that every
// connection ends.
func FuzzRequests(f *testing.F) {
	protocol.ServerDateOnce.Do(protocol.UpdateServerDate) // its goroutine never ends, so it must be outside of all bubbles
	for _, text := range []string{
		get + asking("/echo", "hello") + get,
		"\r\n" + asking("/refuse", "unread") + "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;a\r\nabc\r\n0\r\nT: v\r\n\r\n" + get,
		"POST /refuse HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\nyyy", "HEAD /echo HTTP/1.0\r\n\r\n", "\x16\x03\x01", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\" HTTP/\n",
		"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\nhello" + get,
	} {
		f.Add([]byte(text), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, piece uint8) {
		if len(text) > 2<<10 {
			return
		}
		if whole, pieces := transcript(t, text, len(text)+1), transcript(t, text, int(piece)+1); whole != pieces {
			t.Errorf("whole: %q\nin pieces: %q", whole, pieces)
		}
	})
}
