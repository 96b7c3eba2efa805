package kitexstream

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"syscall"

	"github.com/cloudwego/netpoll"

	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// An exceptionCode says which ending an exception of TTHeader Streaming stands for.
type exceptionCode struct {
	name   string
	code   int32
	reason streamerr.Reason
	origin Origin
	text   string // the message of the ending, or "" for the text of the exception
	note   string
}

// Codes of exceptions that this package compares. Kitex documents the numbers, and exports no names.
const (
	ttApplication    = 12001
	ttBizCancelCause = 12008
	ttInternalCancel = 12011
	ttLast           = 12999
)

// The rows with two codes are two rows of exceptions.
var exceptions = []exceptionCode{
	{"TTHeader Streaming 12001, an application's exception", ttApplication, streamerr.Internal, Peer, "", ""},
	{"12002, an unexpected header frame", 12002, streamerr.Internal, Peer, "", ""},
	{"12003, an illegal BizStatusError", 12003, streamerr.Internal, Peer, "", ""},
	{"12004, an illegal frame", 12004, streamerr.Internal, Peer, "", "`peer_lost`, if the connection broke"},
	{"12005, an illegal operation", 12005, streamerr.Internal, Peer, "", "`peer_lost`, if the connection broke"},
	{"12006, the transport is closing", 12006, streamerr.PeerLost, Peer, connectionBroke, ""},
	{"12007, a cancel without a cause", 12007, streamerr.PeerReset, Peer, "the caller canceled the stream without a cause", ""},
	{"12008, a cancel with a cause", ttBizCancelCause, streamerr.PeerReset, Peer, "", "the reason and path in its text, if `ForwardCauses` sent it"},
	{"12009, a cancel by the callee", 12009, streamerr.PeerReset, Peer, "", ""},
	{"12010, a cancel by the caller", 12010, streamerr.PeerReset, Peer, "", ""},
	{"12011, a cancel with an error of the context", ttInternalCancel, streamerr.PeerReset, Peer, "", "the reason and path in its text, if `ForwardCauses` sent it"},
	{"12012, the handler returned", 12012, streamerr.PeerReset, Peer, "", ""},
	{"12013, the connection was closed", 12013, streamerr.PeerLost, Peer, connectionBroke, "`slow_reader`, if a write timed out"},
	{"12014, a timeout of Recv", 12014, streamerr.Deadline, Self, "", ""},
	{"12015, a timeout of the stream", 12015, streamerr.Deadline, Self, "", ""},
	{"a later exception of TTHeader Streaming", ttLast, streamerr.PeerReset, Peer, "", ""},
}

const connectionBroke = "the peer's connection broke"

// An exception is an error of TTHeader Streaming. Its type is exported from Kitex 0.15 on.
type exception struct {
	err  error
	code int32
	path streamerr.Path // of a cancel, origin first; nil if the exception has none
	text string
}

// exceptionText matches the text of an exception. The path of a cancel is available only there.
// Kitex before 0.15 has other texts, and no cancels.
var exceptionText = regexp.MustCompile(`(?s)^\[ttstream error, code=-?\d+\] (?:\[(?:client|server)-side stream\] )?(?:\[canceled path: ([^\]]*)\] )?(.*)$`)

// unknownHop is Kitex's name in a path for the hops before the first one over TTHeader Streaming.
const unknownHop = "non-ttstream path"

// asException returns the exception that err is or wraps.
func asException(err error) (x exception, ok bool) {
	var coded interface {
		error
		TypeId() int32 // Kitex's name
	}
	if !errors.As(err, &coded) || coded.TypeId() < ttApplication || coded.TypeId() > ttLast {
		return exception{}, false
	}
	x = exception{err: coded, code: coded.TypeId(), text: coded.Error()}
	if parts := exceptionText.FindStringSubmatch(x.text); parts != nil {
		x.text = parts[2]
		var hops []string
		for _, hop := range strings.Split(parts[1], " -> ") {
			if hop != unknownHop {
				hops = append(hops, hop)
			}
		}
		x.path = streamerr.NewPath(hops...)
	}
	return x, true
}

// mayHaveCause reports whether the code of an exception allows a typed cause.
func (x exception) mayHaveCause() bool {
	return x.code == ttInternalCancel || x.code == ttBizCancelCause
}

// isLost reports whether an exception stands for a broken connection.
func (x exception) isLost() bool {
	for _, end := range []error{io.EOF, netpoll.ErrEOF, netpoll.ErrConnClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(x.err, end) {
			return true
		}
	}
	return false
}

// ending returns the ending that an exception stands for.
func (x exception) ending() (*streamerr.Error, Origin) {
	row := exceptions[len(exceptions)-1]
	for _, c := range exceptions {
		if c.code == x.code {
			row = c
			break
		}
	}
	e := &streamerr.Error{Reason: row.reason, Path: x.path, Message: row.text, Cause: x.err}
	if e.Message == "" {
		e.Message = x.text
	}
	switch {
	case x.mayHaveCause():
		x.readCause(e)
	case row.reason == streamerr.Internal && x.isLost():
		e.Reason, e.Message = streamerr.PeerLost, connectionBroke
	case row.reason == streamerr.PeerLost && strings.Contains(x.text, "connection write timeout"): // netpoll's text
		e.Reason, e.Message = streamerr.SlowReader, "the peer does not read from its connection"
	}
	if len(e.Path) > 0 {
		return e, Sent
	}
	return e, row.origin
}

// readCause sets e from the text of a cause: "REASON: message [path]", as sentCause has it. Any other
// text leaves e as it is.
func (x exception) readCause(e *streamerr.Error) {
	i := strings.Index(x.text, ": ")
	if i < 0 {
		return
	}
	word, rest := x.text[:i], x.text[i+2:]
	reason := streamerr.ParseReason(word)
	if word != strings.ToUpper(word) || reason == streamerr.Unspecified || reason == streamerr.Completed {
		return
	}
	e.Reason, e.Message = reason, rest
	hops := e.Path
	if at := strings.LastIndex(rest, " ["); at >= 0 && strings.HasSuffix(rest, "]") {
		e.Message = rest[:at]
		hops = append(streamerr.ParsePath(rest[at+2:len(rest)-1]), hops...)
	}
	e.Path = streamerr.NewPath(hops...)
}

// sentCause returns a cause as the error of a context. Kitex sends its text with the reset, and
// readCause parses that text on the other side. Kitex adds the name of the client's service to the
// path.
func sentCause(e *streamerr.Error) error {
	text := strings.ToUpper(e.Reason.String()) + ": " + e.Text()
	if len(e.Path) > 0 {
		text += " [" + e.Path.String() + "]"
	}
	return &causeError{text, e}
}

// A causeError is a cause with the text that crosses the wire.
type causeError struct {
	text  string
	cause error
}

// Error implements error.
func (e *causeError) Error() string { return e.text }

// Unwrap returns the cause, and context.Canceled.
func (e *causeError) Unwrap() []error { return []error{e.cause, context.Canceled} }
