package beside

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// Hop is the origin of endings that the server decided, or that its end of the connection made.
	Hop = "engine"
	// RetryAfter is what callers are told where the server does not say: it is looked at that often.
	RetryAfter = time.Second
	// MaxMessage bounds what is quoted of a server, in bytes: it is for people, and may hold a page.
	MaxMessage = 512
)

// Fail makes an ending whose origin is the server.
func Fail(reason streamerr.Reason, cause error, format string, args ...any) *streamerr.Error {
	e := streamerr.New(reason, format, args...)
	e.Path, e.Cause = streamerr.NewPath(Hop), cause
	return e
}

// Unavailable says that the server cannot be asked now.
func Unavailable(cause error) *streamerr.Error {
	e := Fail(streamerr.Unavailable, cause, "the server that generates does not answer")
	e.RetryAfter = RetryAfter
	return e
}

// Lost says that the server went away in the middle of an answer.
func Lost(cause error, how string) *streamerr.Error {
	return Fail(streamerr.PeerLost, cause, "the server that generates %s", how)
}

// Broken says that what the server sends cannot be understood.
func Broken(cause error) *streamerr.Error {
	return Fail(streamerr.EngineFailed, cause, "the server that generates sent nonsense: %s", Clip(cause.Error(), MaxMessage))
}

// Clip makes text fit for one line of at most n bytes.
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
