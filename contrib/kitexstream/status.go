package kitexstream

import (
	"errors"
	"reflect"
	"strings"

	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/codes"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/status"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// recvDeadlineExceeded is Kitex's own code for a timeout of Recv, which its clients return from 0.16
// on.
const recvDeadlineExceeded = 17

// A statusCode says which ending a status without Whence's details stands for.
type statusCode struct {
	name   string
	code   codes.Code
	reason streamerr.Reason
	origin Origin
	note   string
}

var statusCodes = []statusCode{
	{"`CANCELLED`", codes.Canceled, streamerr.PeerReset, Peer, ""},
	{"`DEADLINE_EXCEEDED`", codes.DeadlineExceeded, streamerr.Deadline, Self, "the peer, if it came in a trailer"},
	{"Kitex's status 17, a timeout of Recv", recvDeadlineExceeded, streamerr.Deadline, Self, ""},
	{"`UNAVAILABLE`", codes.Unavailable, streamerr.PeerLost, Peer, "`unavailable`, if this hop's handler returns it"},
	{"`RESOURCE_EXHAUSTED`", codes.ResourceExhausted, streamerr.Overloaded, Peer, "`internal`, if a message was too long"},
	{"`INVALID_ARGUMENT`", codes.InvalidArgument, streamerr.Invalid, Peer, ""},
	{"`OUT_OF_RANGE`", codes.OutOfRange, streamerr.Invalid, Peer, ""},
	{"`FAILED_PRECONDITION`", codes.FailedPrecondition, streamerr.Invalid, Peer, ""},
	{"`ALREADY_EXISTS`", codes.AlreadyExists, streamerr.Invalid, Peer, ""},
	{"`UNIMPLEMENTED`", codes.Unimplemented, streamerr.Invalid, Peer, ""},
	{"`NOT_FOUND`", codes.NotFound, streamerr.NotFound, Peer, ""},
	{"`UNAUTHENTICATED`", codes.Unauthenticated, streamerr.Unauthenticated, Peer, ""},
	{"`PERMISSION_DENIED`", codes.PermissionDenied, streamerr.Forbidden, Peer, ""},
	{"a status with any other code", codes.Unknown, streamerr.Internal, Peer, ""},
}

// fromStatus returns the ending that a status stands for.
func fromStatus(st *status.Status, err error) (*streamerr.Error, Origin) {
	e, ours := fromDetails(st)
	if e == nil {
		e = &streamerr.Error{}
	}
	e.Message, e.Cause = st.Message(), err
	row := statusCodes[len(statusCodes)-1]
	for _, c := range statusCodes {
		if c.code == st.Code() {
			row = c
			break
		}
	}
	switch {
	case e.Reason != streamerr.Unspecified:
	case ours && row.reason == streamerr.PeerLost: // a hop of a later release has said why
		e.Reason = streamerr.Unavailable
	case row.reason == streamerr.Overloaded && tooLong(e.Message):
		e.Reason = streamerr.Internal
	default:
		e.Reason = row.reason
	}
	if ours {
		return e, Sent
	}
	return e, row.origin
}

// fromDetails returns the reason and the path in the details of a status of a Whence service. ours is
// false for any other status.
func fromDetails(st *status.Status) (e *streamerr.Error, ours bool) {
	for _, detail := range st.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != streamerr.Domain {
			continue
		}
		e = &streamerr.Error{Reason: streamerr.ParseReason(info.GetReason()), Path: streamerr.ParsePath(info.GetMetadata()[streamerr.PathKey])}
		if e.Reason == streamerr.Completed { // a failure has not completed
			e.Reason = streamerr.Unspecified
		}
		return e, true
	}
	return nil, false
}

// statusOf returns the status of an error of Kitex's gRPC or of grpc-go, or nil.
func statusOf(err error) *status.Status {
	if st := kitexStatus(err); st != nil {
		return st
	}
	for ; err != nil; err = errors.Unwrap(err) {
		// This module does not require grpc-go, whose errors have GRPCStatus with a type of their own.
		get := reflect.ValueOf(err).MethodByName("GRPCStatus")
		if !get.IsValid() || get.Type().NumIn() != 0 || get.Type().NumOut() != 1 {
			continue
		}
		if st, ok := get.Call(nil)[0].Interface().(interface{ Proto() *spb.Status }); ok {
			if p := st.Proto(); p != nil {
				return status.FromProto(p)
			}
		}
	}
	return nil
}

// kitexStatus returns the status of an error of Kitex's gRPC, or nil.
func kitexStatus(err error) *status.Status {
	var kitex interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &kitex) {
		return nil
	}
	return kitex.GRPCStatus()
}

// gracefulShutdown is Kitex's message for a call that a shutdown has ended, both in the error of
// the call's context and in the status of a call that was reset with Kitex's own code 1000.
const gracefulShutdown = "graceful shutdown"

// shutDown reports whether a gRPC call ended because a Kitex server shut down, in this process or
// the peer's.
func shutDown(err error) bool {
	st := kitexStatus(err)
	return st != nil && st.Message() == gracefulShutdown
}

// tooOld reports whether err, the error of a gRPC call's context on a Kitex server, means that the
// server closed the connection because of its maximum connection age.
func tooOld(err error) bool { return strings.Contains(err.Error(), "maximum connection age") }

// lostWords are messages of Kitex, which has no types for the reasons why it cancels a call.
var lostWords = []string{"connection EOF", "ReadFrame encountered err", "transport due to idleness"}

// lost reports whether err, the error of a gRPC call's context on a Kitex server or of a message that
// the server could not send, means that the caller's connection broke.
func lost(err error) bool {
	for _, words := range lostWords {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}

// isConnectionError reports whether err is an error of a connection of Kitex's gRPC.
func isConnectionError(err error) bool {
	var broken grpc.ConnectionError
	return errors.As(err, &broken)
}
