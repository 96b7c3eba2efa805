package beside

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// Hop is the origin of endings that the server, or the connection to the server, caused.
	Hop = "engine"
	// RetryAfter is the time after which callers may retry if the server names none. It equals the
	// probe interval.
	RetryAfter = time.Second
	// MaxMessage bounds a quoted message of the server, in bytes: it is for people, and may be a
	// whole page.
	MaxMessage = 512
)

// Fail returns an ending whose origin is the server.
func Fail(reason streamerr.Reason, cause error, format string, args ...any) *streamerr.Error {
	e := streamerr.New(reason, format, args...)
	e.Path, e.Cause = streamerr.NewPath(Hop), cause
	return e
}

// ErrKeyRefused is the cause of an ending if the server refuses the worker's key.
var ErrKeyRefused = errors.New("the server that generates refuses the worker's key")

// Unavailable returns the ending for a server that cannot be called now. cause is the connection's
// error, or nil if unknown.
func Unavailable(cause error) *streamerr.Error {
	return unavailable(cause, "the server that generates "+silence(cause))
}

func unavailable(cause error, text string) *streamerr.Error {
	e := Fail(streamerr.Unavailable, cause, "%s", text)
	e.RetryAfter = RetryAfter
	return e
}

// silence describes how a connection failed before the server had answered. It names no addresses.
func silence(err error) string {
	_, lookup := errors.AsType[*net.DNSError](err)
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refuses connections: nothing listens at its address"
	case lookup:
		return "cannot be found: its host's name has no address"
	case errors.Is(err, context.DeadlineExceeded) || ok && timeout.Timeout():
		return "does not answer in time"
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		return "broke the connection before it answered"
	default:
		return "does not answer"
	}
}

// Lost returns the ending for a server that disconnected in the middle of an answer.
func Lost(cause error, how string) *streamerr.Error {
	return Fail(streamerr.PeerLost, cause, "the server that generates %s", how)
}

// Broken returns the ending for a server response that cannot be parsed.
func Broken(cause error) *streamerr.Error {
	return Fail(streamerr.EngineFailed, cause, "the server that generates sent an invalid answer: %s", Clip(cause.Error(), MaxMessage))
}

// Clip shortens text to one line of at most n bytes.
func Clip(text string, n int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.TrimSpace(text))
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
