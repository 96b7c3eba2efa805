package e2e

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestStreamsSurviveTheLossOfChatService injects faults into one of two chat-services under streams
// of all kinds, and then into the remaining one. No stream may fail, and each must have its
// undisturbed text, finish reason and usage.
func TestStreamsSurviveTheLossOfChatService(t *testing.T) {
	t.Parallel()
	const n = 30
	w := &fleet{whence: &whence{topology: separate, processes: map[string]*process{}}}
	worker := service(t, llmWorker, "127.0.0.1:0", []string{"--pace", "20", "--max-running", "100", "--kv-tokens", "20000"})
	var chats [2]*process
	var addrs []string
	for i, name := range []string{"chat-service/0", "chat-service/1"} {
		chats[i] = service(t, chatService, "127.0.0.1:0", []string{"--name", name, "--worker", worker.listening(t), "--drain", "100ms"})
		addrs = append(addrs, chats[i].listening(t))
	}
	w.worker, w.processes[llmWorker] = worker.listening(t), worker
	w.processes[apiService] = service(t, apiService, "127.0.0.1:0", []string{"--chat", strings.Join(addrs, ",")})
	w.api = w.processes[apiService].listening(t)
	w.connected(t)
	var want []streamResult
	for _, p := range w.passages(t, n, func() {}) {
		if p.err != nil {
			t.Fatalf("undisturbed: %v", p.err)
		}
		want = append(want, p.result)
	}
	again := func(i int) {
		chats[i] = start(t, chatService, append([]string{"--listen", addrs[i]}, chats[i].args[2:]...)...)
		chats[i].listening(t)
	}
	for _, strike := range []struct {
		name string
		at   func()
		mend func()
		most int // maximum number of moves of a stream
	}{
		{"kill -9", func() { chats[0].kill(t) }, func() { again(0) }, 1},
		{"drain", func() { chats[1].terminate(t) }, func() { chats[1].exit(t); again(1) }, 1},
		{"kill -9 of both, of which one comes back", func() {
			chats[0].kill(t)
			chats[1].kill(t)
			again(1)
		}, func() { again(0) }, 2},
	} {
		read := w.passages(t, n, func() {
			time.Sleep(rand.N(300 * time.Millisecond)) // at a random point of the answers
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
		eventually(t, "both take streams", func() bool { w.works(t); return w.readiness() == 200 })
	}
	w.idle(t)
}
