package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	streamstory "github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/lab"
)

// A fleet is Whence with several workers. The first is the whence's own worker.
type fleet struct {
	*whence
	workers []*process
}

func workerName(i int) string { return fmt.Sprint(llmWorker, "/", i) }

// runFleet starts Whence with n workers, and returns when chat-service uses all of them.
func runFleet(t *testing.T, n int, f flags) *fleet {
	t.Helper()
	own := map[string][]string{}
	for i, role := range f.roles {
		own[workerName(i)] = []string{"--role", role}
	}
	w := &fleet{whence: assemble(t, lab.Layout{Workers: n, Chats: 1, Edges: 1, All: f.all, Edge: f.api, Chat: f.chat, Worker: f.worker, Own: own})}
	for i := range n {
		w.workers = append(w.workers, w.processes[workerName(i)])
	}
	return w
}

// healthy waits until chat-service has logged that a worker is healthy.
func (w *fleet) healthy(t *testing.T, name string) {
	t.Helper()
	w.processes[chatService].logged(t, "that "+name+" is healthy", func(r record) bool { return r.Msg == "worker is healthy" && r.Worker == name })
}

// varied returns requests of several kinds: greedy, seeded, with penalties, with a stop string.
// Equal numbers give equal requests.
func varied(i int) ask {
	a := greedy(long, "max_tokens", 100)
	switch i % 5 {
	case 1:
		a["temperature"], a["seed"] = 1, i
	case 2:
		a["temperature"], a["seed"], a["top_p"], a["frequency_penalty"] = 1.2, i, 0.95, 0.7
	case 3:
		a["repetition_penalty"], a["presence_penalty"], a["min_tokens"] = 1.2, 0.5, 80
	case 4:
		a["temperature"], a["seed"], a["stop"] = 0.8, i, []string{"harbor?", "\n\n"}
	}
	return a
}

const crowd = 20

// alone returns the undisturbed answers of all streams of a crowd.
func (w *fleet) alone(t *testing.T) (want [crowd]streamResult) {
	t.Helper()
	var all [crowd]*live
	for i := range all {
		all[i] = w.open(t, usageOf(varied(i)))
	}
	for i, l := range all {
		want[i] = streamResult{l.completed(t), l.finish, *l.usage}
	}
	return want
}

// A streamResult is the part of an answer that must not change when the stream moves.
type streamResult struct {
	text, finish string
	usage        usage
}

func usageOf(a ask) ask {
	a["stream_options"] = map[string]any{"include_usage": true}
	return a
}

// moves returns chat-service's record of a stream's moves.
func moves(s streamstory.Story) []streamstory.Move {
	for _, h := range s.Hops {
		if h.Hop == chatService {
			return h.Moves
		}
	}
	return nil
}

// TestWorkersNeedNoNames: chat-service uses two workers of one machine that were started without
// --name.
func TestWorkersNeedNoNames(t *testing.T) {
	t.Parallel()
	var addrs []string
	for range 2 {
		addrs = append(addrs, start(t, llmWorker, "--listen", "127.0.0.1:0", "--log-json").listening(t))
	}
	names := map[string]bool{}
	chat := service(t, chatService, "127.0.0.1:0", []string{"--worker", strings.Join(addrs, ",")})
	chat.logged(t, "that both workers are healthy", func(r record) bool {
		if r.Msg == "worker is healthy" {
			names[r.Worker] = true
		}
		return len(names) == len(addrs)
	})
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range addrs {
		_, port, _ := strings.Cut(addr, ":")
		if want := llmWorker + "/" + machine + ":" + port; !names[want] {
			t.Errorf("no worker is called %s: %v", want, names)
		}
	}
}
