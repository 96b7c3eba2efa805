package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var chaosRequests = flag.Int("chaos", 1000, "how many `requests` TestChaos sends")

// What became of a request, as its client saw it. Other outcomes are the codes of errors.
const (
	done    = "completed"
	cut     = "cut"  // the connection broke
	left    = "left" // the client has closed it
	stopped = "user_stop"
)

// workers are those of a mob.
var workers = []string{"llm-worker/0", "llm-worker/1"}

// A visit is one request, as its client saw it.
type visit struct {
	id         string
	api        string // the hop that was asked
	outcome    string
	begun, end time.Time
}

// A blow is what happened to a process.
type blow struct {
	hop        string
	signal     syscall.Signal
	begun, end time.Time // until it answers again
}

// A mob is a path whose processes are killed, drained, stopped and restarted, at random.
type mob struct {
	t     *testing.T
	args  map[string][]string   // by hop
	addrs map[string]string     // by hop
	procs map[string][]*process // by hop, the living one last
	blows []blow
}

// TestChaos sends requests while every process is killed and restarted at random, and wants the books to balance: every
// request ends once on every hop that lived to tell, as its client saw it, and no failure is anywhere a success.
func TestChaos(t *testing.T) {
	m := &mob{t: t, args: map[string][]string{}, addrs: map[string]string{}, procs: map[string][]*process{}}
	for _, hop := range workers {
		m.raise(hop, "--pace", "200", "--drain", "200ms")
	}
	m.raise(chatService, "--worker", m.addrs[workers[0]]+","+m.addrs[workers[1]], "--drain", "200ms")
	for _, hop := range []string{api0, api1} {
		m.raise(hop, "--chat", m.addrs[chatService], "--drain", "200ms")
	}
	visits := m.crowd(*chaosRequests)
	b := m.books()
	b.audit(t, visits, m.blows)
	counts := map[string]int{}
	for _, v := range visits {
		counts[v.outcome]++
	}
	t.Logf("%d requests, %d blows: %v", len(visits), len(m.blows), counts)
	if counts[done] < *chaosRequests/10 {
		t.Errorf("only %d of %d requests were answered: %v", counts[done], len(visits), counts)
	}
}

// raise starts a hop for the first time.
func (m *mob) raise(hop string, args ...string) {
	m.t.Helper()
	m.args[hop] = append([]string{"--log-json", "--name", hop}, args...)
	m.restart(hop, "127.0.0.1:0")
}

func (m *mob) restart(hop, listen string) {
	m.t.Helper()
	p := start(m.t, serviceOf(hop), append([]string{"--listen", listen}, m.args[hop]...)...)
	m.procs[hop] = append(m.procs[hop], p)
	m.addrs[hop] = p.listening(m.t)
}

// crowd sends n requests from many clients, and deals blows until they are answered. If few of them succeed, because
// processes start slowly on a busy machine, it sends more, up to ten times n.
func (m *mob) crowd(n int) []visit {
	m.t.Helper()
	var (
		mu     sync.Mutex
		visits []visit
		next   atomic.Int64
		dones  atomic.Int64
		wg     sync.WaitGroup
	)
	addrs := map[string]string{api0: m.addrs[api0], api1: m.addrs[api1]} // ports stay
	for range 24 {
		wg.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			v := visitor{http: &http.Client{Transport: transport, Timeout: patience}, addrs: addrs}
			for i := next.Add(1); i <= int64(n) || i <= int64(10*n) && dones.Load() < int64(n/10); i = next.Add(1) {
				seen, ok := v.call(m.t.Context(), fmt.Sprintf("chaos-%d", i))
				for !ok && m.t.Context().Err() == nil { // nobody listened: it was not sent
					seen, ok = v.call(m.t.Context(), seen.id)
				}
				if seen.outcome == done {
					dones.Add(1)
				}
				mu.Lock()
				visits = append(visits, seen)
				mu.Unlock()
			}
		})
	}
	over := make(chan struct{})
	go func() {
		wg.Wait()
		close(over)
	}()
	for {
		select {
		case <-over:
			return visits
		case <-time.After(time.Duration(200+rand.IntN(500)) * time.Millisecond):
			m.strike()
		}
	}
}

