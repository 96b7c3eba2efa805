package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/lab"
)

// A victim is a process that a test ends.
type victim struct {
	topology, service string
	path              []string // of the ending that the client gets
}

// victims lists all processes. In one process the edge drains first, as in a gateway.
var victims = []victim{
	{allInOne, apiService, []string{"api-service"}},
	{inGateway, apiService, []string{"api-service"}},
	{separate, apiService, []string{"api-service"}},
	{separate, chatService, []string{"chat-service", "api-service"}},
	{separate, llmWorker, []string{"llm-worker/0", "chat-service", "api-service"}},
}

func eachVictim(t *testing.T, victims []victim, f flags, test func(*testing.T, *whence, victim)) {
	t.Parallel()
	for _, v := range victims {
		t.Run(v.topology+" "+v.service, func(t *testing.T) {
			t.Parallel()
			test(t, run(t, v.topology, f), v)
		})
	}
}

func TestDrainingProcessFinishesItsStreamsAndAcceptsNoMore(t *testing.T) {
	eachVictim(t, victims, flags{worker: []string{"--pace", "40"}}, func(t *testing.T, w *whence, v victim) {
		want := w.answer(t, greedy(long, "max_tokens", 60))
		running := w.open(t, greedy(long, "max_tokens", 60)).begun(t)
		p := w.processes[v.service]
		p.terminate(t)
		p.logged(t, "that it drains", func(r record) bool { return strings.HasPrefix(r.Msg, "draining: live streams") })
		polltest.Eventually(t, "/readyz says that no request can be answered", func() bool { return w.readiness() != http.StatusOK })
		select {
		case <-p.Exited():
			t.Fatalf("/readyz did not report the drain of %s before its end", v.service)
		default:
		}
		for _, stream := range []bool{false, true} {
			resp, err := w.send(t, greedy(short, "stream", stream), "")
			if err != nil {
				t.Fatal(err) // the process that runs a stream still listens
			}
			r := readAll(t, resp)
			e := r.completion(t).Error
			ok := e.reason() == "draining" && slices.Equal(e.Path, v.path)
			if v.service == llmWorker && e.reason() == "unavailable" {
				ok = slices.Equal(e.Path, v.path[1:]) // chat-service does not call a draining worker
			}
			if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" || !ok {
				t.Errorf("new request: status %d, Retry-After %q: %s", r.status, r.header.Get("Retry-After"), r.body)
			}
		}
		if got := running.completed(t); got != want {
			t.Errorf("the running stream got %q, want %q", got, want)
		}
		p.exit(t)
	})
}

// drained checks that every hop logged that a stream ended because of the victim's drain: hops
// before the victim get an error, hops after it a stop. A hop after it that shuts down in the same
// process may end the stream itself, if the machine is so busy that the stop comes later.
func (w *whence) drained(t *testing.T, stream string, v victim) {
	t.Helper()
	at := slices.IndexFunc(hops, func(hop string) bool { return lab.ServiceOf(hop) == v.service })
	for i, hop := range hops {
		path := slices.Clone(hops[min(i, at) : max(i, at)+1])
		if i < at {
			slices.Reverse(path)
		}
		got := w.ended(t, hop, stream)
		if i > at && w.topology == allInOne && got.Path == hop {
			path = []string{hop}
		}
		if want := strings.Join(path, " > "); got.Reason != "draining" || got.Path != want {
			t.Errorf("%s logged reason %s, path %q; want draining, %q", hop, got.Reason, got.Path, want)
		}
	}
}

// TestSecondSignalEndsEachStreamOnce checks that the client and each hop get one ending. It covers one
// process. TestWhodunit covers several.
func TestSecondSignalEndsEachStreamOnce(t *testing.T) {
	eachVictim(t, victims[:1], flags{worker: []string{"--pace", "40"}}, func(t *testing.T, w *whence, v victim) {
		running := w.open(t, greedy(long)).begun(t)
		p := w.processes[v.service]
		p.terminate(t)
		first := p.logged(t, "the log line of the drain", func(r record) bool { return strings.HasPrefix(r.Msg, "draining: live streams") })
		if first.Streams != 1 || time.Until(first.Until) < time.Second {
			t.Errorf("the process waits for %d streams until %v", first.Streams, first.Until)
		}
		p.terminate(t)
		if e := running.failed(t); e.reason() != "draining" || !slices.Equal(e.Path, v.path) {
			t.Errorf("the client reads reason %q, path %v; want draining, %v", e.reason(), e.Path, v.path)
		}
		p.exitWith(t, 130)
		w.drained(t, running.id, v)
	})
}
