// Package streamerr describes why a stream ended, who ended it, and along which path. Its one type,
// Error, crosses process boundaries in headers, in trailers, and in the details of a gRPC status.
//
// It is the part of Whence's own package of this name that a service without language models needs,
// for Go 1.21 and without further modules. Both have the same reasons, paths and headers; a test of
// the repository compares them.
package streamerr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// Names on the wire.
const (
	// ViaHeader is the header of a call that names the hops that the call has crossed, so that a bare
	// reset or a lost connection still yields a path.
	ViaHeader = "whence-via"
	// ReasonTrailer and PathTrailer are the trailers with the reason and the path of the ending.
	// Completed streams send them, too.
	ReasonTrailer = "whence-end-reason"
	PathTrailer   = "whence-end-path"
	// Domain is the domain of Whence's google.rpc.ErrorInfo in the details of a gRPC status, and
	// PathKey is the key of the path in its metadata.
	Domain  = "whence"
	PathKey = "path"
)

// An Error is the ending of a stream. Reason, Path and Message cross the wire; Cause stays in the
// process. An Error is never changed after it has been returned; Via makes copies.
type Error struct {
	Reason  Reason
	Path    Path   // hops crossed, origin first
	Message string // for people
	Cause   error  // local only
}

// New returns an Error without a path. Via adds the first hop when the error leaves that hop.
func New(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: clip(fmt.Sprintf(format, args...))}
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

// Text returns the text for people: the message, or else the cause's text, or else the reason.
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

// LogValue groups the attributes of the error, with the same names in all logs.
func (e *Error) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("reason", e.Reason.String()), slog.String("origin", e.Path.Origin()),
		slog.String("path", e.Path.String()), slog.String("message", e.Text()),
	)
}

// Via returns err as it leaves hop: a copy whose path is one hop longer. An error of another type
// is converted as by As. Via returns nil if err is nil.
func Via(hop string, err error) *Error {
	if err == nil {
		return nil
	}
	c := *As(err)
	c.Path = c.Path.Append(hop)
	return &c
}

// As returns err as an *Error without extending its path. A Reason stays the reason. An exceeded
// deadline becomes Deadline, and a context that was canceled without a cause becomes PeerReset. Any
// other error becomes Internal, because it was never classified.
func As(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var r Reason
	switch {
	case errors.As(err, &r):
		return &Error{Reason: r, Cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Reason: Deadline, Cause: err}
	case errors.Is(err, context.Canceled):
		return &Error{Reason: PeerReset, Message: "canceled without a cause", Cause: err}
	default:
		return &Error{Reason: Internal, Cause: err}
	}
}

// FromContext returns why ctx is done, or nil if it is not. A cause that is an *Error is returned
// as it is.
func FromContext(ctx context.Context) *Error {
	if ctx.Err() == nil {
		return nil
	}
	return As(context.Cause(ctx))
}
