package monitor

import (
	"context"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// A Record describes a stream that has ended.
type Record struct {
	Method
	Hop    string // the name of this service
	Peer   string
	Self   Parent // the place of the stream in the trace
	Parent Parent // the zero Parent if the stream began the trace
	Began  time.Time
	Ended  time.Time
	Reason streamerr.Reason
	Path   streamerr.Path // origin first
	// Message is the text of the ending, or "" unless Config.ErrorTexts is set.
	Message string
	// BizStatus is the status code of the application's own answer, or nil.
	BizStatus      *int32
	Received, Sent Traffic
	Events         []Event // in the order of their times
}

// Failed reports whether the ending is an error for the operator of the hop. A client that leaves
// or stops its stream is satisfied.
func (r *Record) Failed() bool {
	return r.Reason != streamerr.Completed && r.Reason != streamerr.ClientGone && r.Reason != streamerr.UserStop
}

// Traffic has the figures of one direction of a stream.
type Traffic struct {
	Messages, Bytes uint64        // Bytes without framing
	First           time.Duration // from the beginning to the first message; 0 if there was none
	LongestGap      time.Duration
}

// First returns the time of the first message: to the caller on servers, from the callee on clients.
func (r *Record) First() time.Duration {
	if r.Side == Client {
		return r.Received.First
	}
	return r.Sent.First
}

// A Kind is the kind of an event. Send kinds are actions of this hop, Recv kinds of its neighbor.
type Kind string

// The kinds.
const (
	SendHeader  Kind = "send_header"
	RecvHeader  Kind = "recv_header"
	SendRst     Kind = "send_rst"
	RecvRst     Kind = "recv_rst"
	SendTrailer Kind = "send_trailer"
	RecvTrailer Kind = "recv_trailer"
	Send        Kind = "send"
	Recv        Kind = "recv"
)

// Codes of SendRst and RecvRst: the form of the reset.
const (
	CodeStop   = "STOP"   // with the cause
	CodeCancel = "CANCEL" // a bare reset, or a client that has closed its connection
	CodeLost   = "LOST"   // the connection broke
)

// An Event is a message, a header, a reset or a trailer.
type Event struct {
	At    time.Duration // since the stream began
	Kind  Kind
	Index uint64 // of a message; begins at 0
	Bytes uint32 // of a message
	// Of all other events. Unspecified and nil stand for none.
	Code   string
	Reason streamerr.Reason
	Path   streamerr.Path
}

// IsMessage reports whether e is a message.
func (e *Event) IsMessage() bool { return e.Kind == Send || e.Kind == Recv }

// events returns the events of a stream in the order of their times.
func (s *Stream) events() (all []Event) {
	s.mu.Lock()
	s.states.each(func(_ uint64, e Event) { all = append(all, e) })
	s.mu.Unlock()
	s.received.each(func(i uint64, m message) { all = append(all, Event{At: m.at, Kind: Recv, Index: i, Bytes: m.bytes}) })
	s.sent.each(func(i uint64, m message) { all = append(all, Event{At: m.at, Kind: Send, Index: i, Bytes: m.bytes}) })
	sort.SliceStable(all, func(i, j int) bool { return all[i].At < all[j].At }) // stable, because two events may have the same time
	return all
}

// An Exporter receives the records of ended streams. Its methods are called by many goroutines.
type Exporter interface {
	// Export must return soon: the stream's handler or reader waits for it.
	Export(r *Record)
	// Close returns when all records are exported, or when ctx is done.
	Close(ctx context.Context) error
}

// Text returns an exporter that writes each record as text: a line with its reason and path, then a
// line for each event.
func Text(w io.Writer) Exporter { return &textExporter{w: w} }

type textExporter struct {
	mu  sync.Mutex // guards the following fields
	w   io.Writer
	err error // the first
}

// Export implements Exporter.
func (t *textExporter) Export(r *Record) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s of %s: %s [%s]\n", r.Hop, r.Side, strings.TrimPrefix(r.Name, "/"), r.Reason.String(), r.Path)
	if r.Failed() && r.Message != "" {
		fmt.Fprintf(&b, "  %s\n", r.Message)
	}
	for i := range r.Events {
		e := &r.Events[i]
		fmt.Fprintf(&b, "  %9.3f ms  %s", float64(e.At)/float64(time.Millisecond), e.Kind)
		switch {
		case e.IsMessage():
			fmt.Fprintf(&b, " index=%d bytes=%d", e.Index, e.Bytes)
		default:
			for _, field := range [][2]string{{"code", e.Code}, {"reason", e.reason()}, {"path", e.Path.String()}} {
				if field[1] != "" {
					fmt.Fprintf(&b, " %s=%s", field[0], field[1])
				}
			}
		}
		b.WriteByte('\n')
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := io.WriteString(t.w, b.String()); err != nil && t.err == nil {
		t.err = err
	}
}

// Close implements Exporter. It returns the first error of the writer.
func (t *textExporter) Close(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// reason returns the name of the event's reason, or "".
func (e *Event) reason() string {
	if e.Reason == streamerr.Unspecified {
		return ""
	}
	return e.Reason.String()
}
