package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	streamstory "github.com/whence-dev/whence/api-service/story"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/polltest"
)

// handing returns flags for simulators of these roles.
func handing(speed string, roles ...string) flags {
	return flags{roles: roles, worker: []string{"--engine", "sim", "--sim-speed", speed, "--drain", "100ms"}, chat: []string{"--handover-above", "0"}}
}

// handovers returns chat-service's record of a stream's handovers.
func handovers(s streamstory.Story) []streamstory.Handover {
	for _, h := range s.Hops {
		if h.Hop == chatService {
			return h.Handovers
		}
	}
	return nil
}

// readsPrompts reports whether a worker is one of the first two.
func readsPrompts(worker string) bool { return worker == workerName(0) || worker == workerName(1) }

// TestPrefillWorkersReadPrompts: a stream that is split between two processes equals a stream of
// one process.
func TestPrefillWorkersReadPrompts(t *testing.T) {
	t.Parallel()
	want := runFleet(t, 1, flags{worker: []string{"--engine", "sim", "--sim-speed", "10"}}).alone(t)
	w := runFleet(t, 4, handing("10", "prefill", "prefill", "decode", "decode"))
	var all [crowd]*live
	for i := range all {
		all[i] = w.open(t, usageOf(varied(i)))
	}
	for i, l := range all {
		if got := (streamResult{l.completed(t), l.finish, *l.usage}); got != want[i] {
			t.Errorf("stream %d: %+v, undisturbed %+v", i, got, want[i])
		}
	}
	readers := map[string]bool{}
	for i, l := range all {
		told := w.why(t, l.id)
		over := handovers(told)
		if len(over) != 1 || over[0].Reason != "completed" || !readsPrompts(over[0].From) || readsPrompts(over[0].To) {
			t.Fatalf("stream %d: %+v", i, over)
		}
		readers[over[0].From] = true
		if n := len(told.Hops); n != 4 || told.Hops[2].Hop != over[0].From || told.Hops[3].Hop != over[0].To || told.Hops[2].TokensOut != 0 || told.Tokens.Prompt == 0 || told.Tokens.Delivered != told.Hops[3].TokensOut {
			t.Errorf("stream %d: %+v", i, told)
		}
	}
	if len(readers) != 2 {
		t.Errorf("only %v read prompts", readers)
	}
	over := handovers(w.why(t, all[0].id))[0]
	out, err := exec.Command(binary(t, "whence"), "why", all[0].id, "--url", "http://"+w.api).CombinedOutput()
	for _, line := range []string{fmt.Sprintf("prompt read by %s for %s in ", over.From, over.To), fmt.Sprintf("handover     down  completed  %s > %s", over.From, over.To)} {
		if err != nil || !strings.Contains(string(out), line) {
			t.Errorf("%q is missing: %v\n%s", line, err, out)
		}
	}
}

// leaveInHandover closes the connection of a client whose prompt is read and not yet handed over. The
// worker that was to answer gets the prompt and the stop.
func (s *scene) leaveInHandover() *refusal {
	conn := s.dial(s.t, greedy(long, "stream", true), s.id)
	s.procs[lost].logged(s.t, "that the prompt is read", func(r record) bool { return r.Msg == "fault" })
	s.fault(func() { _ = conn.Close() })
	polltest.Eventually(s.t, "that the handover is abandoned", func() bool {
		over := s.record(chatService).GetHandovers()
		return len(over) == 1 && over[0].GetFrom() == lost && over[0].GetTo() == "" && over[0].GetReason() == streamv1.Reason_REASON_CLIENT_GONE
	})
	return nil
}
