package kitexstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/codes"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/status"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/whence-dev/whence/contrib/kitexstream"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// An exception is an error with the text and the code of an exception of TTHeader Streaming.
type exception struct {
	code  int32
	path  string // the names of services, separated by " -> "
	text  string
	cause error
}

func (e exception) Error() string {
	path := ""
	if e.path != "" {
		path = "[canceled path: " + e.path + "] "
	}
	return fmt.Sprintf("[ttstream error, code=%d] [server-side stream] %s%s", e.code, path, e.text)
}

func (e exception) Unwrap() error { return e.cause }
func (e exception) TypeId() int32 { return e.code } //nolint:revive // Kitex's name

// A googleStatus is a status of grpc-go, and a googleError the error of one.
type (
	googleStatus struct{ proto *spb.Status }
	googleError  struct{ status *googleStatus }
)

func (s *googleStatus) Proto() *spb.Status          { return s.proto }
func (e *googleError) Error() string                { return e.status.proto.GetMessage() }
func (e *googleError) GRPCStatus() *googleStatus    { return e.status }
func (e *googleError) Is(target error) (equal bool) { return e == target }

func withDetails(t *testing.T, code codes.Code, info *errdetails.ErrorInfo) error {
	t.Helper()
	st, err := status.New(code, "refused").WithDetails(info)
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

// TestErrorsOfCalls has an error for each row of the table, and the variants in its notes.
func TestErrorsOfCalls(t *testing.T) {
	info := &errdetails.ErrorInfo{Reason: "OVERLOADED", Domain: "whence", Metadata: map[string]string{"path": "leaf > shop"}}
	later := &errdetails.ErrorInfo{Reason: "TIDE", Domain: "whence", Metadata: map[string]string{"path": "leaf > shop"}}
	foreign := &errdetails.ErrorInfo{Reason: "OVERLOADED", Domain: "example.com"}
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, "completed [shop]"},
		{io.EOF, "completed [shop]"},
		{&streamerr.Error{Reason: streamerr.SlowReader, Path: streamerr.NewPath("leaf")}, "slow_reader [leaf]"},
		{fmt.Errorf("wrapped: %w", streamerr.New(streamerr.UserStop, "enough")), "user_stop []"},
		{kerrors.NewGRPCBizStatusError(404, "no such symbol"), "completed [shop]"},

		{exception{code: 12001, text: "failed"}, "internal [shop]"},
		{exception{code: 12002, text: "header"}, "internal [shop]"},
		{exception{code: 12003, text: "biz"}, "internal [shop]"},
		{exception{code: 12004, text: "frame"}, "internal [shop]"},
		{exception{code: 12004, text: "EOF", cause: io.EOF}, "peer_lost [shop]"},
		{exception{code: 12005, text: "closed"}, "internal [shop]"},
		{exception{code: 12006, text: "transport is closing"}, "peer_lost [shop]"},
		{exception{code: 12007, path: "user -> shop", text: "user code"}, "peer_reset [user > shop]"},
		{exception{code: 12008, path: "shop", text: "enough"}, "peer_reset [shop]"},
		{exception{code: 12009, text: "by the callee"}, "peer_reset [shop]"},
		{exception{code: 12010, text: "by the caller"}, "peer_reset [shop]"},
		{exception{code: 12011, path: "shop", text: "OVERLOADED: full [leaf > mid]"}, "overloaded [leaf > mid > shop]"},
		{exception{code: 12011, path: "non-ttstream path -> shop", text: "CLIENT_GONE: left [user]"}, "client_gone [user > shop]"},
		{exception{code: 12011, path: "shop", text: "COMPLETED: no cancel"}, "peer_reset [shop]"},
		{exception{code: 12012, text: "returned"}, "peer_reset [shop]"},
		{exception{code: 12013, text: "canceled by connection closed"}, "peer_lost [shop]"},
		{exception{code: 12013, text: "connection write timeout"}, "slow_reader [shop]"},
		{exception{code: 12014, text: "Recv timeout"}, "deadline []"},
		{exception{code: 12015, text: "stream timeout"}, "deadline []"},
		{exception{code: 12099, path: "shop", text: "new"}, "peer_reset [shop]"},

		{kerrors.ErrPanic.WithCause(errors.New("no")), "internal []"},
		{status.Err(codes.Unavailable, "graceful shutdown"), "draining [shop]"},
		{kerrors.ErrBiz.WithCause(status.Err(codes.NotFound, "no such symbol")), "not_found [shop]"},

		{withDetails(t, codes.ResourceExhausted, info), "overloaded [leaf > shop]"},
		{withDetails(t, codes.Unavailable, later), "unavailable [leaf > shop]"},
		{withDetails(t, codes.NotFound, foreign), "not_found [shop]"},
		{status.Err(codes.Canceled, "RSTStream Frame received with error code: CANCEL"), "peer_reset [shop]"},
		{status.Err(codes.DeadlineExceeded, "late"), "deadline []"},
		{status.Err(17, "Recv timed out"), "deadline []"},
		{status.Err(codes.Unavailable, "down"), "peer_lost [shop]"},
		{status.Err(codes.ResourceExhausted, "full"), "overloaded [shop]"},
		{status.Err(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 4)"), "internal [shop]"},
		{status.Err(codes.InvalidArgument, "x"), "invalid [shop]"},
		{status.Err(codes.OutOfRange, "x"), "invalid [shop]"},
		{status.Err(codes.FailedPrecondition, "x"), "invalid [shop]"},
		{status.Err(codes.AlreadyExists, "x"), "invalid [shop]"},
		{status.Err(codes.Unimplemented, "x"), "invalid [shop]"},
		{status.Err(codes.NotFound, "x"), "not_found [shop]"},
		{status.Err(codes.Unauthenticated, "x"), "unauthenticated [shop]"},
		{status.Err(codes.PermissionDenied, "x"), "forbidden [shop]"},
		{status.Err(codes.DataLoss, "x"), "internal [shop]"},
		{fmt.Errorf("call: %w", &googleError{&googleStatus{&spb.Status{Code: 8, Message: "full"}}}), "overloaded [shop]"},

		{grpc.ConnectionError{Desc: "broken"}, "peer_lost [shop]"},
		{kerrors.ErrGetConnection.WithCause(errors.New("refused")), "peer_lost [shop]"},
		{kerrors.ErrRemoteOrNetwork, "peer_lost [shop]"},
		{kerrors.ErrNoMoreInstance, "peer_lost [shop]"},
		{kerrors.ErrServiceDiscovery, "peer_lost [shop]"},
		{kerrors.ErrLoadbalance, "peer_lost [shop]"},
		{kerrors.ErrServiceCircuitBreak, "unavailable []"},
		{kerrors.ErrQPSOverLimit, "overloaded []"},
		{kerrors.ErrACL, "forbidden []"},
		{kerrors.ErrRPCTimeout, "deadline []"},

		{context.DeadlineExceeded, "deadline []"},
		{context.Canceled, "peer_reset []"},
		{errors.New("a bug"), "internal [shop]"},
	} {
		e := kitexstream.Classify("shop", test.err)
		if got := fmt.Sprintf("%s [%s]", e.Reason.String(), e.Path); got != test.want {
			t.Errorf("%v is %s, not %s", test.err, got, test.want)
		}
	}
}

