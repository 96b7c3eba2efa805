package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/rpc/problem"
)

// A report is the result of a worker's last probe. The info remains after the worker becomes
// unhealthy, so that errors can name a worker that is gone.
type report struct {
	name    string            // the worker's name; "" before its first answer
	info    *llmv1.WorkerInfo // the last info; nil until the worker was usable once
	said    time.Time         // time of info
	began   time.Time         // when the probe began
	answers bool              // the worker has answered, with its info or that it takes no streams now
	problem string            // why the worker gets no streams; "" if it does
	public  string            // problem without addresses, for clients and /readyz
}

// report stores the result of a probe that began at a time. Only the probing goroutine calls it.
func (w *Worker) report(began time.Time, info *llmv1.WorkerInfo, err error) {
	var now report
	if last := w.probed.Load(); last != nil {
		now = *last
	}
	now.problem, now.public, now.began, now.answers = "", "", began, info != nil
	if info != nil {
		now.info, now.said, now.name = info, time.Now(), info.GetInstance()
	}
	if err != nil {
		now.problem = problem.OfProbe("it", err, probeTimeout)
		now.public = now.problem
	}
	switch e := err.(type) { //nolint:errorlint // ask returns these as they are
	case notReadyError:
		now.name, now.problem, now.public, now.answers = e.instance, e.problem, e.problem, true
	case refusal:
		now.name, now.problem, now.public = e.instance, e.Error(), e.Error()
		if _, ok := e.error.(sameName); ok { //nolint:errorlint // check returns it as it is
			now.public = fmt.Sprintf("another worker is called %s, too: give each its own --name", e.instance)
		}
	}
	w.probed.Store(&now)
}

// shownProblems is the maximum number of workers that Problem names.
const shownProblems = 3

// Problem says why no member takes whole streams, or returns "" if one does. The text contains no
// addresses, because clients read it.
func (f *Fleet) Problem() string {
	var all []string
	members := f.Members()
	for _, w := range members {
		if Answers(w.info.Load()) {
			return ""
		}
		if text := w.problem(); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	switch n := len(all); {
	case len(members) == 0:
		return "no worker is listed"
	case n > shownProblems:
		return fmt.Sprintf("%s; and %d more", strings.Join(all[:shownProblems], "; "), n-shownProblems)
	default:
		return strings.Join(all, "; ")
	}
}

// problem says why the worker takes no whole streams.
func (w *Worker) problem() string {
	last := w.probed.Load()
	switch {
	case last == nil:
		return "a worker: it has not been probed yet"
	case last.public != "":
		return cmp.Or(last.name, "a worker") + ": " + last.public
	case last.info.GetRole() == llmv1.Role_ROLE_PREFILL:
		return last.name + ": it only reads prompts for others"
	default:
		return last.name + ": it is not healthy"
	}
}

// Workers returns the state of all workers: members in the order of the configuration, then workers
// that are leaving.
func (f *Fleet) Workers() []*chatv1.Worker {
	var all []*chatv1.Worker
	for _, w := range f.everybody() {
		all = append(all, w.describe())
	}
	return all
}

func (w *Worker) describe() *chatv1.Worker {
	described := &chatv1.Worker{Target: w.target, Slot: uint32(w.slot), State: chatv1.WorkerState_WORKER_STATE_HEALTHY, Streams: uint32(max(0, w.ours.Load()))}
	last := w.probed.Load()
	if last == nil {
		last = &report{public: "it has not been probed yet"}
	}
	if last.info != nil {
		described.Info, described.Said = last.info, timestamppb.New(last.said)
	}
	switch {
	case w.leaving.Load():
		described.State, described.Leaving, described.Message = chatv1.WorkerState_WORKER_STATE_DOWN, true, "it is no longer listed, and finishes its streams"
	case last.public != "":
		described.State, described.Message = chatv1.WorkerState_WORKER_STATE_DOWN, last.public
	default:
		if trouble := w.trouble(); trouble != "" {
			described.State, described.Message = chatv1.WorkerState_WORKER_STATE_SUSPECT, trouble
		}
	}
	return described
}
