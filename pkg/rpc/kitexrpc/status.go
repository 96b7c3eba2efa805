package kitexrpc

import (
	"context"
	"errors"
	"io"

	"github.com/cloudwego/kitex/pkg/kerrors"
	kcodes "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/codes"
	kgrpc "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc"
	kstatus "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// toKitex returns err as a Kitex status, which has the same code, message and details.
func toKitex(err error) kerrors.BizStatusErrorIface {
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

// fromKitex converts an error of Kitex to a grpc-go status. It returns nil and io.EOF unchanged.
func fromKitex(err error) error {
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

// hasStatus reports whether err has a status of Kitex's gRPC.
func hasStatus(err error) bool {
	var withStatus interface{ GRPCStatus() *kstatus.Status }
	return errors.As(err, &withStatus)
}
