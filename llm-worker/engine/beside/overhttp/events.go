package overhttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// maxEvent bounds one event, and with it one line, in bytes. eventPerToken is added for each token
// of the prompt, because vLLM repeats the prompt in its first event. A token of the answer takes
// some 200 bytes. A server that sends more is broken, and its stream ends.
const (
	maxEvent      = 1 << 20
	eventPerToken = 16
)

// errNotEvents is the error for a response that is not a stream of server-sent events.
var errNotEvents = errors.New("the response is not a stream of server-sent events")

// An events reader parses server-sent events as far as these servers use them: an event's data,
// whether the event is an error, and lines that end in LF or CRLF.
type events struct {
	r       *bufio.Reader
	max     int // maximum bytes of an event
	dialect beside.Dialect

	// Of the current event.
	data    []byte
	comment []byte // the last comment
	failed  bool   // the event is an error
}

// newEvents returns a reader for the events of the answer to a prompt of prompt tokens, whose errors dialect
// completes.
func newEvents(r *bufio.Reader, prompt int, dialect beside.Dialect) *events {
	return &events{r: r, max: maxEvent + eventPerToken*prompt, dialect: dialect}
}

// next returns the data of the next event, valid until the next call. Errors are endings; an error event is
// returned as an error.
func (e *events) next() ([]byte, error) {
	data, err := e.event()
	switch {
	case err != nil:
		return nil, readFailed(err)
	case e.failed:
		if len(data) == 0 {
			data = e.comment // some servers put the message in a comment
		}
		return nil, e.dialect.Complete(ReadComplaint(data), true).Ending(beside.InAnswer)
	}
	return data, nil
}

// ready reports whether next would not wait: the next event begins with data, and its end has come. It may
// report false for events of other forms.
func (e *events) ready() bool {
	b, _ := e.r.Peek(e.r.Buffered()) // they are there
	b = bytes.TrimLeft(b, "\r\n")
	return bytes.HasPrefix(b, []byte("data:")) && (bytes.Contains(b, []byte("\n\n")) || bytes.Contains(b, []byte("\n\r\n")))
}

// event reads an event. At the end of the stream the error is io.EOF. An event that is cut within a line is
// dropped.
func (e *events) event() ([]byte, error) {
	e.data, e.comment, e.failed = e.data[:0], e.comment[:0], false
	for some := false; ; {
		line, err := e.line()
		switch {
		case errors.Is(err, io.EOF) && (some || e.failed):
			return e.data, nil
		case err != nil:
			return nil, err
		case len(line) == 0 && (some || e.failed):
			return e.data, nil
		case len(line) == 0:
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data", "error":
			e.failed = e.failed || string(name) == "error" // a field of older llama.cpp servers
			if some {
				e.data = append(e.data, '\n')
			}
			some = true
			e.data = append(e.data, value...)
			if len(e.data) > e.max {
				return nil, fmt.Errorf("%w: an event of more than %d bytes", errNotEvents, e.max)
			}
		case "event":
			e.failed = e.failed || string(value) == "error"
		case "": // a comment
			e.comment = append(e.comment[:0], value...)
		case "id", "retry":
		default:
			return nil, fmt.Errorf("%w: a line begins with %.32q", errNotEvents, line)
		}
	}
}

// line returns the next line without its end. It is valid until the next call.
func (e *events) line() ([]byte, error) {
	line, err := readLine(e.r, e.max)
	if errors.Is(err, errLongLine) {
		return nil, fmt.Errorf("%w: %w", errNotEvents, err)
	}
	if errors.Is(err, io.EOF) && len(line) > 0 && !beginsField(line) { // usually an HTML page
		return nil, fmt.Errorf("%w: it is %.32q", errNotEvents, line)
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

// beginsField reports whether line can be a field or the beginning of one.
func beginsField(line []byte) bool {
	name, _, whole := bytes.Cut(line, []byte(":"))
	for _, field := range []string{"", "data", "error", "event", "id", "retry"} {
		if string(name) == field || !whole && strings.HasPrefix(field, string(name)) {
			return true
		}
	}
	return false
}
