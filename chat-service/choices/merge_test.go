package choices_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/whence-dev/whence/chat-service/choices"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/stream"
)

func delta(text string) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: text, Tokens: 1}}}
}

// merge returns the stream of two choices, which source answers with loops.
func merge(ctx context.Context, source stream.Sequence[int, *chatv1.GenerateResponse]) iter.Seq2[*chatv1.GenerateResponse, error] {
	return stream.Engine[*chatv1.ChatRequest, *chatv1.GenerateResponse](func(ctx context.Context, req *chatv1.ChatRequest, to choices.Reader) {
		choices.Merge(ctx, req, stream.Push(source), to)
	}).Range(ctx, asking(2))
}

// TestChoiceThatFailsWhileTheReaderLeaves checks that a reader gets no ending after it has left,
// although a choice fails while the reader has a message of another choice.
func TestChoiceThatFailsWhileTheReaderLeaves(t *testing.T) {
	fail, stopping := make(chan struct{}), make(chan (<-chan struct{}), 1)
	seq := merge(t.Context(), func(ctx context.Context, choice int) iter.Seq2[*chatv1.GenerateResponse, error] {
		return func(yield func(*chatv1.GenerateResponse, error) bool) {
			if choice == 0 {
				stopping <- stream.Stopping(ctx)
				yield(delta("a"), nil)
				return
			}
			<-fail
			yield(nil, errors.New("the choice's failure"))
		}
	})
	for _, err := range seq { // Go panics if the sequence continues after break
		if err != nil {
			t.Fatal(err)
		}
		close(fail)
		<-<-stopping // the failure has stopped all choices
		break
	}
}

// TestReaderThatPanicsGetsNoMoreMessages checks that a waiting choice does not reach the reader
// after its panic.
func TestReaderThatPanicsGetsNoMoreMessages(t *testing.T) {
	first, over := make(chan struct{}), make(chan struct{})
	seq := merge(t.Context(), func(_ context.Context, choice int) iter.Seq2[*chatv1.GenerateResponse, error] {
		return func(yield func(*chatv1.GenerateResponse, error) bool) {
			if choice == 0 {
				defer func() { <-over }() // let the panic continue only after the other choice has its answer
				yield(delta("a"), nil)
				return
			}
			defer close(over)
			<-first
			yield(delta("b"), nil)
		}
	})
	var messages atomic.Int32
	defer func() {
		if v := recover(); !strings.Contains(fmt.Sprint(v), "the reader's bug") || messages.Load() != 1 {
			t.Errorf("%.40v, after %d messages", v, messages.Load())
		}
	}()
	seq(func(*chatv1.GenerateResponse, error) bool {
		if messages.Add(1) > 1 {
			return false
		}
		close(first)
		panic("the reader's bug")
	})
}
