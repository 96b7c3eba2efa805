// Package observer has the interface through which metrics, traces and records follow the streams of a hop. Package rpc calls an
// Observer, and imports no package that counts or traces.
package observer

import (
	"context"
	"log/slog"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// An Observer sees the streams of a hop. All methods are safe for concurrent use.
type Observer interface {
	// Begin is called for each stream that the hop takes in, before its engine runs. The Flow sees the rest of the
	// stream; nil sees nothing of it.
	Begin(ctx context.Context, b Beginning) Flow
	// Refused is called for each request that does not become a stream.
	Refused(reason streamerr.Reason)
	// Ending returns why the hop's last stream of that id ended, or Unspecified if the observer does not know. If owners are
	// given, only streams of these owners are known.
	Ending(id string, owners ...string) streamerr.Reason
}

// A Beginning describes a stream that a hop has taken in.
type Beginning struct {
	ID, Hop string
	Owner   string         // empty for none
	Peer    string         // the caller's address
	Method  string         // the full gRPC method without the leading slash, or empty
	Path    streamerr.Path // the hops that the call has crossed, origin first
	First   bool           // the call has crossed no hop: this hop is the stream's first
	// Header returns the values of a header of the call, none if the stream did not come with a gRPC call. It is valid
	// until Begin returns.
	Header func(key string) []string
}

// A Flow sees one stream on one hop. All methods are safe for concurrent use, except Sent, which belongs to the goroutine
// that sends to the caller.
type Flow interface {
	// Received is called for each message of a callee; tokens is the number of tokens that the message counts.
	Received(tokens int, message any)
	// Sent is called for each message that was passed to the caller. message is nil if Drive's caller sends in a form of
	// its own.
	Sent(tokens int, message any)
	// Note is called for everything else.
	Note(e Event)
	// Generated returns how many tokens engines have generated for the stream, as far as the hop knows.
	Generated() int
	// Headers calls set with each header that the stream's calls carry, beside those of package rpc.
	Headers(set func(key, value string))
	// LogAttrs returns attributes for the log line of the ended stream.
	LogAttrs() []slog.Attr
	// Close is called last, when the caller was told the ending. No Note follows, except of Unreceived and CalleeGone.
	Close()
}

// An Event is something that happens to a stream a few times at most. Fields that its Kind does not mention are zero.
type Event struct {
	Kind     Kind
	Code     string           // status, as the neighbour reads it
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
	// Running: the engine begins. Text is the operation, if it differs from the hop's; Message is the request.
	Running Kind = iota
	// Calling: a call goes out; Path is the hops that it has crossed, this hop included.
	Calling
	// CalleeAnswered: the first message of the callee has come; Path is its name.
	CalleeAnswered
	// Announced: the engine has admitted the stream, or has ended it properly; Message is the message that says so.
	Announced
	// Answering: the first message goes to the caller.
	Answering
	// StopHeard: the stream was asked to stop with Err.
	StopHeard
	// CallerGone: the caller has left a stream that was stopped for Reason, along Path; Err says how.
	CallerGone
	// CallerLost: the call of the caller was over before the caller could be told the ending; Err says how. It comes before
	// Ended.
	CallerLost
	// StopSent: the callee was asked to stop, for Reason, along Path.
	StopSent
	// CallReset: this hop has reset its call, for Reason, along Path.
	CallReset
	// CalleeReset: the call is over without a trailer of the callee. Reason is PeerReset or PeerLost.
	CalleeReset
	// CalleeEnded: the callee has ended the call with a trailer, of Code, Reason and Path.
	CalleeEnded
	// Confirmed: the callee has ended its call, as it was asked to; other calls of the stream may not be over.
	Confirmed
	// Unconfirmed: the call is over, and nobody knows whether the callee has stopped, as it was asked to.
	Unconfirmed
	// CalleeLeft: the stream goes on without the callee, or ends without its ending. Its CallOver does not follow.
	CalleeLeft
	// CalleeGone: the call that CalleeLeft was about is over. It may come after Close.
	CalleeGone
	// CallOver: the call that began with Calling is over.
	CallOver
	// Unreceived: Tokens were generated below and never reached this hop. It may come after Ended, and, from a call that was
	// left, after Close.
	Unreceived
	// Merged: the next message that is Received was Messages more on its way from the callee.
	Merged
	// Waited: the stream has waited for its caller's next message; Took says how long.
	Waited
	// Ended: the stream has ended on this hop for Reason, along Path. Text is the error's, if it has not completed.
	Ended
	// CallerTold: the caller was told the ending, with Code, Reason and Path.
	CallerTold
)

type flowKey struct{}

// With returns a context of a stream that f follows. Package rpc calls it.
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

// Nobody is an Observer, and a Flow, that ignores everything.
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
