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

	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
)

var chaosRequests = flag.Int("chaos", 1000, "number of `requests` that TestChaos sends")

// Outcomes of a request for its client. Other outcomes are the codes of errors.
const (
	done = "completed"
	cut  = "cut"  // the connection broke
	left = "left" // the client closed the connection
)

// workers are the workers of a chaosPath.
var workers = []string{"llm-worker/0", "llm-worker/1"}

// A clientView is the client's view of one request.
type clientView struct {
	id         string
	api        string // the hop that got the request
	outcome    string
	begun, end time.Time
}

// A processFault is an injected fault.
type processFault struct {
	hop        string
	signal     syscall.Signal
	begun, end time.Time // the process answers again at end
}

// A chaosPath is a path whose processes are killed, drained, stopped and restarted at random.
type chaosPath struct {
	t      *testing.T
	addrs  map[string]string   // by hop
	procs  map[string]*process // by hop
	faults []processFault
}

// TestChaos sends requests while every process is killed and restarted at random. Every request
// must end once on every surviving hop, with the ending that its client saw, and no hop may record
// a failure as a success.
func TestChaos(t *testing.T) {
	tier.Full(t)
	m := &chaosPath{t: t, addrs: map[string]string{}, procs: map[string]*process{}}
	for _, hop := range workers {
		m.startHop(hop, "--pace", "200", "--drain", "200ms")
	}
	m.startHop(chatService, "--worker", m.addrs[workers[0]]+","+m.addrs[workers[1]], "--drain", "200ms")
	for _, hop := range []string{api0, api1} {
		m.startHop(hop, "--chat", m.addrs[chatService], "--drain", "200ms")
	}
	views := m.crowd(*chaosRequests)
	b := m.endings()
	b.audit(t, views, m.faults)
	counts := map[string]int{}
	for _, v := range views {
		counts[v.outcome]++
	}
	t.Logf("%d requests, %d faults: %v", len(views), len(m.faults), counts)
	if counts[done] < *chaosRequests/10 {
		t.Errorf("only %d of %d requests were answered: %v", counts[done], len(views), counts)
	}
}

// startHop starts a hop for the first time.
func (m *chaosPath) startHop(hop string, args ...string) {
	m.t.Helper()
	m.procs[hop] = service(m.t, lab.ServiceOf(hop), "127.0.0.1:0", append([]string{"--name", hop}, args...))
	m.addrs[hop] = m.procs[hop].listening(m.t)
}

// crowd sends n requests from many clients, and injects faults until they are answered. If few of
// them succeed, because processes start slowly on a busy machine, it sends more, up to ten times n.
func (m *chaosPath) crowd(n int) []clientView {
	m.t.Helper()
	var (
		mu    sync.Mutex
		views []clientView
		next  atomic.Int64
		dones atomic.Int64
		wg    sync.WaitGroup
	)
	addrs := map[string]string{api0: m.addrs[api0], api1: m.addrs[api1]} // ports do not change
	for range 24 {
		wg.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			v := chaosClient{http: &http.Client{Transport: transport, Timeout: patience}, addrs: addrs}
			for i := next.Add(1); i <= int64(n) || i <= int64(10*n) && dones.Load() < int64(n/10); i = next.Add(1) {
				seen, ok := v.call(m.t.Context(), fmt.Sprintf("chaos-%d", i))
				for !ok && m.t.Context().Err() == nil { // no process listened, so the request was not sent
					seen, ok = v.call(m.t.Context(), seen.id)
				}
				if seen.outcome == done {
					dones.Add(1)
				}
				mu.Lock()
				views = append(views, seen)
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
			return views
		case <-time.After(time.Duration(200+rand.IntN(500)) * time.Millisecond):
			m.strike()
		}
	}
}

// strike injects a fault into a process and waits until the process answers again.
func (m *chaosPath) strike() {
	m.t.Helper()
	hop := []string{workers[0], workers[1], chatService, chatService, api0, api1}[rand.IntN(6)]
	b := processFault{hop: hop, signal: []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSTOP}[rand.IntN(3)], begun: time.Now()}
	p := m.procs[hop]
	switch b.signal {
	case syscall.SIGKILL:
		p.kill(m.t)
		p.relaunch(m.t)
	case syscall.SIGTERM:
		p.terminate(m.t)
		p.exit(m.t)
		p.relaunch(m.t)
	default:
		p.signal(m.t, syscall.SIGSTOP)
		time.Sleep(time.Duration(rand.IntN(600)) * time.Millisecond)
		p.signal(m.t, syscall.SIGCONT)
	}
	b.end = time.Now()
	m.faults = append(m.faults, b)
}

// A chaosClient sends requests.
type chaosClient struct {
	http  *http.Client
	addrs map[string]string
}

// call sends a request in one of several ways, and returns its outcome. ok is false if the request
// could not be sent.
func (v *chaosClient) call(ctx context.Context, id string) (seen clientView, ok bool) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	seen = clientView{id: id, api: []string{api0, api1}[rand.IntN(2)], begun: time.Now()}
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
	req.GetBody = nil // prevents retries by net/http
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

