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

// classify returns what an error of Kitex or of a handler means, without a path unless the error has one.
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
	if detailed, ok := errors.AsType[*kerrors.DetailedError](err); ok && errors.Is(err, kerrors.ErrBiz) && detailed.Unwrap() != nil {
		return classify(detailed.Unwrap()) // what the handler returned
	}
	st, _ := status.FromError(kitexerr.FromKitex(err))
	e := streamerr.FromGRPC("", st.Err())
	if e == nil { // an OK status, which is no error of a stream
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
		c := *e // the handler's verdict: no connection of this stream was lost
		c.Reason = streamerr.Unavailable
		return &c
	}
	return e
}

// Codes of TTHeader Streaming's exceptions. Kitex exports the numbers in its documents alone.
const (
	ttApplication    = 12001
	ttIllegalFrame   = 12004 // or none: a connection that broke
	ttBizCancelCause = 12008
	ttInternalCancel = 12011
)

// fromException returns what an exception of TTHeader Streaming means.
func fromException(ex *ttstream.Exception) *streamerr.Error {
	e := ttcause.Canceled(ex)
	failed := ex.TypeId() >= ttApplication && ex.TypeId() <= ttIllegalFrame+1 // none of a cancel
	if e == nil || failed && !lost(ex) {
		return &streamerr.Error{Reason: streamerr.Internal, Message: ex.Error(), Cause: ex}
	}
	if e.Reason == streamerr.UserStop && !strings.Contains(ex.Error(), "USER_STOP: ") {
		e.Reason = streamerr.PeerReset // another transport reports a cancel
	}
	e.Path = slices.DeleteFunc(e.Path, func(hop string) bool { return hop == "non-ttstream path" }) // Kitex's word for hops that it does not know
	return e
}

// typedCause reports whether an exception may carry a typed cause.
func typedCause(ex *ttstream.Exception) bool {
	return ex.TypeId() == ttInternalCancel || ex.TypeId() == ttBizCancelCause
}

// lost reports whether an exception means that there are no more frames to read.
func lost(ex *ttstream.Exception) bool {
	for _, end := range []error{io.EOF, netpoll.ErrEOF, netpoll.ErrConnClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(ex, end) {
			return true
		}
	}
	return false
}

// clockSlack is how much earlier the caller's timer may fire than this hop's for the same deadline.
const clockSlack = 100 * time.Millisecond

// byCaller returns why the caller has ended the stream of a handler whose context is base, or nil while it has not.
func byCaller(base context.Context, caller string) *streamerr.Error {
	err := base.Err()
	if err == nil {
		return nil
	}
	if ex, ok := errors.AsType[*ttstream.Exception](err); ok {
		e := fromException(ex)
		if len(e.Path) == 0 {
			e.Path = streamerr.NewPath(caller)
		}
		return e
	}
	at, ok := base.Deadline()
	if errors.Is(err, context.DeadlineExceeded) || ok && time.Until(at) < clockSlack {
		return &streamerr.Error{Reason: streamerr.Deadline, Message: "the deadline that the caller set on the call has passed", Cause: err}
	}
	e := &streamerr.Error{Reason: streamerr.PeerReset, Path: streamerr.NewPath(caller), Message: "the caller reset the call without a reason", Cause: err}
	if kitexerr.Lost(err) {
		e.Reason, e.Message = streamerr.PeerLost, "the caller's connection broke"
	}
	return e
}
