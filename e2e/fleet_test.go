package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	streamstory "github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/polltest"
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

// healthy waits until chat-service has logged a number of times that a worker is healthy.
func (w *fleet) healthy(t *testing.T, name string, times int) {
	t.Helper()
	seen := 0
	w.processes[chatService].logged(t, "that "+name+" is healthy", func(r record) bool {
		if r.Msg == "worker is healthy" && r.Worker == name {
			seen++
		}
		return seen == times
	})
}

// restartWorker restarts a worker that has ended, on its old address.
func (w *fleet) restartWorker(t *testing.T, i, times int) {
	t.Helper()
	w.workers[i].relaunch(t)
	w.healthy(t, workerName(i), times)
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

func TestStreamsSurviveTheirWorker(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name, reason string
		chat         []string
		strike, mend func(*process, *testing.T)
	}{
		{"killed", "peer_lost", nil, (*process).kill, untouched},
		{"drained", "draining", nil, (*process).terminate, untouched},
		{"hung", "deadline", []string{"--migrate-after", "1s"}, (*process).freeze, (*process).thaw},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := runFleet(t, 2, flags{chat: fault.chat, worker: []string{"--pace", "40", "--drain", "100ms"}})
			want := w.alone(t)
			var all [crowd]*live
			for i := range all {
				all[i] = w.open(t, usageOf(varied(i))).begun(t)
			}
			fault.strike(w.workers[0], t)
			for i, l := range all {
				if got := (streamResult{l.completed(t), l.finish, *l.usage}); got != want[i] {
					t.Errorf("stream %d: %+v, undisturbed %+v", i, got, want[i])
				}
			}
			fault.mend(w.workers[0], t) // otherwise each later call would wait for it
			if fault.name == "hung" {
				w.idle(t) // nothing is left of the streams that have moved
			}
			moved := 0
			for i, l := range all {
				for _, m := range moves(w.why(t, l.id)) {
					moved++
					if m.From != workerName(0) || m.To != workerName(1) || m.Reason != fault.reason || m.Tokens == 0 {
						t.Errorf("stream %d moved: %+v", i, m)
					}
					w.processes[chatService].logged(t, "that the stream moved", func(r record) bool {
						return r.Msg == "stream moved" && r.Stream == l.id && r.Hop == chatService && r.From == m.From && r.To == m.To && r.Reason == fault.reason
					})
					out, err := exec.Command(binary(t, "whence"), "why", l.id, "--url", "http://"+w.api).CombinedOutput()
					if line := fmt.Sprintf("moved from %s to %s after ", m.From, m.To); err != nil || !strings.Contains(string(out), line) {
						t.Errorf("%q is missing: %v\n%s", line, err, out)
					}
				}
			}
			if moved < crowd/4 || moved > 3*crowd/4 {
				t.Errorf("%d of %d streams moved", moved, crowd)
			}
			w.works(t)
		})
	}
}

func untouched(*process, *testing.T) {}

func TestWorkersAreReplacedUnderRunningStreams(t *testing.T) {
	t.Parallel()
	w := runFleet(t, 2, flags{worker: []string{"--pace", "40", "--drain", "100ms"}})
	want := w.answer(t, greedy(long, "max_tokens", 150))
	var all [6]*live
	for i := range all {
		all[i] = w.open(t, greedy(long, "max_tokens", 150)).begun(t)
	}
	for i, p := range slices.Clone(w.workers) {
		p.terminate(t)
		p.exit(t)
		w.restartWorker(t, i, 2)
	}
	for _, l := range all {
		if got := l.completed(t); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		for _, m := range moves(w.why(t, l.id)) {
			if m.Reason != "draining" {
				t.Errorf("%+v", m)
			}
		}
	}
	if back := moves(w.why(t, all[0].id)); len(back) == 0 || back[len(back)-1].To != workerName(0) {
		t.Errorf("%+v", back)
	}
}

