package batch_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestLoopContinuesAfterAFailedStep(t *testing.T) {
	for name, test := range map[string]struct {
		fail   func()
		error  error
		reason streamerr.Reason
		logged string
	}{
		"error": {func() {}, errors.New("out of luck"), streamerr.EngineFailed, "out of luck"},
		"panic": {func() { panic("out of luck") }, nil, streamerr.Internal, "engine panicked"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newCounting()
				m.fail = func(step int) error {
					if step != 3 {
						return nil
					}
					test.fail()
					return test.error
				}
				var log bytes.Buffer
				l, _ := run(t, m, batch.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
				tokens, _, _, err := read(t.Context(), l, count(10), nil)
				if e := streamerr.As(err); e.Reason != test.reason || e.Path.Origin() != "engine" || len(tokens) != 2 {
					t.Error(tokens, err)
				}
				if lines := strings.Count(log.String(), test.logged); lines != 1 {
					t.Errorf("%d log lines report the panic: %s", lines, log.String())
				}
				if tokens, _, _, err := read(t.Context(), l, count(10), nil); err != nil || len(tokens) != 10 {
					t.Error(tokens, err)
				}
				if m.live() != 0 {
					t.Error(m.live())
				}
			})
		})
	}
}

// A fragileModel panics after the sequence of prompt [13] has joined, and when the sequence of
// prompt [14] leaves.
type fragileModel struct{ *countingModel }

func (m fragileModel) Join(id uint64, req *workerv1.TokenRequest) error {
	err := m.countingModel.Join(id, req)
	if err == nil && req.GetPrompt()[0] == 13 {
		panic("unlucky")
	}
	return err
}

func (m fragileModel) Leave(id uint64) {
	m.mu.Lock()
	unlucky := m.goal[id] == 14
	m.mu.Unlock()
	m.countingModel.Leave(id)
	if unlucky {
		panic("unlucky")
	}
}

func TestPanicInJoinOrLeaveEndsOnlyItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCounting()
		l, _ := run(t, fragileModel{m}, batch.Options{MaxRunning: 2})
		var wg sync.WaitGroup
		for _, n := range []uint32{20, 13, 14, 13, 20} {
			wg.Go(func() {
				tokens, _, _, err := read(t.Context(), l, count(n), nil)
				if n == 13 && (!errors.Is(err, streamerr.Internal) || len(tokens) != 0) || n != 13 && (err != nil || len(tokens) != int(n)) {
					t.Errorf("[%d]: %d tokens, %v", n, len(tokens), err)
				}
			})
		}
		wg.Wait()
		if load := l.Load(); m.live() != 0 || load.GetRunning() != 0 || load.GetQueued() != 0 {
			t.Error(m.live(), load)
		}
	})
}

// A leakyModel reports that it is full when it is empty.
type leakyModel struct{ *countingModel }

func (m leakyModel) Join(id uint64, req *workerv1.TokenRequest) error {
	if req.GetPrompt()[0] == 13 {
		return batch.ErrFull
	}
	return m.countingModel.Join(id, req)
}

func TestStreamThatFitsNowhereDoesNotBlockTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a queue that is never woken is a deadlock here
		l, _ := run(t, leakyModel{newCounting()}, batch.Options{})
		if _, _, _, err := read(t.Context(), l, count(13), nil); !errors.Is(err, streamerr.Internal) {
			t.Error(err)
		}
		if tokens, _, _, err := read(t.Context(), l, count(5), nil); err != nil || len(tokens) != 5 {
			t.Error(tokens, err)
		}
	})
}
