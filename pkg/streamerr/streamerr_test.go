package streamerr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestEveryReasonHasItsForms(t *testing.T) {
	for n, name := range streamv1.Reason_name {
		r := streamerr.Reason(n)
		if want := strings.ToLower(strings.TrimPrefix(name, "REASON_")); r.String() != want {
			t.Errorf("%d is %q, want %q", n, r, want)
		}
		if got := streamerr.ParseReason(r.String()); got != r {
			t.Errorf("%s parses as %s", r, got)
		}
		if r == streamerr.Unspecified {
			continue
		}
		if r != streamerr.Completed && (r.Code() == codes.OK || r.HTTPStatus() < 400 || r.Type() == "") {
			t.Errorf("%s has code %s, status %d, type %q", r, r.Code(), r.HTTPStatus(), r.Type())
		}
	}
	if streamerr.Completed.Code() != codes.OK || streamerr.Completed.HTTPStatus() != http.StatusOK {
		t.Error("Completed is not OK")
	}
}

func TestReasonIsTheTargetOfErrorsIs(t *testing.T) {
	err := fmt.Errorf("outer: %w", streamerr.Via("hop", &streamerr.Error{Reason: streamerr.ClientGone, Cause: io.ErrUnexpectedEOF}))
	if !errors.Is(err, streamerr.ClientGone) || !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, streamerr.Deadline) {
		t.Fatal(err)
	}
}

func TestViaCopiesAndClassifies(t *testing.T) {
	origin := &streamerr.Error{Reason: streamerr.EngineFailed, Message: "broken"}
	a := streamerr.Via("worker", origin)
	b := streamerr.Via("chat", a)
	c := streamerr.Via("other", a)
	if b.Path.String() != "worker > chat" || c.Path.String() != "worker > other" || a.Path.String() != "worker" || len(origin.Path) != 0 {
		t.Fatal(b.Path, c.Path, a.Path, origin.Path)
	}
	if streamerr.Via("hop", nil) != nil {
		t.Error("Via made an error of nil")
	}
	for err, want := range map[error]streamerr.Reason{
		io.ErrUnexpectedEOF:                                        streamerr.Internal,
		context.DeadlineExceeded:                                   streamerr.Deadline,
		fmt.Errorf("x: %w", streamerr.Overloaded):                  streamerr.Overloaded,
		fmt.Errorf("x: %w", context.DeadlineExceeded):              streamerr.Deadline,
		fmt.Errorf("x: %w", context.Canceled):                      streamerr.PeerReset,
		status.Error(codes.Canceled, "context canceled"):           streamerr.PeerReset,
		status.Error(codes.DeadlineExceeded, "too late"):           streamerr.Deadline,
		status.Error(codes.Unavailable, "whose?"):                  streamerr.Internal,
		fmt.Errorf("x: %w", streamerr.New(streamerr.Invalid, "y")): streamerr.Invalid,
	} {
		if got := streamerr.Via("hop", err).Reason; got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
}

func TestPathIsBoundedAndClean(t *testing.T) {
	p := streamerr.Path{}
	for i := range 100 {
		p = p.Append(fmt.Sprintf("hop-%d", i))
	}
	if len(p) != 32 || p.Origin() != "hop-0" || p[31] != "hop-99" {
		t.Error(len(p), p)
	}
	if got := streamerr.NewPath(" a > b\n", "", "\x00", strings.Repeat("x", 500)); len(got) != 2 || got[0] != "a  b" || len(got[1]) != 128 {
		t.Errorf("%q", got)
	}
}

func roundTrip(t *testing.T, e *streamerr.Error) {
	t.Helper()
	got := streamerr.FromGRPC("peer", e.GRPCStatus().Err())
	if got == nil {
		t.Fatalf("%v came back as nil", e)
	}
	got.Cause = nil
	want := *e
	want.Cause = nil
	want.Message = e.Text()
	if len(want.Path) == 0 {
		want.Path = streamerr.NewPath("peer")
	}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %#v\nwant %#v", *got, want)
	}
}

func TestGRPCRoundTripIsExact(t *testing.T) {
	for n := range streamv1.Reason_name {
		if r := streamerr.Reason(n); r != streamerr.Unspecified && r != streamerr.Completed {
			roundTrip(t, &streamerr.Error{
				Reason: r, Path: streamerr.NewPath("client", "api-service"), Message: "größer > 1\n", Param: "messages[0].role", Code: "context_length_exceeded", RetryAfter: 1500 * time.Millisecond,
			})
			roundTrip(t, &streamerr.Error{Reason: r, Cause: io.ErrClosedPipe})
		}
	}
}

func TestReasonOfANewerPeerSurvives(t *testing.T) {
	roundTrip(t, &streamerr.Error{Reason: 57, Path: streamerr.NewPath("new-hop"), Message: "what is this"})
	if r := streamerr.Reason(57); r.String() != "reason_57" || r.Code() != codes.Internal {
		t.Error(r, r.Code())
	}
}

