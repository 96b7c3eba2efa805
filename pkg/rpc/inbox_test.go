package rpc_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A sequence is a request of several messages.
type sequence struct {
	first *workerv1.TokenRequest
	later *stream.Inbox[*workerv1.GenerateRequest]
}

// sequences is Worker with requests that are sequences of at most five unread messages.
var sequences = &rpc.Method[*sequence, workerv1.GenerateRequest, workerv1.GenerateResponse]{
	Opened: func(in *workerv1.GenerateRequest) (*sequence, bool) {
		return &sequence{in.GetTokens(), stream.NewInbox[*workerv1.GenerateRequest](5, 1<<20)}, in.GetTokens() != nil
	},
	Stopped: methods.Worker.Stopped,
	Inbox:   func(s *sequence) *stream.Inbox[*workerv1.GenerateRequest] { return s.later },
	ID:      func(s *sequence) *string { return &s.first.StreamId },
	Started: methods.Worker.Started, Tokens: methods.Worker.Tokens, End: methods.Worker.End,
}

// echo yields the prompt of each message, and an End after the last. After prompt 7 it is busy
// until it is stopped.
func echo(ctx context.Context, s *sequence) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		prompt := s.first.GetPrompt()
		for {
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: prompt}}}, nil) {
				return
			}
			if prompt[0] == 7 {
				<-stream.Stopping(ctx)
			}
			in, err := s.later.Next(ctx)
			switch {
			case errors.Is(err, io.EOF):
				yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
					Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"engine"},
				}}}, nil)
				return
			case err != nil:
				yield(nil, err)
				return
			}
			prompt = in.GetTokens().GetPrompt()
		}
	}
}

type talk struct {
	t *testing.T
	grpc.BidiStreamingClient[workerv1.GenerateRequest, workerv1.GenerateResponse]
}

func (c talk) send(prompt ...uint32) {
	c.t.Helper()
	if err := c.Send(methods.Worker.Open(&workerv1.TokenRequest{Prompt: prompt})); err != nil {
		c.t.Fatal(err)
	}
}

// expectTokens expects an answer with the token want.
func (c talk) expectTokens(want uint32) {
	c.t.Helper()
	out, err := c.Recv()
	if ids := out.GetTokens().GetIds(); err != nil || len(ids) == 0 || ids[0] != want {
		c.t.Fatal(out, err)
	}
}

// expectEnd reads to the end of the stream. It expects reason, path, and a message that contains
// words.
func (c talk) expectEnd(reason streamerr.Reason, path, words string) {
	c.t.Helper()
	var err error
	for err == nil {
		_, err = c.Recv()
	}
	md := c.Trailer()
	if got := md.Get(streamerr.ReasonTrailer); len(got) != 1 || got[0] != reason.String() {
		c.t.Errorf("%v, want %v; %v", got, reason, err)
	}
	if got := md.Get(streamerr.PathTrailer); len(got) != 1 || got[0] != path {
		c.t.Errorf("%v, want %v", got, path)
	}
	if !strings.Contains(err.Error(), words) {
		c.t.Errorf("%v does not send %q", err, words)
	}
}

func stopFor(reason streamv1.Reason) *workerv1.GenerateRequest {
	return methods.Worker.Stop(&streamv1.Stop{Reason: reason, Path: []string{"client"}})
}

