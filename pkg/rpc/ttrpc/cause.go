package ttrpc

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// fault matches the text of a ttstream.Exception, whose cancel path is available only in its text.
var fault = regexp.MustCompile(`(?s)^\[ttstream error, code=-?\d+\] (?:\[(?:client|server)-side stream\] )?(?:\[canceled path: ([^\]]*)\] )?(.*)$`)

// A codedError has a code, like the errors of Kitex and Thrift.
type codedError interface {
	error
	TypeId() int32 // Kitex's name
}

// Codes of package ttstream.
const (
	illegalFrame   = 12004
	transportEnded = 12006
	bizCancel      = 12007
	bizCancelCause = 12008
	internalCancel = 12011
	connClosed     = 12013
	recvTimeout    = 12014
	streamTimeout  = 12015
)

// refusedFrame is the prefix of the error for a frame that is refused.
const refusedFrame = "ttrpc: "

// Canceled returns why a caller ended a stream, from the error of the stream's context: resets of
// TTHeader Streaming have room for a text and a path of service names, and contrib/kitexstream
// sends and reads the same text. It returns nil if err is not an error of Kitex. The path is the
// caller's ttscp, origin first; it is nil if the error has none, for example because the connection
// broke.
func Canceled(err error) *streamerr.Error {
	ex, ok := errors.AsType[codedError](err)
	if !ok {
		return nil
	}
	parts := fault.FindStringSubmatch(ex.Error())
	if parts == nil {
		return nil
	}
	text := parts[2]
	e := &streamerr.Error{Reason: streamerr.PeerReset, Cause: err}
	if parts[1] != "" {
		e.Path = streamerr.NewPath(strings.Split(parts[1], " -> ")...)
	}
	switch ex.TypeId() {
	case bizCancel:
		e.Message = "the caller canceled the stream without a cause"
	case bizCancelCause, internalCancel:
		said(e, text)
	case recvTimeout, streamTimeout:
		e.Reason, e.Message = streamerr.Deadline, "the caller's time for the stream has passed: "+text
	case connClosed, transportEnded, illegalFrame:
		e.Reason, e.Message = streamerr.PeerLost, "the caller's connection broke"
		_, frame, refused := strings.Cut(text, refusedFrame) // Kitex hides the error values
		switch {
		case refused:
			e.Reason, e.Message = streamerr.Invalid, "a message of the caller could not be read: "+frame
		case strings.Contains(text, "connection write timeout"): // netpoll's text
			e.Reason, e.Message = streamerr.SlowReader, "the caller does not read from its connection"
		}
	default:
		e.Message = "the stream was reset with code " + strconv.Itoa(int(ex.TypeId())) + ": " + text
	}
	return e
}

// foreign is the first hop in the ttscp of a stream whose context had a cause and did not come from
// TTHeader Streaming.
const foreign = "non-ttstream path"

// said sets e from the text of a cause: "REASON: message [path]", as a causeError has it, or any
// other text, which becomes a stop of the user.
func said(e *streamerr.Error, text string) {
	e.Reason, e.Message = streamerr.UserStop, text
	word, rest, _ := strings.Cut(text, ": ")
	reason := streamerr.ParseReason(word)
	if word != strings.ToUpper(word) || reason == streamerr.Unspecified || reason == streamerr.Completed {
		return
	}
	e.Reason, e.Message = reason, rest
	hops := e.Path
	if len(hops) > 0 && hops[0] == foreign { // the context of WithCause
		hops = hops[1:]
	}
	if at := strings.LastIndex(rest, " ["); at >= 0 && strings.HasSuffix(rest, "]") {
		e.Message = rest[:at]
		hops = append(streamerr.ParsePath(rest[at+2:len(rest)-1]), hops...)
	}
	e.Path = streamerr.NewPath(hops...)
}

// WithCause returns ctx for a call of any Kitex client over TTHeader Streaming, so that the callee
// receives the cause of a cancel. Kitex sends the text of ctx.Err and never calls context.Cause, so
// without WithCause the cause of WithCancelCause is lost. A cause that is a *streamerr.Error keeps
// its reason and its path; any other cause becomes a USER_STOP.
//
// A program without this package can return a text such as "OPERATOR_STOP: the page was closed
// [pager > shop]" from the Err of its context.
func WithCause(ctx context.Context) context.Context { return causeContext{ctx} }

type causeContext struct{ context.Context } //nolint:containedctx // a context that wraps a context

// Err implements context.Context.
func (c causeContext) Err() error {
	err, cause := c.Context.Err(), context.Cause(c.Context)
	if !errors.Is(err, context.Canceled) || errors.Is(cause, context.Canceled) {
		return err
	}
	e, ok := errors.AsType[*streamerr.Error](cause)
	if !ok {
		e = &streamerr.Error{Reason: streamerr.UserStop, Cause: cause}
	}
	return CauseError(e, cause)
}

// CauseError returns a cause as the error of a context. Kitex sends its text with the reset, and
// Canceled parses that text on the other side. Kitex adds the name of the client's service to the
// path.
func CauseError(e *streamerr.Error, cause error) error {
	text := strings.ToUpper(e.Reason.String()) + ": " + e.Text()
	if len(e.Path) > 0 {
		text += " [" + e.Path.String() + "]"
	}
	return &causeError{text, cause}
}

// A causeError is a cause with the text that crosses the wire.
type causeError struct {
	text  string
	cause error
}

func (e *causeError) Error() string   { return e.text }
func (e *causeError) Unwrap() []error { return []error{e.cause, context.Canceled} }