// A hop of a later release may name a reason that this release has no number for. It says that the
// hop is there, so its connection is not lost.
func TestUnknownNameOfAReasonGetsTheReasonOfTheCode(t *testing.T) {
	for code, want := range map[codes.Code]streamerr.Reason{codes.Unavailable: streamerr.Unavailable, codes.NotFound: streamerr.NotFound} {
		st, err := status.New(code, "the GPU was taken away").WithDetails(&errdetails.ErrorInfo{Domain: streamerr.Domain, Reason: "PREEMPTED", Metadata: map[string]string{"path": "engine > hop"}})
		if err != nil {
			t.Fatal(err)
		}
		if e := streamerr.FromGRPC("hop", st.Err()); e.Reason != want || e.Path.String() != "engine > hop" || e.Message != "the GPU was taken away" {
			t.Errorf("%s: %v", code, e)
		}
	}
}

func TestForeignStatusGetsTheReasonOfItsCode(t *testing.T) {
	for code, want := range map[codes.Code]streamerr.Reason{
		codes.Canceled: streamerr.PeerReset, codes.DeadlineExceeded: streamerr.Deadline, codes.Unavailable: streamerr.PeerLost,
		codes.ResourceExhausted: streamerr.Overloaded, codes.InvalidArgument: streamerr.Invalid, codes.NotFound: streamerr.NotFound,
		codes.Unauthenticated: streamerr.Unauthenticated, codes.PermissionDenied: streamerr.Forbidden, codes.Unknown: streamerr.Internal,
	} {
		e := streamerr.FromGRPC("peer", status.Error(code, "says so"))
		text := "says so"
		if code == codes.Unavailable { // the text of libraries has addresses
			text = "the connection to peer broke, or could not be made"
		}
		if e.Reason != want || e.Path.String() != "peer" || e.Message != text {
			t.Errorf("%s: %v", code, e)
		}
	}
	if streamerr.FromGRPC("peer", nil) != nil || streamerr.FromGRPC("peer", io.EOF) != nil {
		t.Error("FromGRPC made an error of a clean end")
	}
}

// TestMessageThatIsTooLongIsNoOverload: a client that waits and tries again would fail in the same
// way. The texts are those of grpc-go and of this repository's transports.
func TestMessageThatIsTooLongIsNoOverload(t *testing.T) {
	for _, text := range []string{
		"grpc: received message larger than max (5000000 vs. 4194304)",
		"grpc: received message after decompression larger than max 4194304",
		"trying to send message larger than max (5000000 vs. 4194304)",
		"received a message of 5000000 bytes; at most 4194304 are allowed",
	} {
		if e := streamerr.FromGRPC("peer", status.Error(codes.ResourceExhausted, text)); e.Reason != streamerr.Internal || e.Message != text {
			t.Error(e)
		}
	}
	full := streamerr.New(streamerr.Overloaded, "the prompt is larger than max_batch_tokens: later").GRPCStatus().Err()
	if e := streamerr.FromGRPC("peer", full); e.Reason != streamerr.Overloaded {
		t.Error(e)
	}
}

func TestLongMessageDoesNotBreakTheStatus(t *testing.T) {
	e := &streamerr.Error{Reason: streamerr.Invalid, Message: strings.Repeat("ü", 5000)}
	got := streamerr.FromGRPC("peer", e.GRPCStatus().Err())
	if got.Reason != streamerr.Invalid || len(got.Message) > 2100 || !utf8.ValidString(got.Message) {
		t.Error(got.Reason, len(got.Message))
	}
}

func FuzzGRPCRoundTrip(f *testing.F) {
	f.Add(int32(2), "client", "api-service", "gone", "param", int64(0))
	f.Add(int32(99), "a>b", "\xff", "\x00", "ü", int64(time.Second))
	f.Fuzz(func(t *testing.T, reason int32, hop1, hop2, message, param string, retry int64) {
		if streamerr.Reason(reason).Code() == codes.OK || reason <= 0 || !utf8.ValidString(message) || !utf8.ValidString(param) || message == "" || len(message) > 2048 {
			t.Skip()
		}
		roundTrip(t, &streamerr.Error{
			Reason: streamerr.Reason(reason), Path: streamerr.NewPath(hop1, hop2), Message: message, Param: param, RetryAfter: time.Duration(max(retry, 0)),
		})
	})
}

// TestReasonNamesAndPathsAllocateOnce: every ending on every hop has a name and a path.
func TestReasonNamesAndPathsAllocateOnce(t *testing.T) {
	path, words := streamerr.NewPath("client", "api-service"), 0
	if n := testing.AllocsPerRun(100, func() {
		words += len(streamerr.ParseReason(streamerr.ClientGone.String()).String())
		path = path[:2].Append("chat-service")
	}); n > 1 || len(path) != 3 || words == 0 {
		t.Errorf("%v allocations, %v", n, path)
	}
}

func FuzzParsePath(f *testing.F) {
	f.Add("client > api-service")
	f.Fuzz(func(t *testing.T, s string) {
		p := streamerr.ParsePath(s)
		if again := streamerr.ParsePath(p.String()); !reflect.DeepEqual(p, again) {
			t.Errorf("%q then %q", p, again)
		}
	})
}

