// Package streamerr describes why a stream ended, who ended it, and along which path. Its one type,
// Error, crosses process boundaries as a gRPC status with google.rpc.ErrorInfo, as an HTTP status,
// and as OpenAI's error object.
//
// Every error that leaves a hop is an *Error made by Via.
package streamerr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An Error is the ending of a stream that did not complete, or a refusal to start one. Reason,
// Path, Message, Param, Code, RetryAfter and Repeated cross the wire; Cause stays in the process.
//
// An Error is never changed after it has been returned; Via makes copies.
type Error struct {
	Reason  Reason
	Path    Path   // hops crossed, origin first
	Message string // for people; names the field if the request is at fault
	Param   string // the field of the request that is at fault, such as "messages[0].role"
	// Code adds to the Reason, either as a code of OpenAI's API, such as "context_length_exceeded",
	// or as the error code of the server behind the worker. See CleanCode. It is "" if the Reason
	// says enough.
	Code       string
	RetryAfter time.Duration // when the caller may try again; 0 means unknown
	// Repeated reports that a hop has repeated the request on another worker, and that it failed in
	// the same way.
	Repeated bool
	Cause    error // local only; if Message is empty, the text of Cause crosses the wire instead
}

// New returns an Error without a path. Via adds the first hop when the error leaves that hop.
func New(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: clip(fmt.Sprintf(format, args...))}
}

// InvalidParam returns an Error with reason Invalid for the request's field param.
func InvalidParam(param, format string, args ...any) *Error {
	return &Error{Reason: Invalid, Param: param, Message: clip(fmt.Sprintf(format, args...))}
}

// maxText bounds a message, in bytes: messages quote requests and travel in headers, whose size
// peers limit.
const maxText = 2048

func clip(text string) string {
	const cut = "…"
	if len(text) > maxText+len(cut) || len(text) > maxText && !strings.HasSuffix(text, cut) { // do not cut twice
		text = text[:maxText] + cut
	}
	return strings.ToValidUTF8(text, string(utf8.RuneError))
}

// Text returns the text for people: the message, or else the cause's text, or else the reason. Text
// is cut like the message of New.
func (e *Error) Text() string {
	switch {
	case e.Message != "":
		return clip(e.Message)
	case e.Cause != nil:
		return clip(e.Cause.Error())
	default:
		return e.Reason.Error()
	}
}

// Error returns reason, text and path on one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Reason.Error())
	if text := e.Text(); text != e.Reason.Error() {
		b.WriteString(": " + text)
	}
	if len(e.Path) > 0 {
		b.WriteString(" [" + e.Path.String() + "]")
	}
	return b.String()
}

// Unwrap lets errors.Is see the Reason and the Cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Cause}
}

// Final reports that a client that repeats the request cannot expect another result: the stream was
// stopped on purpose, its own deadline has passed, or the request was repeated here in vain.
func (e *Error) Final() bool {
	return e.Reason == UserStop || e.Reason == Deadline || e.Repeated
}

// LogValue groups the attributes of the error, with the same names in all logs.
func (e *Error) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("reason", e.Reason.String()),
		slog.String("origin", e.Path.Origin()),
		slog.String("path", e.Path.String()),
		slog.String("message", e.Text()),
	}
	if e.Param != "" {
		attrs = append(attrs, slog.String("param", e.Param))
	}
	if code := CleanCode(e.Code); code != "" {
		attrs = append(attrs, slog.String("code", code))
	}
	return slog.GroupValue(attrs...)
}

// Via returns err as it leaves hop: a copy whose path is one hop longer. An error of another type
// is converted as by As. Via returns nil if err is nil.
func Via(hop string, err error) *Error {
	if err == nil {
		return nil
	}
	e := As(err)
	c := *e
	c.Path = e.Path.Append(hop)
	return &c
}

// As returns err as an *Error without extending its path. A Reason stays the reason. An exceeded
// deadline becomes Deadline. A context that was canceled without a cause becomes PeerReset, like a
// call that was reset without a cause. Both may be errors of package context or gRPC statuses. Any
// other error becomes Internal, because it was never classified.
func As(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if r, ok := errors.AsType[Reason](err); ok {
		return &Error{Reason: r, Cause: err}
	}
	code := codes.OK
	if st, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok {
		code = st.GRPCStatus().Code()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), code == codes.DeadlineExceeded:
		return &Error{Reason: Deadline, Cause: err}
	case errors.Is(err, context.Canceled), code == codes.Canceled:
		return &Error{Reason: PeerReset, Message: "canceled without a cause", Cause: err}
	default:
		return &Error{Reason: Internal, Cause: err}
	}
}
