package e2e

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/lab"
)

// TestStreamsSurviveTheLossOfChatService injects faults into one of two chat-services under streams
// of all kinds, and then into the remaining one. No stream may fail, and each must have its
// undisturbed text, finish reason and usage.
func TestStreamsSurviveTheLossOfChatService(t *testing.T) {
	t.Parallel()
	const n = 30
	w := &fleet{whence: assemble(t, lab.Layout{
		Workers: 1, Chats: 2, Edges: 1, Chat: []string{"--drain", "100ms"},
		Worker: []string{"--pace", "20", "--max-running", "100", "--kv-tokens", "20000"},
	})}
	chats := [2]*process{w.processes["chat-service/0"], w.processes["chat-service/1"]}
	var want []streamResult
	for _, p := range w.passages(t, n, func() {}) {
		if p.err != nil {
			t.Fatalf("undisturbed: %v", p.err)
		}
		want = append(want, p.result)
	}
	for _, strike := range []struct {
		name string
		at   func()
		mend func()
		most int // maximum number of moves of a stream
	}{
		{"kill -9", func() { chats[0].kill(t) }, func() { chats[0].relaunch(t) }, 1},
		{"drain", func() { chats[1].terminate(t) }, func() { chats[1].exit(t); chats[1].relaunch(t) }, 1},
		{"kill -9 of both, of which one comes back", func() {
			chats[0].kill(t)
			chats[1].kill(t)
			chats[1].relaunch(t)
		}, func() { chats[0].relaunch(t) }, 2},
	} {
		read := w.passages(t, n, func() {
			lab.Pause(t.Context(), rand.N(300*time.Millisecond)) // at a random point of the answers
			strike.at()
		})
		moved := 0
		for i, p := range read {
			if p.err != nil || p.result != want[i] {
				t.Errorf("%s: stream %s: %+v, %v; undisturbed %+v", strike.name, p.id, p.result, p.err, want[i])
				continue
			}
			story := w.why(t, p.id)
			edge := story.Hops[0]
			if edge.Hop != apiService || len(edge.Moves) > strike.most || int(edge.TokensOut) != want[i].usage.Completion {
				t.Errorf("%s: %+v", strike.name, edge)
			}
			if len(edge.Moves) > 0 {
				moved++
			}
		}
		if moved == 0 {
			t.Errorf("%s: no stream moved", strike.name)
		}
		t.Log(strike.name, moved, "of", n, "streams moved")
		strike.mend()
		polltest.Eventually(t, "both take streams", func() bool { w.works(t); return w.readiness() == 200 })
	}
	w.idle(t)
}
