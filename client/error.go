package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Reason is why a stream ended, or why a request was refused. A Reason is an error, so that
// errors.Is(err, client.PeerLost) works. A service can send reasons that this package does not
// name.
type Reason string

// The reasons, with the possible origins of each.
const (
	Completed       Reason = "completed"       // engine
	ClientGone      Reason = "client_gone"     // client
	UserStop        Reason = "user_stop"       // client
	OperatorStop    Reason = "operator_stop"   // operator
	SlowReader      Reason = "slow_reader"     // the hop whose buffer filled
	Deadline        Reason = "deadline"        // the hop whose timer fired, or the reader's context
	Draining        Reason = "draining"        // the hop that shuts down
	PeerReset       Reason = "peer_reset"      // the peer that sent a bare reset
	PeerLost        Reason = "peer_lost"       // the peer whose connection broke
	Overloaded      Reason = "overloaded"      // the hop that refused
	Unavailable     Reason = "unavailable"     // the hop that found no healthy peer
	Invalid         Reason = "invalid"         // the hop that rejected
	NotFound        Reason = "not_found"       // the hop that looked
	Unauthenticated Reason = "unauthenticated" // api-service
	Forbidden       Reason = "forbidden"       // api-service
	EngineFailed    Reason = "engine_failed"   // engine or llm-worker
	Internal        Reason = "internal"        // the hop that has the bug
)

// Error returns the reason in words.
func (r Reason) Error() string { return strings.ReplaceAll(string(r), "_", " ") }

// A Path is the hops that an ending has crossed, origin first.
type Path []string

const (
	maxHops = 32  // of a path; a longer path keeps its first hops
	maxName = 128 // bytes of the name of a hop
)

// newPath returns a path of hops. Of their names it keeps printable ASCII characters without ">", so
// that a path can be printed and parsed.
func newPath(hops ...string) (p Path) {
	for _, hop := range hops[:min(len(hops), maxHops)] {
		hop = strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' || r == '>' {
				return -1
			}
			return r
		}, hop)
		if hop = strings.TrimSpace(hop[:min(len(hop), maxName)]); hop != "" {
			p = append(p, hop)
		}
	}
	return p
}

// String joins the hops with " > ".
func (p Path) String() string { return strings.Join(p, " > ") }

// Origin returns the hop where the ending began, or "".
func (p Path) Origin() string {
	if len(p) == 0 {
		return ""
	}
	return p[0]
}

// An Error is the ending of a stream that did not complete, or a refusal of a request.
type Error struct {
	Reason  Reason
	Path    Path   // hops crossed, origin first
	Message string // for people
	Param   string // the field of the request that is at fault, such as "messages[0].role"
	// Code adds to the Reason: a code of OpenAI's API, such as "context_length_exceeded", or of the
	// server behind the worker; "" if the Reason says enough.
	Code       string
	RetryAfter time.Duration // when the caller may try again; 0 means unknown
	// GaveUp reports that this is the last failure of a client whose patience was over. The stream may
	// still run.
	GaveUp bool
	Cause  error // of an error of this process
}

// Text returns the message, or else the text of the cause, or else the reason.
func (e *Error) Text() string {
	switch {
	case e.Message != "":
		return e.Message
	case e.Cause != nil:
		return e.Cause.Error()
	default:
		return e.Reason.Error()
	}
}

// Error returns reason, text and path on one line.
func (e *Error) Error() string {
	text := e.Reason.Error()
	if more := e.Text(); more != text {
		text += ": " + more
	}
	if len(e.Path) > 0 {
		text += " [" + e.Path.String() + "]"
	}
	return text
}

// Unwrap lets errors.Is see the Reason and the Cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Cause}
}

// invalid returns the error for a wrong argument of a caller.
func invalid(param, format string, args ...any) *Error {
	return &Error{Reason: Invalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// asError returns err as an *Error.
func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Reason: Deadline, Cause: err}
	}
	return &Error{Reason: Internal, Cause: err}
}

// parseError reads the error object of OpenAI's API. Its member "whence" has the reason and the
// path; the object of another server has no reason. parseError returns ok = false for any other
// input.
func parseError(b []byte) (e *Error, ok bool) {
	var body struct {
		Error struct {
			Message string
			Param   *string
			Code    any // other servers send numbers
			Whence  struct {
				Reason string
				Path   []string
			}
		}
	}
	_ = json.Unmarshal(b, &body) // without a message, b is not an error object
	object := &body.Error
	if object.Message == "" {
		return nil, false
	}
	e = &Error{Reason: Reason(object.Whence.Reason), Path: newPath(object.Whence.Path...), Message: object.Message}
	if object.Param != nil {
		e.Param = *object.Param
	}
	e.Code, _ = object.Code.(string) // a number says less than the status
	return e, true
}
