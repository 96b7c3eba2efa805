package kitexerr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cloudwego/kitex/pkg/kerrors"
	kcodes "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/codes"
	kstatus "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/rpc/kitexrpc/kitexerr"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestStatusesSurviveTheWayToKitexAndBack(t *testing.T) {
	e := &streamerr.Error{Reason: streamerr.Overloaded, Path: streamerr.NewPath("worker", "chat"), Message: "the queue is full"}
	got := streamerr.FromGRPC("x", kitexerr.FromKitex(fmt.Errorf("call: %w", kitexerr.ToKitex(e))))
	if got.Reason != e.Reason || got.Path.String() != e.Path.String() || got.Message != e.Message {
		t.Errorf("%v comes back as %v", e, got)
	}
	if code := kitexerr.ToKitex(context.DeadlineExceeded).BizStatusCode(); code != int32(codes.DeadlineExceeded) {
		t.Errorf("an exceeded deadline has the code %d", code)
	}
}

func TestErrorsOfKitexHaveCodes(t *testing.T) {
	for _, test := range []struct {
		err  error
		want codes.Code
	}{
		{kerrors.ErrGetConnection.WithCause(errors.New("refused")), codes.Unavailable},
		{kerrors.ErrNoMoreInstance, codes.Unavailable},
		{kerrors.ErrRPCTimeout, codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled},
		{kstatus.Err(kcodes.NotFound, "no such symbol"), codes.NotFound},
		{kstatus.Err(kcodes.RecvDeadlineExceeded, "slow"), codes.DeadlineExceeded},
		{errors.New("a bug"), codes.Internal},
	} {
		if got := status.Code(kitexerr.FromKitex(test.err)); got != test.want {
			t.Errorf("%v has the code %v, not %v", test.err, got, test.want)
		}
	}
	if kitexerr.FromKitex(nil) != nil || !errors.Is(kitexerr.FromKitex(io.EOF), io.EOF) {
		t.Error("FromKitex changed nil or io.EOF")
	}
}

func TestWhyAServerCanceledACall(t *testing.T) {
	for text, want := range map[string][3]bool{ // shut down, too old, lost
		"graceful shutdown": {true, false, false},
		"transport: closing server transport due to maximum connection age [triggered by remote service]": {false, true, false},
		"transport: closing server transport due to idleness [triggered by remote service]":               {false, false, true},
		"transport: connection EOF [triggered by remote service]":                                         {false, false, true},
		"transport: RSTStream Frame received with error code: CANCEL [triggered by shop]":                 {},
		"the graceful shutdown of an application":                                                         {},
	} {
		err := kstatus.Err(kcodes.Canceled, text)
		if got := [3]bool{kitexerr.ShutDown(err), kitexerr.TooOld(err), kitexerr.Lost(err)}; got != want {
			t.Errorf("%q: %v, not %v", text, got, want)
		}
	}
	if kitexerr.ShutDown(nil) || kitexerr.TooOld(nil) || kitexerr.Lost(nil) {
		t.Error("ShutDown, TooOld or Lost is true for nil")
	}
}
