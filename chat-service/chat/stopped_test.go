package chat_test

import (
	"context"
	"iter"
	"testing"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// The token with the stop string was on its way when the stream was stopped. The worker got the
// cause of the stop, so the answer must not count as complete.
func TestStopWinsOverAStopString(t *testing.T) {
	m := model(t)
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	cause := streamerr.New(streamerr.ClientGone, "the client left")
	p := &parrot{ids: m.Tokenizer.Encode("say stop now", false), step: func() int { return 100 }}
	worker := func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for out, err := range p.generate(ctx, req) {
				if out.GetTokens() != nil {
					ctl.Stop(cause)
				}
				if !yield(out, err) {
					return
				}
			}
		}
	}
	req := user("x")
	req.Stop = []string{"stop"}
	text, ended := "", error(nil)
	for out, err := range pipeline(m, worker)(ctx, req) {
		if text += out.GetDelta().GetText(); out.GetEnd() != nil {
			t.Errorf("the answer is complete: %v", out)
		}
		ended = err
	}
	if text != "say " || streamerr.As(ended).Reason != streamerr.ClientGone {
		t.Errorf("%q, %v", text, ended)
	}
}
