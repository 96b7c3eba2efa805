package fleet

import (
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

func TestWorkerThatLostAStreamIsSuspect(t *testing.T) {
	f := New(Options{})
	w := &Worker{target: "h:1", doubt: make(chan struct{}, 1)}
	f.workers.Store(&[]*Worker{w})
	if got := f.Workers()[0]; got.GetState() != chatv1.WorkerState_WORKER_STATE_DOWN || got.GetMessage() == "" || got.GetInfo() != nil {
		t.Errorf("before it was asked: %v", got)
	}
	w.report(info("worker/1"), nil)
	w.ours.Store(3)
	if got := f.Workers()[0]; got.GetState() != chatv1.WorkerState_WORKER_STATE_HEALTHY || got.GetStreams() != 3 {
		t.Error(got)
	}
	w.Suspect()
	if got := f.Workers()[0]; got.GetState() != chatv1.WorkerState_WORKER_STATE_SUSPECT || got.GetMessage() == "" {
		t.Error(got)
	}
	w.trust.answered()
	if got := f.Workers()[0]; got.GetState() != chatv1.WorkerState_WORKER_STATE_HEALTHY {
		t.Error(got)
	}
}
