package fleet

import (
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// A report is how a worker was when it was last asked. What it said outlives its health, for those who look for a worker
// that is gone.
type report struct {
	info    *workerv1.InfoResponse // what it said last; nil until it has been fit for use once
	said    time.Time              // when it said that
	problem string                 // why it gets no streams; empty if it does
}

// report notes what a probe has found. Only the goroutine that probes calls it.
func (w *Worker) report(info *workerv1.InfoResponse, err error) {
	var now report
	if last := w.probed.Load(); last != nil {
		now = *last
	}
	now.problem = ""
	if info != nil {
		now.info, now.said = info, time.Now()
	}
	if err != nil {
		now.problem = status.Convert(err).Message()
	}
	w.probed.Store(&now)
}

// Workers tells how the workers are, in the order of the configuration, and behind them those that are leaving.
func (f *Fleet) Workers() []*chatv1.Worker {
	var all []*chatv1.Worker
	for _, w := range f.everybody() {
		all = append(all, w.tell())
	}
	return all
}

func (w *Worker) tell() *chatv1.Worker {
	told := &chatv1.Worker{Target: w.target, Slot: uint32(w.slot), State: chatv1.WorkerState_WORKER_STATE_HEALTHY, Streams: uint32(max(0, w.ours.Load()))}
	last := w.probed.Load()
	if last == nil {
		last = &report{problem: "it has not been asked yet"}
	}
	if last.info != nil {
		told.Info, told.Said = last.info, timestamppb.New(last.said)
	}
	switch {
	case w.leaving.Load():
		told.State, told.Leaving, told.Message = chatv1.WorkerState_WORKER_STATE_DOWN, true, "it is no longer listed, and finishes its streams"
	case last.problem != "":
		told.State, told.Message = chatv1.WorkerState_WORKER_STATE_DOWN, last.problem
	case !w.trust.holds():
		told.State, told.Message = chatv1.WorkerState_WORKER_STATE_SUSPECT, "it has lost a stream or was late to answer, and is asked again"
	}
	return told
}
