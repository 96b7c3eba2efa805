package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// maxEvent bounds an event, in bytes; a reader of a larger one gets errLarge.
const maxEvent = 4 << 20

var errLarge = errors.New("an event is too large")

// A frame is one received event.
type frame struct {
	id, event string
	data      []byte
}

// An sseReader parses the event-stream grammar of the HTML standard. It never reads further than
// the returned event.
type sseReader struct {
	in     *bufio.Reader
	begun  bool
	skipLF bool   // the last line ended with CR: an LF that follows belongs to it
	line   []byte // reused
	id     string // persists: the next event without an id has this id, too
	retry  time.Duration
	hinted bool // a retry field was received
}

func newSSE(in io.Reader) *sseReader { return &sseReader{in: bufio.NewReader(in)} }

// next returns the next event. An event that the end of the stream cuts off is dropped, as the
// standard demands.
func (r *sseReader) next() (frame, error) {
	f := frame{}
	has := false
	for {
		line, err := r.readLine(len(f.data))
		if err != nil {
			return frame{}, err
		}
		if len(line) == 0 {
			if has {
				f.id = r.id
				f.data = f.data[:len(f.data)-1] // the final line feed
				return f, nil
			}
			f.event = ""
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) { // a comment has no field name
		case "data":
			f.data = append(append(f.data, value...), '\n')
			has = true
		case "event":
			f.event = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				r.id = string(value)
			}
		case "retry":
			r.hint(value)
		}
	}
}

// hint records a retry field, in milliseconds: digits only.
func (r *sseReader) hint(value []byte) {
	for _, c := range value {
		if c < '0' || c > '9' {
			return
		}
	}
	if ms, err := strconv.ParseInt(string(value), 10, 32); err == nil {
		r.retry, r.hinted = time.Duration(ms)*time.Millisecond, true
	}
}

// readLine returns a line without its end, which is CR, LF or both. before is the size of the event
// so far, in bytes.
func (r *sseReader) readLine(before int) ([]byte, error) {
	r.line = r.line[:0]
	for {
		c, err := r.in.ReadByte()
		if err != nil {
			return nil, err
		}
		skip := r.skipLF && c == '\n'
		r.skipLF = c == '\r'
		switch {
		case skip:
		case c == '\r' || c == '\n':
			if !r.begun {
				r.begun = true
				return bytes.TrimPrefix(r.line, []byte("\ufeff")), nil // a byte order mark
			}
			return r.line, nil
		case before+len(r.line) >= maxEvent:
			return nil, errLarge
		default:
			r.line = append(r.line, c)
		}
	}
}