// TestAnErrorOfThisHopsHandler: a status that a handler returns is its own.
func TestAnErrorOfThisHopsHandler(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{status.Err(codes.Unavailable, "down"), "unavailable []"},
		{status.Err(codes.ResourceExhausted, "full"), "overloaded []"},
		{errors.New("a bug"), "internal []"},
	} {
		if e := kitexstream.Classify("", test.err); fmt.Sprintf("%s [%s]", e.Reason.String(), e.Path) != test.want {
			t.Errorf("%v is %v, not %s", test.err, e, test.want)
		}
	}
}

// TestTheTableIsInTheDocs compares the rows.
func TestTheTableIsInTheDocs(t *testing.T) {
	const page = "../../docs/reference/kitexstream.md"
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, r := range kitexstream.Table() {
		reason := "`" + r.Reason.String() + "`"
		if r.Reason == streamerr.Unspecified {
			reason = r.Note
			r.Note = ""
		}
		if r.Note != "" {
			r.Note = "; " + r.Note
		}
		fmt.Fprintf(&rows, "| %s | %s%s | %s |\n", r.Error, reason, r.Note, r.Origin)
	}
	if !strings.Contains(string(b), rows.String()) {
		t.Errorf("%s lacks the rows\n%s", page, rows.String())
	}
}
