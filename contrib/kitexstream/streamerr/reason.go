package streamerr

import (
	"fmt"
	"strconv"
	"strings"
)

// A Reason is why a stream ended. A Reason is an error, so that errors.Is(err,
// streamerr.ClientGone) works on every hop. A number that this build does not know is preserved.
type Reason int32

// The reasons, with the possible origins of each. Names and numbers are those of
// whence.stream.v1.Reason.
const (
	Unspecified     Reason = 0
	Completed       Reason = 1  // the hop that answers
	ClientGone      Reason = 2  // client
	UserStop        Reason = 3  // client
	OperatorStop    Reason = 4  // operator
	SlowReader      Reason = 5  // the hop whose buffer filled
	Deadline        Reason = 6  // the hop whose timer fired
	Draining        Reason = 7  // the hop that shuts down
	PeerReset       Reason = 8  // the peer that sent a bare reset, or the hop that canceled without a cause
	PeerLost        Reason = 9  // the peer whose connection broke
	Overloaded      Reason = 10 // the hop that refused
	Unavailable     Reason = 11 // the hop that found no healthy peer
	Invalid         Reason = 12 // the hop that rejected
	NotFound        Reason = 13 // the hop that looked
	Unauthenticated Reason = 14 // the hop that checked
	Forbidden       Reason = 15 // the hop that checked
	EngineFailed    Reason = 16 // what is behind the last hop
	Internal        Reason = 17 // the hop that has the bug
)

var words = [...]string{
	Unspecified: "unspecified", Completed: "completed", ClientGone: "client_gone", UserStop: "user_stop",
	OperatorStop: "operator_stop", SlowReader: "slow_reader", Deadline: "deadline", Draining: "draining",
	PeerReset: "peer_reset", PeerLost: "peer_lost", Overloaded: "overloaded", Unavailable: "unavailable",
	Invalid: "invalid", NotFound: "not_found", Unauthenticated: "unauthenticated", Forbidden: "forbidden",
	EngineFailed: "engine_failed", Internal: "internal",
}

// prefix begins the name of a reason that this build does not know.
const prefix = "reason_"

// Known reports whether this build has a name for r.
func (r Reason) Known() bool { return r >= 0 && int(r) < len(words) }

// String returns the name of r in logs, labels and trailers, such as "client_gone", or "reason_57"
// for a reason that this build does not know.
func (r Reason) String() string {
	if r.Known() {
		return words[r]
	}
	return fmt.Sprint(prefix, int32(r))
}

// Error makes a Reason usable as the target of errors.Is.
func (r Reason) Error() string { return strings.ReplaceAll(r.String(), "_", " ") }

// ParseReason parses the output of String, in upper or lower case. It returns Unspecified for an
// unknown name.
func ParseReason(word string) Reason {
	word = strings.ToLower(word)
	for r, known := range words {
		if word == known {
			return Reason(r)
		}
	}
	if strings.HasPrefix(word, prefix) {
		if n, err := strconv.ParseInt(word[len(prefix):], 10, 32); err == nil && n > 0 {
			return Reason(n)
		}
	}
	return Unspecified
}
