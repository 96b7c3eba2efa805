// Package problem describes why a health probe of a peer failed, and decides when to log that.
package problem

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxText bounds the peer's text in a problem, in bytes.
const maxText = 300

// Unreachable describes why the connection to a peer failed in a few words, such as "connection
// refused". It omits addresses, because clients may read the text; libraries write addresses first.
func Unreachable(err error) string {
	text := strings.TrimRight(status.Convert(err).Message(), "\"' ")
	if at := strings.LastIndex(text, ": "); at >= 0 {
		text = text[at+2:]
	}
	return clip(strings.Trim(text, "\"' "))
}

// OfProbe describes why peer, such as "it", did not answer a health probe within timeout. The text
// contains no addresses.
func OfProbe(peer string, err error, timeout time.Duration) string {
	switch code := status.Code(err); {
	case code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s did not answer within %v", peer, timeout)
	case code == codes.Unavailable:
		return peer + " cannot be reached: " + Unreachable(err)
	default:
		return clip(status.Convert(err).Message())
	}
}

func clip(text string) string {
	n := len(text)
	if n <= maxText {
		return text
	}
	for n = maxText; !utf8.RuneStart(text[n]); n-- {
	}
	return text[:n] + "…"
}

// A problem that lasts is logged again after firstPause, and then after pauses that double up to
// lastPause.
const (
	firstPause = 10 * time.Second
	lastPause  = 5 * time.Minute
)

// A Log decides when to log a problem that each probe finds again: at once when its kind differs from
// the last problem's kind, and otherwise with growing pauses. The zero value has logged nothing.
type Log struct {
	kind  string
	at    time.Time
	pause time.Duration // from at until the problem is logged again
}

// Due reports whether to log a problem, and records that it was logged. The kind of a problem is
// its text before the first ": ".
func (l *Log) Due(text string) bool {
	kind, _, _ := strings.Cut(text, ": ")
	switch {
	case kind != l.kind:
		l.pause = firstPause
	case time.Since(l.at) < l.pause:
		return false
	default:
		l.pause = min(2*l.pause, lastPause)
	}
	l.kind, l.at = kind, time.Now()
	return true
}

// Clear makes Due return true for the next problem, because the peer has recovered.
func (l *Log) Clear() { *l = Log{} }
