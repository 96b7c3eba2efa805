package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Done is the data of the last event of a stream of OpenAI's API that completed.
const Done = "[DONE]"

// fieldNames are the names of the fields of events.
var fieldNames = []string{"id", "event", "data", "retry"}

// ErrFormat is the error of a body that is not written as our services write events.
var ErrFormat = errors.New("not an event of ours")

// An Event is a server-sent event, or a comment.
type Event struct {
	ID, Name string
	Data     string
	Comment  string    // without the colon; an event has none
	At       time.Time // when its last byte was read
}

// Events reads server-sent events strictly, as our services write them: lines end with a line feed, an
// event has each field at most once and one line of data, its id is a new one, one empty line follows
// each event, comments are lines between events, and [DONE] is the last event.
type Events struct {
	in      *bufio.Reader
	seen    map[string]bool // ids
	done    bool
	comment bool // the last line was a comment, which an empty line may follow
}

// NewEvents returns the events of a body.
func NewEvents(body io.Reader) *Events {
	return &Events{in: bufio.NewReader(body), seen: map[string]bool{}}
}

// Next returns the next event. io.EOF means that the body has ended after an event, and
// io.ErrUnexpectedEOF that it has ended within one.
func (e *Events) Next() (Event, error) {
	for {
		one, err := e.block()
		if err != nil {
			return Event{}, err
		}
		if one.Data == "" && one.Comment == "" {
			continue // a hint for reconnecting
		}
		if one.Comment == "" && e.done {
			return Event{}, fmt.Errorf("%w: %q follows %s", ErrFormat, one.Data, Done)
		}
		e.done = e.done || one.Data == Done
		if one.ID != "" {
			if e.seen[one.ID] {
				return Event{}, fmt.Errorf("%w: the id %q comes again", ErrFormat, one.ID)
			}
			e.seen[one.ID] = true
		}
		return one, nil
	}
}

// block reads lines up to an empty line.
func (e *Events) block() (one Event, err error) {
	fields := map[string]string{}
	for n := 0; ; n++ {
		line, err := e.in.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) && (n > 0 || line != "") {
				err = fmt.Errorf("%w in the middle of an event", io.ErrUnexpectedEOF)
			}
			return Event{}, err
		}
		line = strings.TrimSuffix(line, "\n")
		after := e.comment
		e.comment = n == 0 && strings.HasPrefix(line, ":")
		switch {
		case e.comment:
			return Event{Comment: strings.TrimSpace(line[1:]), At: time.Now()}, nil
		case line == "" && after:
			n--
			continue
		case line == "" && n > 0:
			return Event{ID: fields["id"], Name: fields["event"], Data: fields["data"], At: time.Now()}, nil
		}
		field, value, found := strings.Cut(line, ":")
		_, again := fields[field]
		switch {
		case !found, again, strings.Contains(line, "\r"), !slices.Contains(fieldNames, field):
			return Event{}, fmt.Errorf("%w: the line %q", ErrFormat, line)
		}
		fields[field] = strings.TrimPrefix(value, " ")
	}
}
