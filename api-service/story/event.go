package story

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// Messages counts a hop's messages: those received from below, and those sent to its caller.
type Messages struct {
	Received uint64 `json:"received"`
	Sent     uint64 `json:"sent"`
}

// An Event is one event of a stream on a hop. Only the first and the last messages are recorded.
type Event struct {
	AtMS float64 `json:"at_ms"` // since Began
	// Kind is send or recv for a message; send_header, recv_header, send_rst, recv_rst, send_trailer,
	// recv_trailer, move or handover for other events.
	Kind string `json:"kind"`
	Side string `json:"side"` // "up" is towards the caller, "down" towards the hop below

	*Message          // of send and recv
	Code     string   `json:"code,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Path     []string `json:"path,omitempty"`
}

// A Message has the fields of an event that is a message.
type Message struct {
	Index  uint64 `json:"index"` // in its direction
	Bytes  uint32 `json:"bytes"` // 0 if not known
	Tokens uint32 `json:"tokens"`
}

func events(r *streamv1.Record) []Event {
	var all []Event
	for _, e := range r.GetEvents() {
		kind := streamtrace.Kind(e.GetKind())
		out := Event{AtMS: ms(e.GetAt().AsDuration()), Kind: kind.String(), Side: streamtrace.Side(e.GetSide()).String()}
		if kind == streamtrace.Send || kind == streamtrace.Recv {
			out.Message = &Message{e.GetIndex(), e.GetBytes(), e.GetTokens()}
		} else {
			out.Code, out.Path = e.GetCode(), e.GetPath()
			if e.GetReason() != streamv1.Reason_REASON_UNSPECIFIED {
				out.Reason = streamerr.Reason(e.GetReason()).String()
			}
		}
		all = append(all, out)
	}
	return all
}

// printEvents writes a line for each event that is not a message. Between two such events it writes
// the first and the last sent message, and the number of messages between them and before them.
func (h *Hop) printEvents(b *strings.Builder) {
	var first, last *Event
	next := uint64(0) // index of the message after the last one that was printed
	show := func(e *Event) {
		if e.Index > next {
			fmt.Fprintf(b, "  %-14s %14s... %s messages ...\n", "", "", thousands(e.Index-next))
		}
		e.print(b)
		next = e.Index + 1
	}
	flush := func() {
		if first != nil {
			show(first)
		}
		if last != first {
			show(last)
		}
		first, last = nil, nil
	}
	for i := range h.Events {
		switch e := &h.Events[i]; {
		case e.Message == nil:
			flush()
			e.print(b)
		case e.Kind == streamtrace.Send.String():
			if first == nil {
				first = e
			}
			last = e
		}
	}
	flush()
}

func (e *Event) print(b *strings.Builder) {
	fmt.Fprintf(b, "  %-14s %10.1f ms  %-12s %-4s  %s\n", "", e.AtMS, e.Kind, e.Side, e.text())
}

func (e *Event) text() string {
	if m := e.Message; m != nil {
		return fmt.Sprintf("%d: %d tokens, %d bytes", m.Index, m.Tokens, m.Bytes)
	}
	parts := []string{e.Code, e.Reason, strings.Join(e.Path, " > ")}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "  ")
}

// thousands formats 9992 as 9,992.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
