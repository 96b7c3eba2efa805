// Package leave decides what becomes of a stream that nobody reads any more.
//
// A Policy is what the request asked for, or a flag. A Watch counts the readers of one stream and carries the policy out.
package leave

import (
	"math"
	"strings"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// Header is the request header that holds a policy; it wins over the flag.
const Header = "X-Leave"

// A Kind is what happens when the last reader has left.
type Kind uint8

// The kinds of policies.
const (
	Cancel Kind = iota // the stream ends
	Linger             // it ends if nobody comes back in time
	Detach             // it runs to its end, and what it says is kept
	Drain              // it runs to its end, so that its usage is known, and what it says is dropped
)

var words = [...]string{Cancel: "cancel", Linger: "linger", Detach: "detach", Drain: "drain"}

// MaxLinger bounds how long a stream may run for nobody.
const MaxLinger = time.Hour

// A Policy says what happens when the last reader has left. The zero value is Cancel. It is a flag.Value by its text.
type Policy struct {
	Kind Kind
	For  time.Duration // of Linger
}

// Parse reads what String writes.
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
			return Policy{}, streamerr.InvalidParam(Header, "%s is %.64q; after linger: stands a duration over 0 and at most %v, such as linger:30s", Header, text, MaxLinger)
		}
		return p, nil
	}
	return Policy{}, streamerr.InvalidParam(Header, "%s is %.64q; it must be cancel, linger:<duration>, detach or drain", Header, text)
}

// String returns the policy as requests say it.
func (p Policy) String() string {
	if p.Kind == Linger {
		return words[p.Kind] + ":" + p.For.String()
	}
	return words[p.Kind]
}

// Keeps reports whether what a stream says is kept for readers who come later.
func (p Policy) Keeps() bool { return p.Kind == Linger || p.Kind == Detach }

// Within reports whether p goes no further than limit: a stream runs no longer without a reader, and its text is kept only if limit
// keeps it, too. Every policy is within Detach, and Cancel is within every policy. The time for a stream's first reader does not count:
// a stream of POST /v1/streams has that time under every policy.
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
