// Package streamerr describes why a stream ended, who ended it, and along which path, in one type
// that crosses process boundaries: as a gRPC status with google.rpc.ErrorInfo, as an HTTP status,
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
// Path, Message, Param, Code and RetryAfter cross the wire; Cause stays in the process.
//
// An Error is never changed once it has been returned; Via makes copies.
type Error struct {
	Reason  Reason
	Path    Path   // hops crossed, origin first
	Message string // for people; names the field when the request is at fault
	Param   string // the field of the request at fault, such as "messages[0].role"
	// What the Reason does not say, in a word of OpenAI's API, such as "context_length_exceeded"; or the
	// error code of the server behind the worker. See CleanCode. "" means that the Reason says all.
	Code       string
	RetryAfter time.Duration // when the caller may try again; 0 means unknown
	Cause      error         // local only; if Message is empty its text crosses the wire instead
}

// New returns an Error without a path: it gets one as it leaves its first hop.
func New(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: clip(fmt.Sprintf(format, args...))}
}

// InvalidParam returns a refusal of the field named by param.
func InvalidParam(param, format string, args ...any) *Error {
	return &Error{Reason: Invalid, Param: param, Message: clip(fmt.Sprintf(format, args...))}
}

// maxText bounds a message, in bytes: messages quote requests, and travel in headers, which peers
// limit.
const maxText = 2048

func clip(text string) string {
	const cut = "…"
	if len(text) > maxText+len(cut) || len(text) > maxText && !strings.HasSuffix(text, cut) { // do not cut twice
		text = text[:maxText] + cut
	}
	return strings.ToValidUTF8(text, string(utf8.RuneError))
}

// Text returns the text for people: the message, else the cause's text, else the reason. It is no
// longer than a message of New, whatever its source.
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

// Error returns reason, text and path in one line.
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

// LogValue groups the attributes of the error, under the names that all logs use.
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
// is converted as in As. Via of nil is nil.
func Via(hop string, err error) *Error {
	if err == nil {
		return nil
	}
	e := As(err)
	c := *e
	c.Path = e.Path.Append(hop)
	return &c
}

// As returns err as an *Error without lengthening its path. A Reason keeps its meaning, a passed
// deadline is Deadline, and a context that was canceled without a cause is PeerReset, like a call
// that was reset without a cause: as errors of package context and as statuses of gRPC. Any other
// error is Internal, because it was never classified.
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
