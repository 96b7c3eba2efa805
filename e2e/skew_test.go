package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A relayWorker is a worker that passes everything on to another one. alter returns the messages
// that it sends instead of one of the other worker, or an error that ends the stream.
type relayWorker struct {
	workerv1.UnimplementedWorkerServer
	real  workerv1.WorkerClient
	info  func(info *llmv1.WorkerInfo)
	alter func(out *workerv1.GenerateResponse) ([]*workerv1.GenerateResponse, error)
}

// behind starts chat-service and api-service in front of a relay to the worker of w.
func (l *relayWorker) behind(t *testing.T, w *whence) *whence {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.real = w.client
	s := grpc.NewServer()
	workerv1.RegisterWorkerServer(s, l)
	go s.Serve(ln) // until Stop
	t.Cleanup(s.Stop)
	front := above(t, "", "--worker", ln.Addr().String(), "--migrations", "0")
	front.worker = w.worker
	front.connected(t)
	return front
}

// later adds a field that no release has yet.
func later[M proto.Message](m M) M {
	field := protowire.AppendString(protowire.AppendTag(nil, 4000, protowire.BytesType), "of a later release")
	m.ProtoReflect().SetUnknown(append(m.ProtoReflect().GetUnknown(), field...))
	return m
}

// Info implements workerv1.WorkerServer.
func (l *relayWorker) Info(ctx context.Context, req *workerv1.InfoRequest) (*llmv1.WorkerInfo, error) {
	info, err := l.real.Info(ctx, req)
	if err == nil {
		l.info(info)
	}
	return info, err
}

// Generate implements workerv1.WorkerServer.
func (l *relayWorker) Generate(caller grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	st, err := l.real.Generate(caller.Context())
	if err != nil {
		return err
	}
	go func() { // ends with the call
		for {
			req, err := caller.Recv()
			if err != nil {
				_ = st.CloseSend()
				return
			}
			if st.Send(req) != nil {
				return
			}
		}
	}()
	for {
		out, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		all, err := l.alter(out)
		for _, out := range all {
			if err := caller.Send(out); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// TestWorkerOfALaterRelease: a worker's messages have fields that this release does not know, and it
// sends a kind of message that this release does not know. This release ignores the fields and messages that it does not know. An
// ending that it does not know is an error for the client, never a success.
func TestWorkerOfALaterRelease(t *testing.T) {
	t.Parallel()
	real := run(t, separate, flags{})
	want := real.answer(t, greedy(short))
	for name, c := range map[string]struct {
		end    func(end *llmv1.End) error
		reason string // of the ending; "" for a completed answer
	}{
		"the same ending": {end: func(*llmv1.End) error { return nil }},
		"an unknown reason": {reason: "reason_99", end: func(end *llmv1.End) error {
			end.Reason = 99
			return nil
		}},
		"no reason": {reason: "internal", end: func(end *llmv1.End) error {
			end.Reason = 0
			return nil
		}},
		"an unknown finish": {reason: "", end: func(end *llmv1.End) error {
			end.Finish = 99
			return nil
		}},
		"an error with an unknown reason": {reason: "unavailable", end: func(*llmv1.End) error {
			s, err := status.New(codes.Unavailable, "the GPU was taken away").WithDetails(later(&errdetails.ErrorInfo{Domain: streamerr.Domain, Reason: "PREEMPTED"}))
			return errors.Join(err, s.Err())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			relay := &relayWorker{info: func(info *llmv1.WorkerInfo) { later(info) }}
			relay.alter = func(out *workerv1.GenerateResponse) ([]*workerv1.GenerateResponse, error) {
				all := []*workerv1.GenerateResponse{later(out)}
				if out.GetTokens() != nil {
					all = append(all, later(&workerv1.GenerateResponse{})) // of a kind that this release does not know
				}
				if out.GetEnd() == nil {
					return all, nil
				}
				if err := c.end(out.GetEnd()); err != nil {
					return nil, err
				}
				return all, nil
			}
			w := relay.behind(t, real)
			e := w.open(t, greedy(short)).rest(t)
			if got := e.text.String(); got != want {
				t.Errorf("the text is %q", got)
			}
			if c.reason == "" && (e.err != nil || !e.done) || c.reason != "" && (e.err.reason() != c.reason || e.done) {
				t.Errorf("error %+v, finish_reason %q, [DONE] %t", e.err, e.finish, e.done)
			}
		})
	}
}

// TestCallerOfALaterRelease: a request with unknown fields, and a control message of an unknown
// kind, are served as if they had none.
func TestCallerOfALaterRelease(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{})
	st, err := chatv1.NewChatClient(dialGRPC(t, w.chat)).Generate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*chatv1.GenerateRequest{
		{Message: &chatv1.GenerateRequest_Chat{Chat: later(&chatv1.ChatRequest{
			Model: model, Messages: []*chatv1.Message{later(&chatv1.Message{Role: "user", Content: "What is 2 + 3?"})}, Sampling: later(&llmv1.Sampling{Temperature: new(float32(0))}),
		})}},
		later(&chatv1.GenerateRequest{}),
	} {
		if err := st.Send(later(m)); err != nil {
			t.Fatal(err)
		}
	}
	text := ""
	for {
		out, err := st.Recv()
		if err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		text += out.GetDelta().GetText()
		if end := out.GetEnd(); end != nil {
			if end.GetReason() != streamv1.Reason_REASON_COMPLETED || text != "2 + 3 = 5." {
				t.Errorf("%v after %q", end, text)
			}
			return
		}
	}
}