// read reads a response up to the point where its client stops.
func (v *chaosClient) read(resp *http.Response, how int, id string, leave func()) string {
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

// stop sends a DELETE to one of the replicas, and ignores whether it arrives.
func (v *chaosClient) stop(id string) {
	req, err := http.NewRequest(http.MethodDelete, "http://"+v.addrs[[]string{api0, api1}[rand.IntN(2)]]+"/v1/streams/"+id, nil)
	if err != nil {
		return
	}
	if resp, err := v.http.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

// A loggedEnding is the ending of a stream in the log of a hop.
type loggedEnding struct {
	reason string
	path   []string
}

func (e loggedEnding) String() string { return fmt.Sprint(e.reason, e.path) }

// fromAbove reports whether the ending came down to its hop, so that none of the given hops, which
// are below it, is on its path. A refused request has no path, and did not come down.
func (e loggedEnding) fromAbove(hops ...string) bool {
	return e.path[0] != "" && !slices.ContainsFunc(e.path, func(hop string) bool { return slices.Contains(hops, hop) })
}

// loggedEndings are all logged endings, by hop and stream.
type loggedEndings map[string]map[string][]loggedEnding

// endings waits until all processes have ended, and reads their logs.
func (m *chaosPath) endings() loggedEndings {
	m.t.Helper()
	all := loggedEndings{}
	for hop, p := range m.procs {
		all[hop] = map[string][]loggedEnding{}
		if !p.Ordered() {
			p.terminate(m.t)
			p.exit(m.t)
		}
		for _, run := range p.Runs() {
			for _, r := range run.Records() {
				if (r.Msg == "stream ended" || r.Msg == "request refused") && strings.HasPrefix(r.Stream, "chaos-") {
					all[hop][r.Stream] = append(all[hop][r.Stream], loggedEnding{r.Reason, strings.Split(r.Path, " > ")})
				}
			}
		}
	}
	return all
}

// audit compares the outcomes for clients with the logs of the hops.
func (b loggedEndings) audit(t *testing.T, views []clientView, faults []processFault) {
	t.Helper()
	sent := map[string]bool{}
	for _, v := range views {
		if sent[v.id] {
			t.Errorf("%s: the id was used twice", v.id)
		}
		sent[v.id] = true
		// A hop records an ending after delivering it, and notices that a client has left later
		// than the client itself: a process that is killed just after v.end may not have logged the
		// ending.
		ended := func(hop string, signals ...syscall.Signal) bool {
			return slices.ContainsFunc(faults, func(w processFault) bool {
				return w.hop == hop && slices.Contains(signals, w.signal) && w.begun.Before(v.end.Add(time.Second)) && w.end.After(v.begun)
			})
		}
		killed := func(hop string) bool { return ended(hop, syscall.SIGKILL) }
		other := map[string]string{api0: api1, api1: api0}[v.api]
		if ends := b[other][v.id]; len(ends) != 0 {
			t.Errorf("%s: %s logged %v, but got no request", v.id, other, ends)
		}
		switch ends := b[v.api][v.id]; {
		case len(ends) > 1:
			t.Errorf("%s: %s logged %v", v.id, v.api, ends)
		case len(ends) == 0 && (v.outcome == cut || v.outcome == left) && killed(v.api): // its log is lost
		case len(ends) == 0 && v.outcome == cut && ended(v.api, syscall.SIGTERM): // a keep-alive connection was closed while the request was in flight
		case len(ends) == 0 && v.outcome == left && len(b[chatService][v.id]) == 0: // the client left before its request was read
		case len(ends) == 0:
			t.Errorf("%s: %s logged nothing although it was not killed; the client saw %s", v.id, v.api, v.outcome)
		case v.outcome == left: // the stream may have ended before the client left, with any ending
		case v.outcome == cut && ends[0].reason == done && killed(v.api): // between its record and the write of a whole answer
		case v.outcome == cut && ends[0].reason == done:
			t.Errorf("%s: %s logged a success; the client saw its connection break", v.id, v.api)
		case v.outcome != cut && ends[0].reason != v.outcome:
			t.Errorf("%s: %s logged %s; the client saw %s", v.id, v.api, ends[0], v.outcome)
		}
		b.auditBelow(t, v, killed)
	}
	for hop, streams := range b {
		for id := range streams {
			if !sent[id] {
				t.Errorf("%s logged %s, which no client sent", hop, id)
			}
		}
	}
}

// auditBelow compares the outcome for a client with the logs of chat-service and workers. A moved
// stream has ended on each of its workers, and was a success only on the last one. A stop may cross the
// end of an answer: a hop that hangs for longer than its caller waits records a success then.
func (b loggedEndings) auditBelow(t *testing.T, v clientView, killed func(hop string) bool) {
	t.Helper()
	api, chat := b[v.api][v.id], b[chatService][v.id]
	var work []loggedEnding
	lost := killed(chatService)
	for _, hop := range workers {
		work = append(work, b[hop][v.id]...)
		lost = lost || killed(hop)
	}
	successes := 0
	for _, end := range work {
		if end.reason == done {
			successes++
		}
	}
	answered := len(chat) > 0 && chat[0].reason == done
	failed := v.outcome != done && v.outcome != left && v.outcome != cut
	switch {
	case len(chat) > 1:
		t.Errorf("%s: chat-service logged %v", v.id, chat)
	case successes > 1:
		t.Errorf("%s: workers logged %v", v.id, work)
	case lost:
	case v.outcome == done && (!answered || successes == 0):
		t.Errorf("%s: chat-service logged %v, workers %v; the client saw a success", v.id, chat, work)
	case failed && answered && (len(api) == 0 || !api[0].fromAbove(chatService)):
		t.Errorf("%s: chat-service logged %v, %s %v; the client saw %s", v.id, chat, v.api, api, v.outcome)
	case failed && !answered && successes > 0 && (len(chat) == 0 || !chat[0].fromAbove(workers...)):
		t.Errorf("%s: workers logged %v, chat-service %v; the client saw %s", v.id, work, chat, v.outcome)
	}
}
