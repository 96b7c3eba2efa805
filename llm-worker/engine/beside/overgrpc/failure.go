package overgrpc

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/rpc/problem"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// reasons maps the server's status codes. Any other code is a failure of the engine: a rejected key
// is a problem for the operator, and a request that the server has canceled was not canceled by us.
var reasons = map[codes.Code]streamerr.Reason{
	codes.InvalidArgument:   streamerr.Invalid,
	codes.OutOfRange:        streamerr.Invalid,
	codes.NotFound:          streamerr.NotFound,
	codes.ResourceExhausted: streamerr.Overloaded,
	codes.DeadlineExceeded:  streamerr.Deadline,
	codes.Unavailable:       streamerr.Unavailable,
}

// failure converts err to an ending. said reports that the server sent a status, begun that it sent
// a message before. dialect completes the server's status, and may be nil.
func failure(err error, said, begun bool, dialect beside.Dialect) *streamerr.Error {
	st, _ := status.FromError(err)
	if !said {
		switch code := st.Code(); {
		case code == codes.Internal || code == codes.ResourceExhausted:
			// From the gRPC library: the message cannot be read.
			return beside.Broken(err)
		case begun:
			return beside.Lost(err, "broke the connection")
		case code == codes.Unavailable && strings.Contains(st.Message(), "HTTP/1.1 header"):
			e := beside.Unavailable(err)
			e.Message = "the server that generates answers in HTTP, and not in gRPC: --upstream http://… and --engine openai fit it"
			return e
		case code == codes.Unavailable:
			e := beside.Unavailable(err)
			e.Message = "the server that generates cannot be reached: " + problem.Unreachable(err)
			return e
		default:
			return beside.Unavailable(err)
		}
	}
	reason, ok := reasons[st.Code()]
	switch {
	case st.Code() == codes.Unavailable:
		reason = (&beside.Complaint{Message: st.Message(), Status: http.StatusServiceUnavailable}).Reason()
	case st.Code() == codes.Internal && dialect.Complete(&beside.Complaint{Message: st.Message(), Status: http.StatusInternalServerError}, begun).Died:
		reason = streamerr.PeerLost
	case !ok:
		reason = streamerr.EngineFailed
	}
	message := beside.Clip(st.Message(), beside.MaxMessage)
	if message == "" {
		message = "it gave no reason"
	}
	if st.Code() == codes.Unauthenticated || st.Code() == codes.PermissionDenied {
		err = fmt.Errorf("%w: %w", beside.ErrKeyRefused, err)
	}
	e := beside.Fail(reason, err, "the server that generates answered with status %s: %s", st.Code(), message)
	if reason == streamerr.Overloaded || reason == streamerr.Unavailable {
		e.RetryAfter = beside.RetryIn(retryIn(st))
	}
	return e
}

// retryIn returns the server's retry delay; 0 if the server sent none.
func retryIn(st *status.Status) time.Duration {
	for _, detail := range st.Details() {
		if d, ok := detail.(*errdetails.RetryInfo); ok {
			return d.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// IsUnimplemented reports that a server does not have the method of a call.
func IsUnimplemented(err error) bool { return status.Code(err) == codes.Unimplemented }
