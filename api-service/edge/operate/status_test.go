package operate

import (
	"strings"
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

func worker(name string, state chatv1.WorkerState, message string) *chatv1.Worker {
	return &chatv1.Worker{Target: "10.0.0.1:8082", Info: &llmv1.WorkerInfo{Instance: name}, State: state, Message: message}
}

func TestReadinessCountsWorkersAndSaysWhyTheOthersAreDown(t *testing.T) {
	const healthy, suspect, down = chatv1.WorkerState_WORKER_STATE_HEALTHY, chatv1.WorkerState_WORKER_STATE_SUSPECT, chatv1.WorkerState_WORKER_STATE_DOWN
	leaving := worker("llm-worker/4", down, "it is no longer listed, and finishes its streams")
	leaving.Leaving = true
	nameless := worker("", down, "it has not been probed yet")
	nameless.Info = nil
	for want, all := range map[string][]*chatv1.Worker{
		"ok\n":                           {leaving},
		"ok: 2 of 2 workers available\n": {worker("llm-worker/0", healthy, ""), worker("llm-worker/1", suspect, "it was late"), leaving},
		"ok: 1 of 3 workers available\nllm-worker/1: it cannot be reached: connection refused\na worker: it has not been probed yet\n": {
			worker("llm-worker/0", healthy, ""), worker("llm-worker/1", down, "it cannot be reached: connection refused"), nameless,
		},
	} {
		if got := readiness(all); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestReadinessShowsABoundedNumberOfWorkers(t *testing.T) {
	all := []*chatv1.Worker{worker("llm-worker/0", chatv1.WorkerState_WORKER_STATE_HEALTHY, "")}
	for range shownDown + 5 {
		all = append(all, worker("llm-worker/1", chatv1.WorkerState_WORKER_STATE_DOWN, "it loads"))
	}
	got := readiness(all)
	if n := strings.Count(got, "it loads"); n != shownDown || !strings.HasPrefix(got, "ok: 1 of 16 ") || !strings.HasSuffix(got, "\nand 5 more\n") {
		t.Errorf("%d workers are shown: %q", n, got)
	}
}
