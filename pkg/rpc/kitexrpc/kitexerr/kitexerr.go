// Package kitexerr converts between the errors of Kitex and the statuses of grpc-go.
package kitexerr

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/cloudwego/kitex/pkg/kerrors"
	kcodes "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/codes"
	kgrpc "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc"
	kstatus "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ToKitex returns err as a Kitex status, which has the same code, message and details.
func ToKitex(err error) kerrors.BizStatusErrorIface {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	biz := kerrors.NewGRPCBizStatusError(int32(st.Code()), st.Message())
	if g, ok := biz.(kerrors.GRPCStatusIface); ok {
		g.SetGRPCStatus(kstatus.FromProto(st.Proto()))
	}
	return biz
}

// FromKitex converts an error of Kitex to a grpc-go status. It returns nil and io.EOF unchanged.
func FromKitex(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var withStatus interface{ GRPCStatus() *kstatus.Status }
	if errors.As(err, &withStatus) {
		st := withStatus.GRPCStatus()
		if st.Code() == kcodes.RecvDeadlineExceeded { // a code of Kitex's own, which its clients return from Recv only
			return status.Error(codes.DeadlineExceeded, st.Message())
		}
		return status.FromProto(st.Proto()).Err()
	}
	var broken kgrpc.ConnectionError
	switch {
	case errors.As(err, &broken), errors.Is(err, kerrors.ErrGetConnection), errors.Is(err, kerrors.ErrRemoteOrNetwork), errors.Is(err, kerrors.ErrNoMoreInstance),
		errors.Is(err, kerrors.ErrServiceDiscovery), errors.Is(err, kerrors.ErrLoadbalance):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kerrors.ErrRPCTimeout):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

// HasStatus reports whether err has a status of Kitex's gRPC.
func HasStatus(err error) bool {
	var withStatus interface{ GRPCStatus() *kstatus.Status }
	return errors.As(err, &withStatus)
}

// gracefulShutdown is Kitex's message for a call that a shutdown has ended, both in the error of
// the call's context and in the status of a call that was reset with Kitex's own code 1000.
const gracefulShutdown = "graceful shutdown"

// ShutDown reports whether a gRPC call ended because a Kitex server shut down, in this process or
// the peer's.
func ShutDown(err error) bool {
	var withStatus interface{ GRPCStatus() *kstatus.Status }
	return errors.As(err, &withStatus) && withStatus.GRPCStatus().Message() == gracefulShutdown
}

// TooOld reports whether err, the error of a gRPC call's context on a Kitex server, means that the
// server closed the connection because of its maximum connection age.
func TooOld(err error) bool {
	return err != nil && strings.Contains(err.Error(), "maximum connection age")
}

// lostWords are messages of Kitex, which has no types for the reasons why it cancels a call.
var lostWords = []string{"connection EOF", "ReadFrame encountered err", "transport due to idleness"}

// Lost reports whether err, the error of a gRPC call's context on a Kitex server or of a message that
// the server could not send, means that the caller's connection broke.
func Lost(err error) bool {
	return err != nil && slices.ContainsFunc(lostWords, func(words string) bool { return strings.Contains(err.Error(), words) })
}
