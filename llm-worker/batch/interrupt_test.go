package batch_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An hourModel is a counting model whose steps take an hour, unless a reader leaves.
type hourModel struct {
	*countingModel
	abandoned chan uint64
}

func (m *hourModel) Abandon(id uint64) { m.abandoned <- id }

func (m *hourModel) Step(_ []uint64, out []batch.Output) ([]batch.Output, error) {
	select {
	case <-m.abandoned:
	case <-time.After(time.Hour):
	}
	return out, nil
}

func TestStopDoesNotWaitForTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &hourModel{newCounting(), make(chan uint64, 1)}
		l, _ := run(t, m, batch.Options{})
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		defer ctl.Release()
		var reader sync.WaitGroup
		var err error
		reader.Go(func() { _, _, _, err = read(ctx, l, count(1), nil) })
		synctest.Wait()
		begun := time.Now()
		ctl.Stop(streamerr.ClientGone)
		reader.Wait()
		if took := time.Since(begun); took != 0 || !errors.Is(err, streamerr.ClientGone) || m.live() != 0 {
			t.Error(took, err, m.live())
		}
	})
}
