package batch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A preparingModel prepares the requests of prompt [13] until their streams are stopped, and panics
// when it prepares prompt [14].
type preparingModel struct{ *countingModel }

func (m preparingModel) Prepare(ctx context.Context, req *workerv1.TokenRequest) (func(id uint64) error, error) {
	switch req.GetPrompt()[0] {
	case 13:
		<-stream.Stopping(ctx)
		return nil, stream.Cause(ctx)
	case 14:
		return nil, batch.Panicked("unlucky")
	}
	return func(id uint64) error { return m.Join(id, req) }, m.Check(req)
}

func TestPreparationDelaysNoOtherStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := run(t, preparingModel{newCounting()}, batch.Options{MaxRunning: 1})
		ctx, ctl := stream.WithControl(t.Context(), time.Minute)
		ended := make(chan error, 1)
		go func() {
			_, _, _, err := read(ctx, l, count(13), nil)
			ended <- err
		}()
		synctest.Wait()
		if tokens, _, _, err := read(t.Context(), l, count(20), nil); err != nil || len(tokens) != 20 {
			t.Errorf("beside a preparation: %d tokens, %v", len(tokens), err)
		}
		if _, _, _, err := read(t.Context(), l, count(14), nil); !errors.Is(err, streamerr.Internal) {
			t.Error(err)
		}
		ctl.Stop(streamerr.New(streamerr.ClientGone, "left"))
		if err := <-ended; !errors.Is(err, streamerr.ClientGone) {
			t.Error(err)
		}
		if load := l.Load(); load.GetRunning() != 0 || load.GetQueued() != 0 {
			t.Error(load)
		}
	})
}

// A flood of requests must be refused before their preparation, which may be expensive.
func TestPlacesAreTakenBeforePreparation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := run(t, preparingModel{newCounting()}, batch.Options{MaxRunning: 1, MaxQueued: 1})
		ended := make(chan error, 2)
		var controls []*stream.Control
		for range 2 {
			ctx, ctl := stream.WithControl(t.Context(), time.Minute)
			controls = append(controls, ctl)
			go func() {
				_, _, _, err := read(ctx, l, count(13), nil)
				ended <- err
			}()
		}
		synctest.Wait()
		if load := l.Load(); load.GetQueued() != 2 {
			t.Errorf("two requests are being prepared, and the load is %v", load)
		}
		// The preparation of this request would end it with INTERNAL.
		if _, _, _, err := read(t.Context(), l, count(14), nil); !errors.Is(err, streamerr.Overloaded) || streamerr.As(err).RetryAfter <= 0 {
			t.Errorf("a request above the limit: %v", err)
		}
		for _, ctl := range controls {
			ctl.Stop(streamerr.New(streamerr.ClientGone, "left"))
			if err := <-ended; !errors.Is(err, streamerr.ClientGone) {
				t.Error(err)
			}
		}
		if tokens, _, _, err := read(t.Context(), l, count(3), nil); err != nil || len(tokens) != 3 {
			t.Errorf("the places were not given back: %d tokens, %v", len(tokens), err)
		}
	})
}
