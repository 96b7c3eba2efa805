package ttrpc

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
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

// CodeBase is the difference between the number of a Reason and the code of its exception: REASON_DRAINING, which is 7, has the
// code 13007. Kitex's own codes are 12001 to 12015.
const CodeBase = 13000

// Trailers of an ending, beside those of packages streamerr and wire.
const (
	statusTrailer  = "grpc-status-details-bin" // a google.rpc.Status, in base64, as gRPC has it
	bizStatus      = "biz-status"              // Kitex's names for the parts of a kerrors.BizStatusErrorIface
	bizMessage     = "biz-message"
	bizExtra       = "biz-extra"
	extraReason    = "reason" // keys of the extra of a BizStatusErrorIface
	extraPath      = "path"
	extraParam     = "param"
	extraCode      = "code"
	extraRetryMS   = "retry_after_ms"
	timeoutHeader  = "whence-timeout-ms" // what is left of the caller's deadline, in milliseconds
	maxTimeoutInMS = int64(1000 * time.Hour / time.Millisecond)
)

// exception returns the exception that ends a stream with err, and the trailers that tell the same to programs.
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

// bizError returns e as Kitex's error of a business.
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

// fault matches the text of a ttstream.Exception, which has no other way to its cancel path.
var fault = regexp.MustCompile(`(?s)^\[ttstream error, code=-?\d+\] (?:\[(?:client|server)-side stream\] )?(?:\[canceled path: ([^\]]*)\] )?(.*)$`)

// A typed error has a code, as those of Kitex and Thrift have.
type typed interface {
	error
	TypeId() int32 // as Kitex has it
}

// Codes of package ttstream.
const (
	illegalFrame   = 12004
	transportEnded = 12006
	bizCancel      = 12007
	bizCancelCause = 12008
	internalCancel = 12011
	connClosed     = 12013
	recvTimeout    = 12014
	streamTimeout  = 12015
)

// refusedFrame begins the error for a frame that is not read.
const refusedFrame = "ttrpc: "

// canceled returns why a caller ended a stream, from the error of the stream's context, or nil if that is no error of Kitex. The
// path is the caller's ttscp, origin first; it is nil if the error has none, as that of a connection has not.
func canceled(err error) *streamerr.Error {
	ex, ok := errors.AsType[typed](err)
	if !ok {
		return nil
	}
	parts := fault.FindStringSubmatch(ex.Error())
	if parts == nil {
		return nil
	}
	text := parts[2]
	e := &streamerr.Error{Reason: streamerr.PeerReset, Cause: err}
	if parts[1] != "" {
		e.Path = streamerr.NewPath(strings.Split(parts[1], " -> ")...)
	}
	switch ex.TypeId() {
	case bizCancel:
		e.Message = "the caller canceled the stream without a cause"
	case bizCancelCause, internalCancel:
		said(e, text)
	case recvTimeout, streamTimeout:
		e.Reason, e.Message = streamerr.Deadline, "the caller's time for the stream has passed: "+text
	case connClosed, transportEnded, illegalFrame:
		e.Reason, e.Message = streamerr.PeerLost, "the caller's connection broke"
		_, frame, refused := strings.Cut(text, refusedFrame) // Kitex hides the errors themselves
		switch {
		case refused:
			e.Reason, e.Message = streamerr.Invalid, "a message of the caller could not be read: "+frame
		case strings.Contains(text, "connection write timeout"): // as netpoll has it
			e.Reason, e.Message = streamerr.SlowReader, "the caller does not read from its connection"
		}
	default:
		e.Message = "the stream was reset with code " + strconv.Itoa(int(ex.TypeId())) + ": " + text
	}
	return e
}

// foreign is the first hop in the ttscp of a stream whose context did not come from TTHeader Streaming, and had a cause.
const foreign = "non-ttstream path"

// said takes a cause from its text: "REASON: message [path]", as causeError has it, or any other text, which is the caller's stop.
func said(e *streamerr.Error, text string) {
	e.Reason, e.Message = streamerr.UserStop, text
	word, rest, _ := strings.Cut(text, ": ")
	reason := streamerr.ParseReason(word)
	if word != strings.ToUpper(word) || reason == streamerr.Unspecified || reason == streamerr.Completed {
		return
	}
	e.Reason, e.Message = reason, rest
	hops := e.Path
	if len(hops) > 0 && hops[0] == foreign { // it is the context of WithCause
		hops = hops[1:]
	}
	if at := strings.LastIndex(rest, " ["); at >= 0 && strings.HasSuffix(rest, "]") {
		e.Message = rest[:at]
		hops = append(streamerr.ParsePath(rest[at+2:len(rest)-1]), hops...)
	}
	e.Path = streamerr.NewPath(hops...)
}

// WithCause returns ctx for a call of any Kitex client over TTHeader Streaming: the callee hears the cause of a cancel. Kitex sends
// the text of ctx.Err and never asks for context.Cause, so that the cause of WithCancelCause is lost otherwise. A cause that is a
// *streamerr.Error keeps its reason and its path; any other is a USER_STOP.
//
// A program that does without this package returns a text such as "OPERATOR_STOP: the page was closed [pager > shop]" from the
// Err of its context.
func WithCause(ctx context.Context) context.Context { return causeContext{ctx} }

type causeContext struct{ context.Context } //nolint:containedctx // it is one

// Err implements context.Context.
func (c causeContext) Err() error {
	err, cause := c.Context.Err(), context.Cause(c.Context)
	if !errors.Is(err, context.Canceled) || errors.Is(cause, context.Canceled) {
		return err
	}
	e, ok := errors.AsType[*streamerr.Error](cause)
	if !ok {
		e = &streamerr.Error{Reason: streamerr.UserStop, Cause: cause}
	}
	text := strings.ToUpper(e.Reason.String()) + ": " + e.Text()
	if len(e.Path) > 0 {
		text += " [" + e.Path.String() + "]"
	}
	return &causeError{text, cause}
}

// A causeError is a cause with the text that crosses the wire.
type causeError struct {
	text  string
	cause error
}

func (e *causeError) Error() string   { return e.text }
func (e *causeError) Unwrap() []error { return []error{e.cause, context.Canceled} }

// fromTrailer returns the status in the trailers of a stream, or nil if they have none.
func fromTrailer(md metadata.MD) *status.Status {
	values := md.Get(statusTrailer)
	if len(values) == 0 {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(values[0])
	var p statuspb.Status
	if err != nil || proto.Unmarshal(b, &p) != nil || codes.Code(p.GetCode()) == codes.OK { //nolint:gosec // a code of any size
		return nil
	}
	return status.FromProto(&p)
}

// fromKitex returns an error of a Kitex client or server as a status of gRPC.
func fromKitex(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch e := canceled(err); {
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
