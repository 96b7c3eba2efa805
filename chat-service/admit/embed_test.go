package admit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestEmbeddingRequestsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{MaxStreams: 2, MaxTokens: 10, Room: func() (int, bool) { return 1, true }})
		e := q.EmbedStage(stream.Unary(func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
			time.Sleep(time.Second)
			return &workerv1.EmbedResponse{}, nil
		}))
		ask := func(ctx context.Context, tokens int) (took time.Duration, err error) {
			begun := time.Now()
			for _, err = range e.Range(ctx, &workerv1.EmbedRequest{Inputs: []*workerv1.TokenIds{{Ids: make([]uint32, tokens)}}}) {
			}
			return time.Since(begun), err
		}
		go ask(t.Context(), 100) // occupies the place
		synctest.Wait()
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		defer ctl.Release()
		cause := errors.New("enough")
		time.AfterFunc(time.Second/2, func() { ctl.Stop(cause) })
		stopped := make(chan error, 1)
		go func() {
			_, err := ask(ctx, 4)
			stopped <- err
		}()
		synctest.Wait()
		if _, err := ask(t.Context(), 7); !errors.Is(err, streamerr.Overloaded) {
			t.Errorf("texts of 11 tokens wait: %v", err)
		}
		if took, err := ask(t.Context(), 6); err != nil || took != 2*time.Second {
			t.Errorf("%v, %v", took, err)
		}
		if err := <-stopped; !errors.Is(err, cause) {
			t.Error(err)
		}
		if running, waiting := q.Load(); running+waiting != 0 {
			t.Error(running, waiting)
		}
	})
}