// strike does something to a process, and sees that it answers again.
func (m *mob) strike() {
	m.t.Helper()
	hop := []string{workers[0], workers[1], chatService, chatService, api0, api1}[rand.IntN(6)]
	b := blow{hop: hop, signal: []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSTOP}[rand.IntN(3)], begun: time.Now()}
	p := m.procs[hop][len(m.procs[hop])-1]
	switch b.signal {
	case syscall.SIGKILL:
		p.kill(m.t)
		m.restart(hop, m.addrs[hop])
	case syscall.SIGTERM:
		p.terminate(m.t)
		p.exit(m.t)
		m.restart(hop, m.addrs[hop])
	default:
		_ = p.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(time.Duration(rand.IntN(600)) * time.Millisecond)
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
	}
	b.end = time.Now()
	m.blows = append(m.blows, b)
}

// A visitor is a client.
type visitor struct {
	http  *http.Client
	addrs map[string]string
}

// call sends a request, in one of the ways that clients do, and says what became of it. It is not ok if it could not be sent.
func (v *visitor) call(ctx context.Context, id string) (seen visit, ok bool) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	seen = visit{id: id, api: []string{api0, api1}[rand.IntN(2)], begun: time.Now()}
	how := rand.IntN(10)
	body, err := json.Marshal(greedy(short, "stream", how > 2))
	if err != nil {
		return seen, false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+v.addrs[seen.api]+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		return seen, false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(idName, id)
	req.GetBody = nil // a request is sent once
	resp, err := v.http.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		time.Sleep(20 * time.Millisecond)
		return seen, false
	}
	seen.outcome = cut
	if err == nil {
		seen.outcome = v.read(resp, how, id, leave)
	}
	seen.end = time.Now()
	if seen.outcome != done && seen.outcome != left {
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // clients back off
	}
	return seen, true
}

// read reads a response as far as its client wants to.
func (v *visitor) read(resp *http.Response, how int, id string, leave func()) string {
	defer resp.Body.Close()
	if how <= 2 || resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(resp.Body)
		var c completion
		switch {
		case err != nil || json.Unmarshal(body, &c) != nil:
			return cut
		case c.Error != nil:
			return c.Error.reason()
		default:
			return done
		}
	}
	l := newLive(resp)
	for n := 0; ; n++ {
		if _, err := l.next(); err != nil {
			break
		}
		switch {
		case n == 5 && how == 3:
			leave()
			return left
		case n == 5 && how == 4:
			v.stop(id)
		}
	}
	switch {
	case l.err != nil:
		return l.err.reason()
	case l.done:
		return done
	default:
		return cut
	}
}

