package chats

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A service is a chat-service that counts until it is told to finish, or to three for those who ask for "short".
type service struct {
	chatv1.UnimplementedChatServer
	addr    string
	hop     rpc.Hop
	grpc    *grpc.Server
	up      *health.Server
	models  []*chatv1.Model
	workers []*chatv1.Worker
	refuse  atomic.Pointer[streamerr.Error] // every stream, before it begins
	live    atomic.Int32
	asked   atomic.Int32
	finish  chan struct{}                   // closed: streams end
	drain   chan struct{}                   // closed: they fail
	fail    atomic.Pointer[streamerr.Error] // they do with this
}

func (s *service) Generate(st grpc.BidiStreamingServer[chatv1.GenerateRequest, chatv1.GenerateResponse]) error {
	return rpc.Serve(&s.hop, st, methods.Chat, s.generate)
}

func (s *service) generate(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
	return func(yield func(*chatv1.GenerateResponse, error) bool) {
		s.asked.Add(1)
		s.live.Add(1)
		defer s.live.Add(-1)
		if e := s.refuse.Load(); e != nil {
			yield(nil, e)
			return
		}
		if req.GetModel() == "none" {
			yield(nil, streamerr.InvalidParam("model", "there is none"))
			return
		}
		if !yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{}}}, nil) {
			return
		}
		n := uint32(len(req.GetAnswered().GetIds()))
		if n > 0 && !yield(again(req.GetAnswered().GetIds()), nil) {
			return
		}
		for ; n < 3 || req.GetModel() != "short"; n++ {
			select {
			case <-s.finish:
				yield(ended(), nil)
				return
			case <-s.drain:
				_ = yield(delta(&chatv1.Delta{Text: "<", Remainder: true}), nil) && yield(nil, streamerr.New(streamerr.Draining, "it goes"))
				return
			case <-stream.Stopping(ctx):
				yield(nil, stream.Cause(ctx))
				return
			case <-time.After(time.Millisecond):
				if e := s.fail.Load(); e != nil {
					yield(nil, e)
					return
				}
				if !yield(counted(n, req.GetTellIds()), nil) {
					return
				}
			}
		}
		yield(ended(), nil)
	}
}

func ended() *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"engine"}}}}
}

func delta(d *chatv1.Delta) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: d}}
}

// counted says n, thinks of it, and calls somebody with it.
func counted(n uint32, tells bool) *chatv1.GenerateResponse {
	d := &chatv1.Delta{Text: fmt.Sprintf("%d ", n), Tokens: 1, Reasoning: fmt.Sprintf("(%d)", n)}
	call := &chatv1.ToolCallDelta{Index: n / 10, Arguments: d.GetText()}
	if n%10 == 0 {
		call.Id, call.Name = stream.NewID(), "count"
	}
	d.ToolCalls = []*chatv1.ToolCallDelta{call}
	if tells {
		d.Ids = []uint32{n}
	}
	return delta(d)
}

// again is all that was said with some tokens, in one piece.
func again(ids []uint32) *chatv1.GenerateResponse {
	all := &chatv1.Delta{Ids: ids}
	for _, id := range ids {
		d := counted(id, true).GetDelta()
		all.Text += d.GetText()
		all.Reasoning += d.GetReasoning()
		all.ToolCalls = append(all.ToolCalls, d.GetToolCalls()...)
	}
	return delta(all)
}