func TestStreamsEndTypedWhenNoWorkerIsLeft(t *testing.T) {
	t.Parallel()
	w := runFleet(t, 2, flags{worker: []string{"--pace", "10"}})
	var all [crowd]*live
	for i := range all {
		a := varied(i)
		delete(a, "stop") // no stream may end by itself before its worker is killed
		a["min_tokens"] = 100
		all[i] = w.open(t, a).begun(t)
	}
	for _, p := range w.workers {
		p.kill(t)
	}
	for i, l := range all {
		e := l.failed(t)
		byWorker := e.reason() == "peer_lost" && len(e.Path) == 3 && lab.ServiceOf(e.Path[0]) == llmWorker
		if !byWorker && e.reason() != "unavailable" {
			t.Errorf("stream %d ended with %s, path %v", i, e.reason(), e.Path)
		}
	}
	polltest.Eventually(t, "/readyz says that no request can be answered", func() bool { return w.readiness() == http.StatusServiceUnavailable })
	r := w.post(t, greedy(short))
	if e := r.completion(t).Error; r.status != http.StatusServiceUnavailable || e.reason() != "unavailable" || r.header.Get("Retry-After") == "" {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	w.restartWorker(t, 1, 2)
	w.ready(t)
	w.works(t)
}

func TestFullWorkersHandStreamsOn(t *testing.T) {
	t.Parallel()
	w := runFleet(t, 3, flags{worker: []string{"--max-running", "1", "--max-queued", "0", "--pace", "40"}})
	var all [3]*live
	for i := range all { // there is a place for each, whichever worker is chosen
		all[i] = w.open(t, greedy(long)).begun(t)
	}
	r := w.post(t, greedy(short))
	if e := r.completion(t).Error; r.status != http.StatusTooManyRequests || e.reason() != "overloaded" || r.header.Get("Retry-After") == "" {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	for _, l := range all {
		l.close()
		w.clientGoneAt(t, l.id)
	}
}

// clientGoneAt checks that the hops before the workers logged that the client left.
func (w *fleet) clientGoneAt(t *testing.T, stream string) {
	t.Helper()
	for hop, path := range map[string]string{apiService: "client > api-service", chatService: "client > api-service > chat-service"} {
		if got := w.ended(t, hop, stream); got.Reason != "client_gone" || got.Path != path {
			t.Errorf("%s logged reason %s, path %q", hop, got.Reason, got.Path)
		}
	}
}

// A passage is a client's view of one stream.
type passage struct {
	id     string
	result streamResult
	gap    time.Duration // the longest between two events with text
	err    error
}

// pass reads a stream to its end.
func (l *live) pass() (p passage) {
	p.id = l.id
	last, had := time.Now(), l.text.Len()
	for p.err == nil {
		if _, p.err = l.next(); l.text.Len() > had {
			now := time.Now()
			p.gap = max(p.gap, now.Sub(last))
			last, had = now, l.text.Len()
		}
	}
	if l.done && l.err == nil && l.usage != nil {
		p.result, p.err = streamResult{l.text.String(), l.finish, *l.usage}, nil
	} else if l.err != nil {
		p.err = fmt.Errorf("%s: %s", l.err.reason(), l.err.Message)
	}
	return p
}

// passages reads streams of all kinds concurrently, and calls midway when each has begun.
func (w *fleet) passages(t *testing.T, n int, midway func()) []passage {
	t.Helper()
	all := make([]*live, n)
	var opened sync.WaitGroup
	for i := range all {
		opened.Go(func() { all[i] = w.open(t, usageOf(varied(i))).begun(t) })
	}
	opened.Wait()
	if t.Failed() {
		t.FailNow()
	}
	read := make([]passage, n)
	var done sync.WaitGroup
	for i, l := range all {
		done.Go(func() { read[i] = l.pass() })
	}
	midway()
	done.Wait()
	return read
}