// stop sends a DELETE to one of the replicas; whether it arrives does not matter.
func (v *visitor) stop(id string) {
	req, err := http.NewRequest(http.MethodDelete, "http://"+v.addrs[[]string{api0, api1}[rand.IntN(2)]]+"/v1/streams/"+id, nil)
	if err != nil {
		return
	}
	if resp, err := v.http.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

// books are all endings that were logged: by hop and stream.
type books map[string]map[string][]string

// books awaits the end of all processes, and reads what they have logged.
func (m *mob) books() books {
	m.t.Helper()
	all := books{}
	for hop, procs := range m.procs {
		all[hop] = map[string][]string{}
		for _, p := range procs {
			if !p.ended {
				p.terminate(m.t)
				p.exit(m.t)
			}
			lines, _ := p.logs.since(0)
			for _, line := range lines {
				if r := (record{}); json.Unmarshal([]byte(line), &r) == nil && (r.Msg == "stream ended" || r.Msg == "request refused") && strings.HasPrefix(r.Stream, "chaos-") {
					all[hop][r.Stream] = append(all[hop][r.Stream], r.Reason)
				}
			}
		}
	}
	return all
}

// audit compares what clients saw with what hops logged.
func (b books) audit(t *testing.T, visits []visit, blows []blow) {
	t.Helper()
	sent := map[string]bool{}
	for _, v := range visits {
		if sent[v.id] {
			t.Errorf("%s: sent twice", v.id)
		}
		sent[v.id] = true
		// A hop records an ending after it has delivered it, and hears of a client that leaves later than the
		// client itself: a process that is killed just after v.end may have had no time to log it.
		ended := func(hop string, signals ...syscall.Signal) bool {
			return slices.ContainsFunc(blows, func(w blow) bool {
				return w.hop == hop && slices.Contains(signals, w.signal) && w.begun.Before(v.end.Add(time.Second)) && w.end.After(v.begun)
			})
		}
		killed := func(hop string) bool { return ended(hop, syscall.SIGKILL) }
		other := map[string]string{api0: api1, api1: api0}[v.api]
		if ends := b[other][v.id]; len(ends) != 0 {
			t.Errorf("%s: %s, which was not asked, logged %v", v.id, other, ends)
		}
		switch ends := b[v.api][v.id]; {
		case len(ends) > 1:
			t.Errorf("%s: %s logged %v", v.id, v.api, ends)
		case len(ends) == 0 && (v.outcome == cut || v.outcome == left) && killed(v.api): // it took what it knew with it
		case len(ends) == 0 && v.outcome == cut && ended(v.api, syscall.SIGTERM): // a kept connection was closed as the request was on its way
		case len(ends) == 0 && v.outcome == left && len(b[chatService][v.id]) == 0: // it left before its request was read
		case len(ends) == 0:
			t.Errorf("%s: %s logged nothing, and was not killed; the client saw %s", v.id, v.api, v.outcome)
		case v.outcome == left: // it may have been over before the client left, in any way
		case v.outcome == cut && ends[0] == done:
			t.Errorf("%s: %s logged a success; the client saw its connection break", v.id, v.api)
		case v.outcome != cut && ends[0] != v.outcome:
			t.Errorf("%s: %s logged %s; the client saw %s", v.id, v.api, ends[0], v.outcome)
		}
		b.auditBelow(t, v, killed)
	}
	for hop, streams := range b {
		for id := range streams {
			if !sent[id] {
				t.Errorf("%s logged %s, which nobody sent", hop, id)
			}
		}
	}
}

// auditBelow compares what a client saw with what chat-service and workers logged. A stream that has moved has ended on each
// worker that it was on, and was a success on the last one only.
func (b books) auditBelow(t *testing.T, v visit, killed func(hop string) bool) {
	t.Helper()
	chat := b[chatService][v.id]
	var work []string
	lost := killed(chatService)
	for _, hop := range workers {
		work = append(work, b[hop][v.id]...)
		lost = lost || killed(hop)
	}
	successes := 0
	for _, end := range work {
		if end == done {
			successes++
		}
	}
	seen := v.outcome == done || v.outcome == left || v.outcome == cut
	switch {
	case len(chat) > 1:
		t.Errorf("%s: chat-service logged %v", v.id, chat)
	case successes > 1:
		t.Errorf("%s: workers logged %v", v.id, work)
	case v.outcome == done && !lost && (len(chat) == 0 || chat[0] != done || successes == 0):
		t.Errorf("%s: chat-service logged %v, workers %v; the client saw a success", v.id, chat, work)
	case v.outcome == stopped && len(chat) == 1 && chat[0] == stopped && successes == 1: // the answer was complete before the worker heard of the stop
	case !seen && !lost && (len(chat) == 1 && chat[0] == done || successes > 0):
		t.Errorf("%s: chat-service logged %v, workers %v; the client saw %s", v.id, chat, work, v.outcome)
	}
}
