package streamerr

import (
	"context"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// Domain is the domain of our google.rpc.ErrorInfo.
	Domain = "whence"
	// ReasonTrailer is the gRPC trailer with the reason, for clients that read no status details.
	// Completed streams send it, too.
	ReasonTrailer = "whence-end-reason"
	// PathTrailer is the gRPC trailer with the path.
	PathTrailer = "whence-end-path"
	// ViaHeader is the request metadata that names the hops that a call has crossed, so that a bare
	// RST or a lost connection still yields a path.
	ViaHeader = "whence-via"

	pathKey  = "path"
	paramKey = "param"
	codeKey  = "code"

	repeatedKey = "repeated"
)

// GRPCStatus lets every grpc-go client and server understand e: status.FromError and status.Code
// work, and a handler can return e.
func (e *Error) GRPCStatus() *status.Status {
	st := status.New(e.Reason.Code(), e.Text())
	if st.Code() == codes.OK {
		return st
	}
	info := &errdetails.ErrorInfo{Reason: e.Reason.wire(), Domain: Domain, Metadata: map[string]string{}}
	if len(e.Path) > 0 {
		info.Metadata[pathKey] = e.Path.String()
	}
	if e.Param != "" {
		info.Metadata[paramKey] = strings.ToValidUTF8(e.Param, string(utf8.RuneError))
	}
	if code := CleanCode(e.Code); code != "" {
		info.Metadata[codeKey] = code
	}
	if e.Repeated {
		info.Metadata[repeatedKey] = "true"
	}
	with, err := st.WithDetails(info)
	if err == nil && e.RetryAfter > 0 {
		with, err = with.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	if err != nil {
		return st // a status without details is better than none
	}
	return with
}

// FromGRPC reads the error of a gRPC call to the peer named hop. It restores exactly what
// GRPCStatus wrote. A status from any other server gets the reason that its code suggests, and hop
// as its origin. FromGRPC returns nil if err is nil or io.EOF.
func FromGRPC(hop string, err error) *Error {
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	e, ours := fromStatus(st)
	e.Cause = err
	if len(e.Path) == 0 {
		e.Path = NewPath(hop)
	}
	if !ours && e.Reason == PeerLost { // the text of libraries has addresses, which belong in the log
		e.Message = "the connection to " + hop + " broke, or could not be made"
	}
	return e
}

// FromHop reports whether err is a gRPC status that GRPCStatus made on another hop. It is false for
// an *Error, because this process has made that.
func FromHop(err error) bool {
	if _, local := errors.AsType[*Error](err); local {
		return false
	}
	st, ok := status.FromError(err)
	if !ok {
		return false
	}
	_, ours := fromStatus(st)
	return ours
}

// fromStatus reads a gRPC status, and reports whether GRPCStatus made it.
func fromStatus(st *status.Status) (e *Error, ours bool) {
	e = &Error{Message: st.Message()}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() != Domain {
				continue
			}
			ours = true
			if e.Reason = ParseReason(d.GetReason()); e.Reason == Completed { // a failure has not completed
				e.Reason = Unspecified
			}
			if path := d.GetMetadata()[pathKey]; path != "" {
				e.Path = ParsePath(path)
			}
			e.Param = d.GetMetadata()[paramKey]
			e.Code = CleanCode(d.GetMetadata()[codeKey])
			e.Repeated = d.GetMetadata()[repeatedKey] != ""
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	if e.Reason == Unspecified {
		e.Reason = fromCode(st.Code())
		if e.Reason == Overloaded && tooLong(e.Message) {
			e.Reason = Internal // another attempt would end in the same way
		}
		if ours && e.Reason == PeerLost { // a hop of a later release has said why
			e.Reason = Unavailable
		}
	}
	return e, ours
}

// tooLong reports whether a RESOURCE_EXHAUSTED is about the length of a message, as grpc-go and
// package rpc report it.
func tooLong(text string) bool {
	return strings.Contains(text, "larger than max") || strings.HasPrefix(text, "received a message of ")
}

func fromCode(code codes.Code) Reason {
	switch code {
	case codes.Canceled:
		return PeerReset
	case codes.DeadlineExceeded:
		return Deadline
	case codes.Unavailable:
		return PeerLost
	case codes.ResourceExhausted:
		return Overloaded
	case codes.InvalidArgument, codes.OutOfRange, codes.FailedPrecondition, codes.AlreadyExists, codes.Unimplemented:
		return Invalid
	case codes.NotFound:
		return NotFound
	case codes.Unauthenticated:
		return Unauthenticated
	case codes.PermissionDenied:
		return Forbidden
	default:
		return Internal
	}
}

// FromContext returns why ctx is done, or nil if it is not. A cause that is an *Error is returned
// as it is.
func FromContext(ctx context.Context) *Error {
	if ctx.Err() == nil {
		return nil
	}
	return As(context.Cause(ctx))
}
