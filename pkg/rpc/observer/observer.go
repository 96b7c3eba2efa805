// Package observer has the interface through which metrics, traces and records follow the streams
// of a hop. Package rpc calls an Observer, and imports no package for metrics, traces or records.
package observer

import (
	"context"
	"log/slog"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// An Observer receives the events of a hop's streams. All methods are safe for concurrent use.
type Observer interface {
	// Begin is called for each stream of the hop, before its engine runs. The returned Flow
	// receives the events of the stream. It may be nil. ctx has the values of the call, and may be
	// done before the stream has ended.
	Begin(ctx context.Context, b Beginning) Flow
	// Refused is called for each request that does not become a stream.
	Refused(reason streamerr.Reason)
	// Ending returns why the hop's last stream with that id ended, or Unspecified if the observer
	// does not know. If owners are given, it knows only streams of these owners.
	Ending(id string, owners ...string) streamerr.Reason
}

// A Beginning describes a stream that begins on a hop.
type Beginning struct {
	ID, Hop string
	Owner   string         // empty for none
	Peer    string         // the caller's address
	Method  string         // the full gRPC method without the leading slash, or empty
	Path    streamerr.Path // the hops that the call has crossed, origin first
	First   bool           // the call has crossed no hop before: this hop is the stream's first
	// Header returns the values of a header of the call, or none if the stream did not arrive with
	// a gRPC call. It is valid until Begin returns.
	Header func(key string) []string
}

// A Flow receives the events of one stream on one hop. All methods are safe for concurrent use,
// except Sent, which belongs to the goroutine that sends to the caller.
type Flow interface {
	// Received is called for each message of a callee. tokens is the number of tokens in the
	// message.
	Received(tokens int, message any)
	// Sent is called for each message that was passed to the caller. message is nil if Drive's
	// caller converts messages before it sends them.
	Sent(tokens int, message any)
	// Note is called for all other events.
	Note(e Event)
	// Generated returns the number of tokens that engines have generated for the stream, as far as
	// the hop knows.
	Generated() int
	// Consumed returns the number of tokens that engines got as input for the stream, as far as the
	// hop knows.
	Consumed() int
	// Headers calls set with each header for the stream's calls, in addition to package rpc's
	// headers.
	Headers(set func(key, value string))
	// LogAttrs returns attributes for the log line of the ended stream.
	LogAttrs() []slog.Attr
	// Close is called last, after the ending was sent to the caller. Only Unreceived, Consumed and
	// CalleeGone may be noted after it.
	Close()
}

// An Event happens to a stream at most a few times. Fields that its Kind does not mention are zero.
type Event struct {
	Kind     Kind
	Code     string           // status, as the neighbour hop reads it
	Reason   streamerr.Reason // why
	Path     streamerr.Path   // along which hops, origin first
	Text     string           // for people
	Err      *streamerr.Error
	Tokens   int
	Messages int
	Took     time.Duration
	Message  any
}

// A Kind is the kind of an event.
type Kind uint8

// The events.
const (
	// Running: the engine begins. Text is the operation, if it differs from the hop's. Message is
	// the request.
	Running Kind = iota
	// Calling: a call begins. Path has the hops that the call has crossed, this hop included.
	Calling
	// CalleeAnswered: the first message of the callee has arrived. Path has the callee's name.
	CalleeAnswered
	// Announced: the engine has admitted the stream or a turn of it, or has ended it with an
	// ending, or has ended a turn or a choice. Message says so.
	Announced
	// Answering: the first message is sent to the caller.
	Answering
	// StopHeard: the stream was asked to stop, with Err.
	StopHeard
	// CallerGone: the caller has left a stream that was stopped for Reason, along Path. Err says
	// how the caller left.
	CallerGone
	// CallerLost: the caller's call was over before the ending could be sent. Err says
	// how the call ended. CallerLost precedes Ended.
	CallerLost
	// StopSent: the callee was asked to stop, for Reason, along Path.
	StopSent
	// CallReset: this hop has reset its call, for Reason, along Path.
	CallReset
	// CalleeReset: the call is over without a trailer of the callee. Reason is PeerReset or
	// PeerLost.
	CalleeReset
	// CalleeEnded: the callee has ended the call with a trailer of Code, Reason and Path.
	CalleeEnded
	// Confirmed: the callee has ended its call as it was asked to. Other calls of the stream may
	// continue.
	Confirmed
	// Unconfirmed: the call is over, but it is unknown whether the callee has stopped as it was
	// asked to.
	Unconfirmed
	// CalleeLeft: the stream continues without the callee, or ends without the callee's ending. No
	// CallOver follows.
	CalleeLeft
	// CalleeGone: the call of CalleeLeft is over. It may come after Close.
	CalleeGone
	// CallOver: the call that began with Calling is over.
	CallOver
	// Unreceived: Tokens tokens were generated below but never reached this hop. It may come after
	// Ended and, from a call that was left, after Close.
	Unreceived
	// Consumed: a call is over for which engines got Tokens tokens as input, as the callee says. It
	// may come after Ended and, from a call that was left, after Close.
	Consumed
	// Merged: the next message of Received contains Messages further messages of the callee.
	Merged
	// Waited: the stream has waited for the next message of its caller, for Took.
	Waited
	// Ended: the stream has ended on this hop for Reason, along Path. Text is the text of the
	// error, unless the stream completed.
	Ended
	// EndingSent: the ending was sent to the caller, with Code, Reason and Path.
	EndingSent
)

type flowKey struct{}

// With returns a context of a stream whose events f receives. Package rpc calls it.
func With(ctx context.Context, f Flow) context.Context {
	return context.WithValue(ctx, flowKey{}, f)
}

// Of returns the Flow of ctx's stream. It is never nil.
func Of(ctx context.Context) Flow {
	if f, _ := ctx.Value(flowKey{}).(Flow); f != nil {
		return f
	}
	return Nobody{}
}

// Nobody is an Observer and a Flow that ignores all events.
type Nobody struct{}

var (
	_ Observer = Nobody{}
	_ Flow     = Nobody{}
)

// Received implements Flow.
func (Nobody) Received(int, any) {}

// Sent implements Flow.
func (Nobody) Sent(int, any) {}

// Note implements Flow.
func (Nobody) Note(Event) {}

// Generated implements Flow.
func (Nobody) Generated() int { return 0 }

// Consumed implements Flow.
func (Nobody) Consumed() int { return 0 }

// Headers implements Flow.
func (Nobody) Headers(func(key, val string)) {}

// LogAttrs implements Flow.
func (Nobody) LogAttrs() []slog.Attr { return nil }

// Close implements Flow.
func (Nobody) Close() {}

// Begin implements Observer.
func (Nobody) Begin(context.Context, Beginning) Flow { return Nobody{} }

// Refused implements Observer.
func (Nobody) Refused(streamerr.Reason) {}

// Ending implements Observer.
func (Nobody) Ending(string, ...string) (r streamerr.Reason) { return r }
