package streamtrace

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tally"
)

// A Kind is the kind of an event. Send kinds are actions of this hop, Recv kinds are actions of its
// neighbour.
type Kind uint8

// The kinds. The first six, Move and Handover are state events.
const (
	SendHeader  = Kind(streamv1.EventKind_EVENT_KIND_SEND_HEADER)
	RecvHeader  = Kind(streamv1.EventKind_EVENT_KIND_RECV_HEADER)
	SendRst     = Kind(streamv1.EventKind_EVENT_KIND_SEND_RST)
	RecvRst     = Kind(streamv1.EventKind_EVENT_KIND_RECV_RST)
	SendTrailer = Kind(streamv1.EventKind_EVENT_KIND_SEND_TRAILER)
	RecvTrailer = Kind(streamv1.EventKind_EVENT_KIND_RECV_TRAILER)
	Send        = Kind(streamv1.EventKind_EVENT_KIND_SEND)
	Recv        = Kind(streamv1.EventKind_EVENT_KIND_RECV)
	Move        = Kind(streamv1.EventKind_EVENT_KIND_MOVE)
	Handover    = Kind(streamv1.EventKind_EVENT_KIND_HANDOVER)
)

// String returns the name of k in JSON and spans, such as "send_header".
func (k Kind) String() string {
	return strings.ToLower(strings.TrimPrefix(streamv1.EventKind(k).String(), "EVENT_KIND_"))
}

// A Side says on which side of a hop its neighbour is.
type Side uint8

// The sides.
const (
	Up   = Side(streamv1.Side_SIDE_UP)   // towards the caller
	Down = Side(streamv1.Side_SIDE_DOWN) // towards the hop below, or the engine
)

// String returns "up" or "down".
func (s Side) String() string {
	return strings.ToLower(strings.TrimPrefix(streamv1.Side(s).String(), "SIDE_"))
}

// Codes of SendRst and RecvRst: the form of the reset.
const (
	CodeStop   = "STOP"   // a message with the cause
	CodeCancel = "CANCEL" // a bare reset, or a client that has closed its connection
	CodeLost   = "LOST"   // the connection broke
)

// A state is a state event: an event that is not a message.
type state struct {
	at     time.Duration
	path   streamerr.Path
	code   string
	reason streamerr.Reason
	kind   Kind
	side   Side
}

func (s *state) proto() *streamv1.Event {
	return &streamv1.Event{
		At: durationpb.New(s.at), Kind: streamv1.EventKind(s.kind), Side: streamv1.Side(s.side),
		Code: s.code, Reason: s.reason.Proto(), Path: s.path,
	}
}

func messageProto(m *tally.Message, kind Kind, side Side, index uint64) *streamv1.Event {
	return &streamv1.Event{
		At: durationpb.New(m.At), Kind: streamv1.EventKind(kind), Side: streamv1.Side(side),
		Index: index, Bytes: m.Bytes, Tokens: m.Tokens,
	}
}
