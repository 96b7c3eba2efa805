// Package leave decides what happens to a stream when its last reader has left.
//
// A Policy comes from the request or from a flag. A Watch counts the readers of one stream and
// enforces the policy.
package leave

import (
	"math"
	"strings"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// Header is the request header with a policy; it overrides the flag.
const Header = "X-Leave"

// A Kind is the action after the last reader has left.
type Kind uint8

// The kinds of policies.
const (
	Cancel Kind = iota // the stream ends
	Linger             // the stream ends unless a reader reconnects in time
	Detach             // the stream runs to its end, and its events are kept
	Drain              // the stream runs to its end, so that its usage is known, but its events are dropped
)

var words = [...]string{Cancel: "cancel", Linger: "linger", Detach: "detach", Drain: "drain"}

// MaxLinger bounds how long a stream may run without a reader.
const MaxLinger = time.Hour

// A Policy is the action after the last reader has left. The zero value is Cancel. Its text form
// makes it a flag.Value.
type Policy struct {
	Kind Kind
	For  time.Duration // of Linger
}

// Parse parses the form that String writes.
func Parse(text string) (Policy, error) {
	word, arg, timed := strings.Cut(strings.TrimSpace(text), ":")
	for kind, w := range words {
		if w != word {
			continue
		}
		p := Policy{Kind: Kind(kind)}
		if p.Kind != Linger {
			if timed {
				break
			}
			return p, nil
		}
		var err error
		if p.For, err = time.ParseDuration(arg); err != nil || p.For <= 0 || p.For > MaxLinger {
			return Policy{}, streamerr.InvalidParam(Header, "%s is %.64q; linger: must be followed by a duration above 0 and at most %v, such as linger:30s", Header, text, MaxLinger)
		}
		return p, nil
	}
	return Policy{}, streamerr.InvalidParam(Header, "%s is %.64q; it must be cancel, linger:<duration>, detach or drain", Header, text)
}

// String returns the policy in the form that requests use.
func (p Policy) String() string {
	if p.Kind == Linger {
		return words[p.Kind] + ":" + p.For.String()
	}
	return words[p.Kind]
}

// Keeps reports whether a stream's events are kept for later readers.
func (p Policy) Keeps() bool { return p.Kind == Linger || p.Kind == Detach }

// Within reports whether p goes no further than limit: a stream runs no longer without a reader,
// and its text is kept only if limit keeps it, too. Every policy is within Detach, and Cancel is
// within every policy. The time for a stream's first reader does not count: a stream of POST
// /v1/streams has that time under every policy.
func (p Policy) Within(limit Policy) bool {
	return p.unread() <= limit.unread() && (!p.Keeps() || limit.Keeps())
}

// unread returns how long a stream runs without a reader.
func (p Policy) unread() time.Duration {
	switch p.Kind {
	case Cancel:
		return 0
	case Linger:
		return p.For
	default:
		return math.MaxInt64
	}
}

// MarshalText implements encoding.TextMarshaler.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Policy) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err == nil {
		*p = parsed
	}
	return err
}
