package kitexrpc

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

	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestStatusesSurviveTheWayToKitexAndBack(t *testing.T) {
	e := &streamerr.Error{Reason: streamerr.Overloaded, Path: streamerr.NewPath("worker", "chat"), Message: "the queue is full"}
	got := streamerr.FromGRPC("x", fromKitex(fmt.Errorf("call: %w", toKitex(e))))
	if got.Reason != e.Reason || got.Path.String() != e.Path.String() || got.Message != e.Message {
		t.Errorf("%v comes back as %v", e, got)
	}
	if code := toKitex(context.DeadlineExceeded).BizStatusCode(); code != int32(codes.DeadlineExceeded) {
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
		if got := status.Code(fromKitex(test.err)); got != test.want {
			t.Errorf("%v has the code %v, not %v", test.err, got, test.want)
		}
	}
	if fromKitex(nil) != nil || !errors.Is(fromKitex(io.EOF), io.EOF) {
		t.Error("fromKitex changed nil or io.EOF")
	}
}