func TestJSONIsTheOpenAIErrorObject(t *testing.T) {
	e := streamerr.Via("api-service", streamerr.InvalidParam("temperature", "temperature is %d", 3))
	want := `{"error":{"message":"temperature is 3","type":"invalid_request_error","param":"temperature","code":"invalid_value","whence":{"reason":"invalid","origin":"api-service","path":["api-service"]}}}`
	if got := string(e.JSON()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	back, ok := streamerr.ParseJSON(e.JSON())
	if !ok || !reflect.DeepEqual(back, e.WithCode("invalid_value")) {
		t.Errorf("%#v", back)
	}
	if _, ok := streamerr.ParseJSON([]byte(`{"error":"text"}`)); ok {
		t.Error("ParseJSON accepted a body without an error object")
	}
}

func TestCodeOfAServerReachesTheErrorObject(t *testing.T) {
	e := &streamerr.Error{Reason: streamerr.Invalid, Path: streamerr.NewPath("engine"), Message: "too long", Code: "context_length_exceeded"}
	far := streamerr.Via("api-service", streamerr.FromGRPC("peer", streamerr.Via("llm-worker", e).GRPCStatus().Err()))
	want := `{"error":{"message":"too long","type":"invalid_request_error","param":null,"code":"context_length_exceeded","whence":{"reason":"invalid","origin":"engine","path":["engine","llm-worker","api-service"]}}}`
	if got := string(far.JSON()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	far.Cause = nil
	if back, ok := streamerr.ParseJSON(far.JSON()); !ok || !reflect.DeepEqual(back, far) {
		t.Errorf("%#v", back)
	}
	for body, want := range map[string]streamerr.Error{ // error objects of other servers
		`{"error":{"message":"x","code":"insufficient_quota"}}`: {Message: "x", Code: "insufficient_quota"},
		`{"error":{"message":"x","code":400}}`:                  {Message: "x"},
	} {
		if got, ok := streamerr.ParseJSON([]byte(body)); !ok || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %#v", body, got)
		}
	}
}

func TestCodeThatIsNoIdentifierIsDropped(t *testing.T) {
	for code, good := range map[string]bool{
		"context_length_exceeded": true, "rate-limit.v2": true, "E1": true, "": false, "400": false, "-1": false, "4.5": false, "a b": false, "a\n": false, "ü": false,
		`"`: false, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false,
	} {
		e := &streamerr.Error{Reason: streamerr.Invalid, Message: "m", Code: code}
		crossed, inJSON := streamerr.FromGRPC("peer", e.GRPCStatus().Err()).Code, strings.Contains(string(e.JSON()), `"code":null`)
		if good && (crossed != code || inJSON) || !good && (crossed != "" || !inJSON) {
			t.Errorf("%q came back as %q, and in %s", code, crossed, e.JSON())
		}
	}
}

func TestLogValueHasTheAttributesOfTheLog(t *testing.T) {
	got := streamerr.Via("chat", streamerr.InvalidParam("stop", "bad")).LogValue().String()
	for _, want := range []string{"reason=invalid", "origin=chat", "path=chat", "message=bad", "param=stop"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
}

func BenchmarkGRPCStatus(b *testing.B) {
	e := &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client", "api-service"), Message: "gone"}
	b.ReportAllocs()
	for b.Loop() {
		_ = e.GRPCStatus()
	}
}

// TestEndingChangesItsMessage: Cross adds the hop to the message, also to a message without a path.
func TestEndingChangesItsMessage(t *testing.T) {
	end := &streamv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"engine"}}
	e := streamerr.EndingOf(end)
	e.Cross("llm-worker/0")
	e.Cross("chat-service")
	const path = "engine > llm-worker/0 > chat-service"
	if got := streamerr.NewPath(end.GetPath()...).String(); e.Reason != streamerr.Completed || got != path || e.Hops().String() != path {
		t.Error(e.Reason, got, e.Hops())
	}
	bare := new(streamerr.Ending)
	bare.Cross("hop")
	if bare.Hops().String() != "hop" || streamerr.EndingOf(nil) != nil || streamerr.EndingOf(nil).Hops() != nil {
		t.Error(bare.Hops())
	}
}

// TestSizesOfALongPromptCrossEveryHop: the edge may have replaced the name of the field.
func TestSizesOfALongPromptCrossEveryHop(t *testing.T) {
	want := streamerr.Overflow{Tokens: 5000, Limit: 4096}
	long := streamerr.Via("chat-service", streamerr.TooLong("messages", want.Tokens, want.Limit))
	renamed := *long
	renamed.Message = strings.ReplaceAll(long.Message, "messages", "input")
	parsed, _ := streamerr.ParseJSON(long.JSON())
	for name, e := range map[string]*streamerr.Error{"gRPC": streamerr.FromGRPC("chat-service", long.GRPCStatus().Err()), "JSON": parsed, "another field": &renamed} {
		if got, ok := e.Overflow(); !ok || got != want {
			t.Errorf("%s: %v", name, e)
		}
	}
	if _, ok := streamerr.New(streamerr.Internal, "%s", long.Message).Overflow(); ok {
		t.Error("an error without the code has sizes")
	}
}
