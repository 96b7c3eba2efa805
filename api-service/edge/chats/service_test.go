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
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A service is a fake chat-service that counts until finish, or to three for the model "short".
type service struct {
	chatv1.UnimplementedChatServer
	addr    string
	hop     rpc.Hop
	grpc    *grpc.Server
	up      *health.Server
	models  []*chatv1.Model
	workers []*chatv1.Worker
	refuse  atomic.Pointer[streamerr.Error] // refuses every stream before it begins
	live    atomic.Int32
	asked   atomic.Int32
	finish  chan struct{}                   // closed to end the streams
	drain   chan struct{}                   // closed to fail the streams
	fail    atomic.Pointer[streamerr.Error] // the error that drain fails streams with
	old     atomic.Bool                     // reports no ids of requests with several choices
	ignores atomic.Bool                     // does not know the fields of later releases
}

func (s *service) Generate(st grpc.BidiStreamingServer[chatv1.GenerateRequest, chatv1.GenerateResponse]) error {
	return rpc.Serve(&s.hop, st, methods.Chat, stream.Push(s.generate))
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
		if s.old.Load() && req.GetTellIds() && several(req) > 1 {
			yield(nil, streamerr.InvalidParam("tell_ids", "not for several choices"))
			return
		}
		started := &llmv1.Started{}
		if !s.ignores.Load() {
			started.KnownFields = capability.ChatFields(req)
		}
		if !yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: started}}, nil) {
			return
		}
		s.count(ctx, req, yield)
	}
}

// several returns the number of choices of a request.
func several(req *chatv1.ChatRequest) int {
	return max(1, int(req.GetN())) * max(1, len(req.GetPrompts()))
}

// count answers each choice of a request. With several choices, the first ends after three tokens.
func (s *service) count(ctx context.Context, req *chatv1.ChatRequest, yield func(*chatv1.GenerateResponse, error) bool) {
	at, over := make([]uint32, several(req)), make([]bool, several(req))
	for i := range at {
		ids := req.GetAnswered().GetIds()
		if i < len(req.GetAnsweredChoices()) {
			ids, over[i] = req.GetAnsweredChoices()[i].GetIds(), req.GetAnsweredChoices()[i].GetEnd() != nil
		}
		at[i] = uint32(len(ids))
		if over[i] {
			if !yield(choiceEnd(i), nil) {
				return
			}
		} else if len(ids) > 0 && !yield(of(i, again(ids)), nil) {
			return
		}
	}
	for at[0] < 3 || req.GetModel() != "short" {
		select {
		case <-s.finish:
			endAll(over, yield)
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
			for i := range at {
				if over[i] {
					continue
				}
				d := likely(counted(at[i], req.GetTellIds()), at[i], req)
				if !yield(of(i, d), nil) {
					return
				}
				if at[i]++; i == 0 && len(at) > 1 && at[i] == 3 {
					if over[i] = true; !yield(choiceEnd(i), nil) {
						return
					}
				}
			}
		}
	}
	yield(ended(), nil)
}

// endAll ends the choices that are not over, then the stream.
func endAll(over []bool, yield func(*chatv1.GenerateResponse, error) bool) {
	for i := range over {
		if len(over) > 1 && !over[i] && !yield(choiceEnd(i), nil) {
			return
		}
	}
	yield(ended(), nil)
}

// likely adds the log-probability of token n to d, if the request asks for it.
func likely(d *chatv1.GenerateResponse, n uint32, req *chatv1.ChatRequest) *chatv1.GenerateResponse {
	if s := req.GetSampling(); s != nil && s.Logprobs != nil {
		d.GetDelta().Logprobs = []*chatv1.TokenLogprob{{Id: n, Logprob: -float32(n)}}
	}
	return d
}

func of(choice int, out *chatv1.GenerateResponse) *chatv1.GenerateResponse {
	out.GetDelta().Choice = uint32(choice)
	return out
}

func choiceEnd(choice int) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_ChoiceEnd{ChoiceEnd: &chatv1.ChoiceEnd{Choice: uint32(choice)}}}
}

func ended() *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"engine"}}}}
}

func delta(d *chatv1.Delta) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: d}}
}

// counted returns a delta with n as text, as reasoning and as a tool call.
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

// again returns all text of the tokens ids in one delta.
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
