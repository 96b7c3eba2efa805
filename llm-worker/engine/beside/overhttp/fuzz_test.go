package overhttp

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
)

// FuzzComplaint: any body of a server is a complaint, which has a message unless the body is empty.
func FuzzComplaint(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"no","type":"invalid_request_error","code":400,"whence":{"reason":"invalid","path":["a"]}}}`))
	f.Add([]byte(`{"detail":[{"loc":["body"],"msg":"field required"}]}`))
	f.Add([]byte(`{"error":"text","status_code":"503","retry_after":1.5}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if c := ReadComplaint(body); c.Message == "" && len(bytes.TrimSpace(body)) > 0 && !strings.Contains(string(body), `"`) {
			t.Errorf("%q has no message", body)
		}
	})
}

// FuzzLines: lines come whole and in order, however the bytes are read, and an end without a newline
// is an error.
func FuzzLines(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n\n {\"b\":2} \r\n{\"c"))
	f.Fuzz(func(t *testing.T, text []byte) {
		whole, _, _ := cutLast(text)
		var want []string
		for line := range bytes.SplitSeq(whole, []byte("\n")) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				want = append(want, string(line))
			}
		}
		next := (&lines{bufio.NewReader(bytes.NewReader(text))}).next
		for i := 0; ; i++ {
			line, err := next()
			if err != nil {
				if i != len(want) {
					t.Errorf("%q: %v after %d of %d lines", text, err, i, len(want))
				}
				return
			}
			if i >= len(want) || string(line) != want[i] {
				t.Fatalf("%q: line %d is %q", text, i, line)
			}
		}
	})
}

// cutLast cuts b at its last newline.
func cutLast(b []byte) (before, after []byte, found bool) {
	end := bytes.LastIndexByte(b, '\n')
	if end < 0 {
		return nil, b, false
	}
	return b[:end], b[end+1:], true
}

// FuzzReady: where a source is ready, it returns an event, or an error, without another read.
func FuzzReady(f *testing.F) {
	f.Add([]byte("data: 1\n\ndata: 2\r\n\r\n: ping\n\ndata:3\ndata: 4\n\n"))
	f.Add([]byte("event: x\n\n\r\ndata: \n\n{\"a\":1}\n \n\t{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, media := range []mediaType{serverSentEvents, jsonLines} {
			reads := 0
			s := &Stream{wire: wire{client: new(Client)}, media: media}
			s.Read(readerFunc(func(b []byte) (int, error) {
				if reads++; reads > 1 {
					return 0, io.EOF
				}
				return copy(b, text), nil
			}))
			for {
				ready := s.source.ready()
				before := reads
				_, err := s.Next()
				if ready && reads > before {
					t.Errorf("%s: %q was not ready", media, text)
				}
				if err != nil {
					break
				}
			}
		}
	})
}

// A readerFunc is an io.Reader.
type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
