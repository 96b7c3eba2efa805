package kitexstream

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/remote/trans/ttstream"
	"github.com/cloudwego/netpoll"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/rpc/kitexrpc/kitexerr"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc/ttcause"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// classify returns the ending that an error of Kitex or of a handler stands for. The path is empty
// unless the error has one.
func classify(err error) *streamerr.Error {
	if e, ok := errors.AsType[*streamerr.Error](err); ok {
		return e
	}
	if ex, ok := errors.AsType[*ttstream.Exception](err); ok {
		return fromException(ex)
	}
	if errors.Is(err, kerrors.ErrPanic) {
		return &streamerr.Error{Reason: streamerr.Internal, Message: "the handler panicked", Cause: err}
	}
	if kitexerr.ShutDown(err) {
		return &streamerr.Error{Reason: streamerr.Draining, Message: "the server shut down", Cause: err}
	}
	if detailed, ok := errors.AsType[*kerrors.DetailedError](err); ok && errors.Is(err, kerrors.ErrBiz) && detailed.Unwrap() != nil {
		return classify(detailed.Unwrap()) // the handler's own error
	}
	st, _ := status.FromError(kitexerr.FromKitex(err))
	e := streamerr.FromGRPC("", st.Err())
	if e == nil { // the status is OK: err is not an error of a stream
		return streamerr.As(err)
	}
	if e.Reason == streamerr.PeerLost && len(e.Path) == 0 && e.Message != st.Message() {
		e.Message = st.Message()
	}
	e.Cause = err
	return e
}

// own returns the ending of a stream whose handler returned err.
func own(err error) *streamerr.Error {
	e := classify(err)
	if e.Reason == streamerr.PeerLost && status.Code(kitexerr.FromKitex(err)) == codes.Unavailable {
		c := *e // a status of the handler, not a lost connection of this stream
		c.Reason = streamerr.Unavailable
		return &c
	}
	return e
}

// Codes of TTHeader Streaming's exceptions. Kitex documents the numbers, and exports no names.
const (
	ttApplication    = 12001
	ttIllegalFrame   = 12004 // also a connection that broke
	ttIllegalCall    = 12005
	ttBizCancelCause = 12008
	ttInternalCancel = 12011
)

// fromException returns the ending that an exception of TTHeader Streaming stands for.
func fromException(ex *ttstream.Exception) *streamerr.Error {
	e := ttcause.Canceled(ex)
	failed := ex.TypeId() >= ttApplication && ex.TypeId() <= ttIllegalCall // not a cancel
	if e == nil || failed && !lost(ex) {
		return &streamerr.Error{Reason: streamerr.Internal, Message: ex.Error(), Cause: ex}
	}
	if e.Reason == streamerr.UserStop && !strings.Contains(ex.Error(), "USER_STOP: ") {
		e.Reason = streamerr.PeerReset // the text of a cancel on another transport
	}
	e.Path = slices.DeleteFunc(e.Path, func(hop string) bool { return hop == "non-ttstream path" }) // Kitex's name for unknown hops
	return e
}

// typedCause reports whether the code of an exception allows a typed cause.
func typedCause(ex *ttstream.Exception) bool {
	return ex.TypeId() == ttInternalCancel || ex.TypeId() == ttBizCancelCause
}

// lost reports whether an exception stands for a broken connection.
func lost(ex *ttstream.Exception) bool {
	for _, end := range []error{io.EOF, netpoll.ErrEOF, netpoll.ErrConnClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(ex, end) {
			return true
		}
	}
	return false
}

// answered returns the status code of an error that is a BizStatusError: the application's own
// answer. The statuses of Whence's own services are endings, not answers.
func answered(err error) (code int32, ok bool) {
	biz, ok := kerrors.FromBizStatusError(err)
	if !ok || streamerr.FromHop(kitexerr.FromKitex(err)) {
		return 0, false
	}
	return biz.BizStatusCode(), true
}

// clockSlack bounds the time by which the caller's timer may fire before this hop's timer for the
// same deadline.
const clockSlack = 100 * time.Millisecond

// expired reports whether a reset that came left before the deadline is the caller's timer. total
// is the time that the call had at its beginning. The slack of a short deadline is a quarter of it,
// so that a short call may still end for other reasons.
func expired(left, total time.Duration) bool {
	return left < min(clockSlack, total/4)
}

// A clock has the time limit of a server's stream.
type clock struct {
	at    time.Time // the zero time if the call has no deadline
	total time.Duration
}

func newClock(ctx context.Context) clock {
	at, ok := ctx.Deadline()
	if !ok {
		return clock{}
	}
	return clock{at, time.Until(at)}
}

func (c clock) expired() bool { return !c.at.IsZero() && expired(time.Until(c.at), c.total) }

// stopped returns why the context of a handler ended before the handler returned, or nil while the
// context is live. An empty path stands for this hop. draining reports that the server is shutting
// down, lost that the caller's connection has ended.
func stopped(base context.Context, caller string, limit clock, draining, lost bool) *streamerr.Error {
	err := base.Err()
	if err == nil {
		return nil
	}
	if ex, ok := errors.AsType[*ttstream.Exception](err); ok {
		e := fromException(ex) // of the caller or its connection: a server that shuts down closes no connection with streams
		if len(e.Path) == 0 {
			e.Path = streamerr.NewPath(caller)
		}
		return e
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return expiredError(err)
	case kitexerr.TooOld(err):
		return &streamerr.Error{Reason: streamerr.Draining, Message: "the server closed the connection because of its maximum age", Cause: err}
	case kitexerr.ShutDown(err) && draining:
		return &streamerr.Error{Reason: streamerr.Draining, Message: "this server shut down before the handler returned", Cause: err}
	case kitexerr.ShutDown(err) && lost: // Kitex's text is that of a shutdown
		return &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(caller), Message: "the caller's connection broke", Cause: err}
	case kitexerr.ShutDown(err): // Kitex passes the shutdown of the caller's own server on to its calls
		return &streamerr.Error{Reason: streamerr.Draining, Path: streamerr.NewPath(caller), Message: "the caller shut down", Cause: err}
	case kitexerr.Lost(err):
		return &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(caller), Message: "the caller's connection broke", Cause: err}
	case limit.expired():
		return expiredError(err)
	}
	return &streamerr.Error{Reason: streamerr.PeerReset, Path: streamerr.NewPath(caller), Message: "the caller reset the call without a reason", Cause: err}
}

func expiredError(err error) *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Deadline, Message: "the caller's deadline for the call passed", Cause: err}
}
