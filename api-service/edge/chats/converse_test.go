package chats

import (
	"context"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A starvedLink is a call over a link whose callee answers one turn and then grants no credit: a
// Send blocks until the call ends.
type starvedLink struct {
	grpc.ClientStream

	ctx     context.Context //nolint:containedctx // the call's
	answers chan *chatv1.ConverseResponse
	sends   chan struct{} // a message waits for credit
	stops   chan *chatv1.ConverseRequest
	begun   bool
}

var _ loop.Source = (*starvedLink)(nil)

func (l *starvedLink) Context() context.Context { return l.ctx }
func (l *starvedLink) Trailer() metadata.MD     { return nil }
func (l *starvedLink) CloseSend() error         { return nil }

func (l *starvedLink) Send(*chatv1.ConverseRequest) error {
	if !l.begun {
		l.begun = true
		return nil
	}
	l.sends <- struct{}{}
	<-l.ctx.Done()
	return io.EOF
}

func (l *starvedLink) Recv() (*chatv1.ConverseResponse, error) {
	select {
	case out, open := <-l.answers:
		if !open {
			return nil, io.EOF
		}
		return out, nil
	case <-l.ctx.Done():
		return nil, l.ctx.Err()
	}
}

// Attend implements loop.Source. No Loop carries the conversation of the test.
func (l *starvedLink) Attend(func() any, func(*stream.Loop, any) bool, func(error)) {}

// SendLast implements loop.Source.
func (l *starvedLink) SendLast(m any) error {
	l.stops <- m.(*chatv1.ConverseRequest)
	close(l.answers) // the callee ends the call
	return nil
}

// TestStopOvertakesATurnWithoutCredit checks that a stop reaches the chat-service while a turn
// still waits for credit.
func TestStopOvertakesATurnWithoutCredit(t *testing.T) {
	link := &starvedLink{answers: make(chan *chatv1.ConverseResponse, 2), sends: make(chan struct{}, 1), stops: make(chan *chatv1.ConverseRequest, 1)}
	link.answers <- &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_Started{Started: &llmv1.Started{}}}
	link.answers <- &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_TurnEnd{TurnEnd: &chatv1.TurnEnd{}}}
	engine := converseOver("api-service", "chat-service", func(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[chatv1.ConverseRequest, chatv1.ConverseResponse], error) {
		link.ctx = ctx
		return link, nil
	})
	later := stream.NewInbox[*chatv1.ConverseRequest](10, 1<<20)
	if err := later.Put(&chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Turn{Turn: &chatv1.Turn{}}}, 1); err != nil {
		t.Fatal(err)
	}
	ctx, control := stream.WithControl(t.Context(), time.Hour)
	defer control.Release()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range engine(ctx, &Conversation{First: &chatv1.ChatRequest{}, Later: later}) {
		}
	}()
	<-link.sends
	control.Stop(&streamerr.Error{Reason: streamerr.UserStop, Message: "enough"})
	if stop := polltest.Receive(t, "the stop does not wait for the turn", link.stops); stop.GetStop().GetMessage() != "enough" {
		t.Errorf("the chat-service got the stop %v", stop)
	}
	<-ended
}
