// Package problem says why a health probe of a peer has failed, and when that is worth a log line.
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

// maxText bounds the length of a peer's words in a problem, in bytes.
const maxText = 300

// Unreachable says in a few words why the connection to a peer failed, such as "connection refused". It omits
// addresses, because clients may read it; libraries write them before these words.
func Unreachable(err error) string {
	text := strings.TrimRight(status.Convert(err).Message(), "\"' ")
	if at := strings.LastIndex(text, ": "); at >= 0 {
		text = text[at+2:]
	}
	return clip(strings.Trim(text, "\"' "))
}

// OfProbe says in words why a peer, such as "it", did not answer a health probe within timeout. It names no addresses.
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

// relogAfter is the shortest time between two log lines about problems of one kind.
const relogAfter = 30 * time.Second

// A Log decides when a problem that each probe finds again is worth a log line: when its kind differs from the last
// one's, and now and then while only details change, such as an id that the peer quotes. The zero value has logged
// nothing.
type Log struct {
	kind, text string
	at         time.Time
}

// Due reports whether to log a problem, and records that it was logged. The problem's kind is its text before the
// first ": ".
func (l *Log) Due(text string) bool {
	kind, _, _ := strings.Cut(text, ": ")
	if kind == l.kind && (text == l.text || time.Since(l.at) < relogAfter) {
		return false
	}
	l.kind, l.text, l.at = kind, text, time.Now()
	return true
}

// Clear has the next problem logged: the peer was well in between.
func (l *Log) Clear() { *l = Log{} }
