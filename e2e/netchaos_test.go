package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
)

var (
	netChaosFor  = flag.Duration("net-chaos", 10*time.Second, "`duration` of the faults in TestNetworkChaos")
	netChaosSeed = flag.Uint64("net-chaos-seed", 1, "`seed` of the faults in TestNetworkChaos")
)

// Outcomes of a request for its client. Other outcomes are the reasons of errors.
const (
	done = "completed"
	cut  = "cut" // the connection broke
)

// workers are the workers of a chaosPath.
var workers = []string{lab.Worker0, lab.Worker1}

// A chaosPath is a path of services behind wires.
type chaosPath struct {
	t     *testing.T
	procs map[string]*process  // by hop
	wires map[string]*lab.Wire // by hop
}

// start starts a hop.
func (m *chaosPath) start(hop string, args ...string) *process {
	m.t.Helper()
	m.procs[hop] = service(m.t, lab.ServiceOf(hop), "127.0.0.1:0", append([]string{"--name", hop}, args...))
	return m.procs[hop]
}

// startWired starts a hop behind a wire, on both of its ports, and returns the address of the wire.
func (m *chaosPath) startWired(hop string, args ...string) string {
	m.t.Helper()
	links := freeAddr(m.t)
	p := m.start(hop, append([]string{"--link-port", links[strings.LastIndexByte(links, ':')+1:]}, args...)...)
	m.wires[hop] = wired(m.t, p.listening(m.t), links)
	return m.wires[hop].Addr()
}

// A hopStrike is a strike of one hop.
type hopStrike struct {
	lab.Strike
	hop string
}

// draw returns the next strike of a seeded schedule.
func draw(random *rand.Rand) hopStrike {
	return hopStrike{lab.Draw(random), []string{workers[0], workers[1], chatService}[random.IntN(3)]}
}

// TestNetworkChaos puts wires between the hops, and plays a seeded schedule of their faults under
// load, one or two at a time. Callees are also frozen, drained and killed. Each request is told how it
// ended, once; a complete answer has every token once; and the edge logs what the client saw.
// scripts/chaos plays longer schedules.
func TestNetworkChaos(t *testing.T) {
	tier.Full(t)
	m := &chaosPath{t: t, procs: map[string]*process{}, wires: map[string]*lab.Wire{}}
	first := m.startWired(workers[0], "--pace", "100", "--drain", "200ms")
	second := m.startWired(workers[1], "--pace", "100", "--drain", "200ms")
	chat := m.startWired(chatService, "--worker", first+","+second, "--drain", "200ms")
	edge := m.start(api0, "--chat", chat)
	w := &whence{topology: separate, api: edge.listening(t), worker: m.procs[workers[0]].listening(t)}
	w.connected(t)
	want := w.answer(t, greedy(short))

	var over atomic.Bool
	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes, ids := map[string]int{}, map[string]string{}
	for client := range 12 {
		wg.Go(func() {
			for n := 0; !over.Load(); n++ {
				id := fmt.Sprintf("chaos-%d-%d", client, n)
				outcome := w.chaosStream(t, id, want)
				mu.Lock()
				outcomes[outcome]++
				ids[id] = outcome
				mu.Unlock()
				if outcome != done {
					lab.Pause(t.Context(), 100*time.Millisecond) // clients back off
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(*netChaosSeed, 0))
	var schedule []string
	for begun := time.Now(); time.Since(begun) < *netChaosFor; {
		strikes := []hopStrike{draw(random)}
		if other := draw(random); random.IntN(2) == 0 && other.hop != strikes[0].hop {
			strikes = append(strikes, other)
		}
		lasts := time.Duration(100+random.IntN(1900)) * time.Millisecond
		for _, s := range strikes {
			schedule = append(schedule, fmt.Sprintf("%s: %s for %v", s.hop, s.Name, lasts))
			if err := s.Hit(m.procs[s.hop].Process, m.wires[s.hop]); err != nil {
				t.Fatal(err)
			}
		}
		lab.Pause(t.Context(), lasts)
		for _, s := range strikes {
			if err := s.Mend(m.procs[s.hop].Process, m.wires[s.hop]); err != nil {
				t.Fatal(err)
			}
		}
		lab.Pause(t.Context(), time.Duration(random.IntN(500))*time.Millisecond)
	}
	over.Store(true)
	wg.Wait()
	t.Logf("seed %d: %v", *netChaosSeed, outcomes)
	w.ready(t)
	polltest.Eventually(t, "the path answers again", func() bool { return w.post(t, greedy(short)).status == http.StatusOK })
	w.idle(t)
	edge.terminate(t)
	edge.exit(t)
	logged := map[string][]string{}
	for _, r := range edge.Records() {
		if r.Msg == "stream ended" || r.Msg == "request refused" {
			logged[r.Stream] = append(logged[r.Stream], r.Reason)
		}
	}
	for id, outcome := range ids {
		if ends := logged[id]; len(ends) != 1 || ends[0] != outcome {
			t.Errorf("%s: the client saw %s, the edge logged %v", id, outcome, ends)
		}
	}
	if outcomes[done] == 0 {
		t.Error("no request was answered")
	}
	if t.Failed() {
		t.Logf("replay with -net-chaos-seed %d; the schedule was\n%s", *netChaosSeed, strings.Join(schedule, "\n"))
	}
}

// chaosStream sends a request, and returns its outcome for the client. A broken connection, and an
// answer with a lost or doubled token, are errors of the test.
func (w *whence) chaosStream(t *testing.T, id, want string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := w.do(ctx, http.MethodPost, w.url("/v1/chat/completions"), greedy(short, "stream", true), idName, id)
	if err != nil {
		t.Errorf("%s: %v", id, err)
		return cut
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var c completion
		if err := json.NewDecoder(resp.Body).Decode(&c); err != nil || c.Error == nil {
			t.Errorf("%s: status %d without an error: %v", id, resp.StatusCode, err)
			return cut
		}
		return c.Error.reason()
	}
	l := newLive(resp)
	for {
		if _, err := l.next(); err != nil {
			break
		}
	}
	switch {
	case l.err != nil && !l.done:
		if !strings.HasPrefix(want, l.text.String()) {
			t.Errorf("%s: %q is no beginning of the answer", id, l.text.String())
		}
		return l.err.reason()
	case l.done && l.err == nil && l.text.String() == want:
		return done
	default:
		t.Errorf("%s: the stream ended with %q, [DONE] %t, error %+v", id, l.text.String(), l.done, l.err)
		return cut
	}
}
