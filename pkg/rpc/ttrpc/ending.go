package ttrpc

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/cloudwego/gopkg/protocol/thrift"
	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/streaming"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// CodeBase is the code of an exception minus the number of its Reason: REASON_DRAINING, which is 7,
// has the code 13007. Kitex's own codes are 12001 to 12015.
const CodeBase = 13000

// Trailers of an ending, in addition to those of packages streamerr and wire.
const (
	statusTrailer  = "grpc-status-details-bin" // a google.rpc.Status, in base64, as in gRPC
	bizStatus      = "biz-status"              // Kitex's names for the parts of a kerrors.BizStatusErrorIface
	bizMessage     = "biz-message"
	bizExtra       = "biz-extra"
	extraReason    = "reason" // keys of the extra of a BizStatusErrorIface
	extraPath      = "path"
	extraParam     = "param"
	extraCode      = "code"
	extraRetryMS   = "retry_after_ms"
	timeoutHeader  = "whence-timeout-ms" // the time left until the caller's deadline, in milliseconds
	maxTimeoutInMS = int64(1000 * time.Hour / time.Millisecond)
)

// exception returns the exception that ends a stream with err, and trailers with the same content
// for programs.
func exception(err error) (*thrift.ApplicationException, streaming.Trailer) {
	st := toStatus(err)
	e := streamerr.FromGRPC("", st.Err())
	biz := bizError(e)
	trailer := streaming.Trailer{
		streamerr.ReasonTrailer: e.Reason.String(), streamerr.PathTrailer: e.Path.String(),
		bizStatus: strconv.Itoa(int(biz.BizStatusCode())), bizMessage: biz.BizMessage(), bizExtra: jsonOf(biz.BizExtra()),
	}
	if b, err := proto.Marshal(st.Proto()); err == nil {
		trailer[statusTrailer] = base64.StdEncoding.EncodeToString(b)
	}
	return thrift.NewApplicationException(biz.BizStatusCode(), e.Error()), trailer
}

// bizError converts e to Kitex's business error.
func bizError(e *streamerr.Error) kerrors.BizStatusErrorIface {
	extra := map[string]string{extraReason: e.Reason.String(), extraPath: e.Path.String()}
	if e.Param != "" {
		extra[extraParam] = e.Param
	}
	if e.Code != "" {
		extra[extraCode] = e.Code
	}
	if e.RetryAfter > 0 {
		extra[extraRetryMS] = strconv.FormatInt(e.RetryAfter.Milliseconds(), 10)
	}
	return kerrors.NewBizStatusErrorWithExtra(CodeBase+int32(e.Reason), e.Text(), extra)
}

func toStatus(err error) *status.Status {
	if st, ok := status.FromError(err); ok {
		return st
	}
	return status.FromContextError(err)
}

// fromTrailer returns the status in the trailers of a stream, or nil if they have none.
func fromTrailer(md metadata.MD) *status.Status {
	values := md.Get(statusTrailer)
	if len(values) == 0 {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(values[0])
	var p statuspb.Status
	if err != nil || proto.Unmarshal(b, &p) != nil || codes.Code(p.GetCode()) == codes.OK { //nolint:gosec // the code may be any number
		return nil
	}
	return status.FromProto(&p)
}

// fromKitex converts an error of a Kitex client or server to a gRPC status.
func fromKitex(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch e := Canceled(err); {
	case errors.Is(err, kerrors.ErrGetConnection), errors.Is(err, kerrors.ErrRemoteOrNetwork), errors.Is(err, kerrors.ErrNoMoreInstance),
		errors.Is(err, kerrors.ErrServiceDiscovery), errors.Is(err, kerrors.ErrLoadbalance), e != nil && e.Reason == streamerr.PeerLost:
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kerrors.ErrRPCTimeout), errors.Is(err, kerrors.ErrStreamingTimeout):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, kerrors.ErrStreamingCanceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
