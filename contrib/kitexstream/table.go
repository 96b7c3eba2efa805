package kitexstream

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/cloudwego/kitex/pkg/kerrors"

	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// An Origin says which hop an error makes the origin of an ending.
type Origin string

// The origins.
const (
	Self Origin = "this hop"
	Peer Origin = "the peer"         // the other end of the call that returned the error
	Sent Origin = "as in the error"  // the error has a path
	None Origin = "as for its cause" // the error wraps another one, which decides
)

// A Row says which ending an error of a call stands for.
type Row struct {
	Error  string // what the error is, in the words of Kitex and gRPC
	Reason streamerr.Reason
	Origin Origin
	// Note says which ending a variant of the error stands for, or "".
	Note string
}

// Table returns the rows by which Classify decides, in their order: the first row that fits an error
// is used. docs/reference/kitexstream.md shows them.
func Table() []Row {
	rows := []Row{
		{"nil, `io.EOF`", streamerr.Completed, Peer, ""},
		{"a `*streamerr.Error`", streamerr.Unspecified, Sent, "its own reason"},
	}
	for _, x := range exceptions {
		rows = append(rows, Row{x.name, x.reason, x.origin, x.note})
	}
	for _, k := range kitexErrors[:firstTransport] {
		rows = append(rows, Row{k.name, k.reason, k.origin, k.note})
	}
	rows = append(rows, Row{"a status with Whence's `ErrorInfo`", streamerr.Unspecified, Sent, "its own reason"})
	for _, c := range statusCodes {
		rows = append(rows, Row{c.name, c.reason, c.origin, c.note})
	}
	for _, k := range kitexErrors[firstTransport:] {
		rows = append(rows, Row{k.name, k.reason, k.origin, k.note})
	}
	return append(rows,
		Row{"`context.DeadlineExceeded`", streamerr.Deadline, Self, ""},
		Row{"`context.Canceled`", streamerr.PeerReset, Self, "the reason of its cause, if that is a `*streamerr.Error`: see `monitor.Cause`"},
		Row{"any other error", streamerr.Internal, Peer, ""})
}

// Classify returns the ending that an error stands for. peer is the name of the other end of the call
// that returned the error. The path begins with the origin: it is the path of the error if that has
// one, empty if this hop is the origin, and peer otherwise. streamerr.Via adds this hop.
//
// An empty peer stands for an error of this hop's own handler: a status that it returns is its own.
//
// A BizStatusError is an answer of the application, and no failure: see Answer.
func Classify(peer string, err error) *streamerr.Error {
	if complete(err) {
		return &streamerr.Error{Reason: streamerr.Completed, Path: streamerr.NewPath(peer)}
	}
	if _, biz := Answer(err); biz {
		return &streamerr.Error{Reason: streamerr.Completed, Path: streamerr.NewPath(peer), Cause: err}
	}
	e, origin := classify(err)
	if _, exception := asException(err); peer == "" && !exception && origin == Peer && e.Reason == streamerr.PeerLost {
		e.Reason = streamerr.Unavailable // a status of the handler, not a lost connection of its stream
	}
	if len(e.Path) == 0 && origin == Peer {
		e.Path = streamerr.NewPath(peer)
	}
	return e
}

// complete reports whether a call that returned err is complete. An exception of TTHeader Streaming may
// wrap the io.EOF of its connection.
func complete(err error) bool {
	if _, broken := asException(err); broken {
		return false
	}
	return err == nil || errors.Is(err, io.EOF)
}

// Answer returns the status code of an error that is a BizStatusError of Kitex: the application's own
// answer. The statuses of Whence's own services are endings, not answers.
func Answer(err error) (code int32, ok bool) {
	biz, ok := kerrors.FromBizStatusError(err)
	if !ok {
		return 0, false
	}
	if st := statusOf(err); st != nil {
		if _, ours := fromDetails(st); ours {
			return 0, false
		}
	}
	return biz.BizStatusCode(), true
}

// A kitexError is an error of package kerrors.
type kitexError struct {
	name   string
	is     func(error) bool
	reason streamerr.Reason
	origin Origin
	text   string // the message of the ending, or "" for the text of the error
	note   string
}

func matches(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// kitexErrors are in the order in which they are compared. Those before firstTransport are compared
// before statuses, because they have one, too.
var kitexErrors = []kitexError{
	{"`kerrors.ErrPanic`", matches(kerrors.ErrPanic), streamerr.Internal, Self, "the handler panicked", ""},
	{"a status with the text `graceful shutdown`", shutDown, streamerr.Draining, Peer, "the server shut down", "gRPC only: Kitex's own code 1000"},
	{"`kerrors.ErrBiz`", isHandlers, streamerr.Unspecified, None, "", "the handler's error"},

	{"a broken connection of Kitex's gRPC", isConnectionError, streamerr.PeerLost, Peer, "", ""},
	{"`kerrors.ErrGetConnection`", matches(kerrors.ErrGetConnection), streamerr.PeerLost, Peer, "", ""},
	{"`kerrors.ErrRemoteOrNetwork`", matches(kerrors.ErrRemoteOrNetwork), streamerr.PeerLost, Peer, "", ""},
	{"`kerrors.ErrNoMoreInstance`", matches(kerrors.ErrNoMoreInstance), streamerr.PeerLost, Peer, "", ""},
	{"`kerrors.ErrServiceDiscovery`", matches(kerrors.ErrServiceDiscovery), streamerr.PeerLost, Peer, "", ""},
	{"`kerrors.ErrLoadbalance`", matches(kerrors.ErrLoadbalance), streamerr.PeerLost, Peer, "", ""},
	{"`kerrors.ErrCircuitBreak`", matches(kerrors.ErrCircuitBreak), streamerr.Unavailable, Self, "", ""},
	{"`kerrors.ErrOverlimit`", matches(kerrors.ErrOverlimit), streamerr.Overloaded, Self, "", ""},
	{"`kerrors.ErrACL`", matches(kerrors.ErrACL), streamerr.Forbidden, Self, "", ""},
	{"`kerrors.ErrRPCTimeout`", matches(kerrors.ErrRPCTimeout), streamerr.Deadline, Self, "", ""},
}

const firstTransport = 3

// isHandlers reports whether err is Kitex's wrapping of a handler's error.
func isHandlers(err error) bool {
	var detailed *kerrors.DetailedError
	return errors.As(err, &detailed) && errors.Is(err, kerrors.ErrBiz) && detailed.Unwrap() != nil
}

// classify returns a new ending without the peer in its path.
func classify(err error) (*streamerr.Error, Origin) {
	var e *streamerr.Error
	if errors.As(err, &e) {
		c := *e
		return &c, Sent
	}
	if x, ok := asException(err); ok {
		return x.ending()
	}
	for i, k := range kitexErrors {
		if i == firstTransport {
			if st := statusOf(err); st != nil {
				return fromStatus(st, err)
			}
		}
		if !k.is(err) {
			continue
		}
		if k.origin == None {
			var detailed *kerrors.DetailedError
			errors.As(err, &detailed)
			return classify(detailed.Unwrap())
		}
		return &streamerr.Error{Reason: k.reason, Message: k.text, Cause: err}, k.origin
	}
	own := *streamerr.As(err)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &own, Self
	}
	return &own, Peer
}

// tooLong reports whether a RESOURCE_EXHAUSTED is about the length of a message, as grpc-go, Kitex and
// Whence report it: another attempt would end in the same way.
func tooLong(text string) bool {
	return strings.Contains(text, "larger than max") || strings.HasPrefix(text, "received a message of ")
}