// talks has the behaviours of callers, by name.
var talks = map[string]func(c talk, hop *rpc.Hop){
	"answers follow on messages, and half-close is the end": func(c talk, _ *rpc.Hop) {
		c.send(1)
		c.expectTokens(1)
		c.send(2)
		c.send(3)
		_ = c.CloseSend()
		c.expectTokens(2)
		c.expectTokens(3)
		c.expectEnd(streamerr.Completed, "engine > worker", "EOF")
	},
	"a caller that is silent": func(c talk, _ *rpc.Hop) {
		c.send(1)
		c.expectEnd(streamerr.Deadline, "worker", "the caller sent nothing for 20ms (idle timeout of worker)")
	},
	"a stop while it waits": func(c talk, _ *rpc.Hop) {
		c.send(1)
		c.expectTokens(1)
		if err := c.Send(stopFor(streamv1.Reason_REASON_USER_STOP)); err != nil {
			c.t.Fatal(err)
		}
		_ = c.CloseSend()
		c.expectEnd(streamerr.UserStop, "client > worker", "user stop")
	},
	"a stop behind unread messages": func(c talk, _ *rpc.Hop) {
		c.send(7)
		c.send(2)
		c.send(3)
		if err := c.Send(stopFor(streamv1.Reason_REASON_CLIENT_GONE)); err != nil {
			c.t.Fatal(err)
		}
		c.expectEnd(streamerr.ClientGone, "client > worker", "client gone")
	},
	"too much unread": func(c talk, _ *rpc.Hop) {
		c.send(7)
		for range 6 {
			c.send(2)
		}
		c.expectEnd(streamerr.Invalid, "worker", "the inbox is full: too many messages have arrived unread")
	},
	"a message that is too long": func(c talk, hop *rpc.Hop) {
		c.send(1)
		c.expectTokens(1)
		long := &workerv1.TokenRequest{Prompt: slices.Repeat([]uint32{1 << 31}, 1<<20+1<<10)}
		if proto.Size(long) < 5<<20 {
			c.t.Fatal("not long")
		}
		_ = c.Send(methods.Worker.Open(long))
		for err := error(nil); err == nil; { // grpc-go's servers have an error text of their own
			_, err = c.Recv()
		}
		var ended []*streamv1.Record
		polltest.Eventually(c.t, "the stream ends", func() bool {
			ended = ledger.At(hop).Ended(1, func(*streamv1.Record) bool { return true })
			return len(ended) > 0
		})
		grpcs := strings.Contains(c.t.Name(), "to_grpc/") // this test's server is grpc-go's own, which ends the call by itself
		if r := ended[0]; !grpcs && (r.GetReason() != streamv1.Reason_REASON_INVALID || !strings.Contains(r.GetMessage(), "could not be read")) {
			c.t.Error(r)
		}
	},
	"a drain while it waits": func(c talk, hop *rpc.Hop) {
		c.send(1)
		c.expectTokens(1)
		hop.Drain(context.Background(), time.Minute)
		c.expectEnd(streamerr.Draining, "worker", "worker is shutting down")
	},
	"a drain before it waits": func(c talk, hop *rpc.Hop) {
		c.send(7)
		c.expectTokens(7)
		begun := time.Now()
		hop.Drain(context.Background(), 100*time.Millisecond)
		c.expectEnd(streamerr.Draining, "worker", "worker is shutting down")
		if time.Since(begun) < 100*time.Millisecond {
			c.t.Error("the grace was not enough for the answer")
		}
	},
}

func TestRequestsThatAreSequences(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			svc := newService("worker", nil)
			var hop atomic.Pointer[rpc.Hop]
			svc.serve = func(_ *rpc.Hop, st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
				return rpc.Serve(hop.Load(), st, sequences, stream.Push(echo))
			}
			client := workerv1.NewWorkerClient(tr.dial(t, tr.serve(t, svc)))
			for name, run := range talks {
				if name == "a message that is too long" && tr.name == "in process" {
					continue // messages have no length there
				}
				t.Run(name, func(t *testing.T) {
					h := newService("worker", nil).hop
					switch name {
					case "a caller that is silent":
						h.Timers = rpc.Timers{Idle: 20 * time.Millisecond}
					case "a message that is too long": // nothing explains the message within the grace
						h.Grace = 20 * time.Millisecond
					}
					hop.Store(h)
					st, err := client.Generate(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					run(talk{t, st}, h)
					awaitNoLive(t, h)
				})
			}
		})
	}
}

// TestWaitForTheCallerIsNotAStall: a wait for the caller may take longer than the timers for the
// first token and for a stall allow.
func TestWaitForTheCallerIsNotAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService("worker", nil)
		svc.hop.Timers = rpc.Timers{FirstToken: time.Second, Stall: time.Second, Idle: time.Minute}
		svc.serve = func(h *rpc.Hop, st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
			return rpc.Serve(h, st, sequences, stream.Push(echo))
		}
		st, err := workerv1.NewWorkerClient(dialHere(t, serveHere(t, svc))).Generate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := talk{t, st}
		c.send(1)
		c.expectTokens(1)
		time.Sleep(30 * time.Second)
		c.send(2)
		c.expectTokens(2)
		_ = c.CloseSend()
		c.expectEnd(streamerr.Completed, "engine > worker", "EOF")
	})
}
