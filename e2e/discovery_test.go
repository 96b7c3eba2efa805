package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/lab"
)

// An etcdServer is a real etcd server that the test starts.
type etcdServer struct {
	process *process
	url     string
}

func startEtcd(t *testing.T) *etcdServer {
	t.Helper()
	c, url, err := lab.Etcd(t.TempDir())
	if err != nil {
		missing(t, "%v", err)
	}
	s := &etcdServer{startCommand(t, c), url}
	t.Cleanup(func() { s.process.kill(t) }) // a signal ends it
	return s
}

func (s *etcdServer) workers() string { return s.url + "/workers" }
func (s *etcdServer) chats() string   { return s.url + "/chats" }

func TestWorkersAreDiscoveredByEtcd(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	w := above(t, server.chats(), "--worker", server.workers(), "--register", server.chats(), "--metrics-listen", "127.0.0.1:0")
	work := func(name string) *process {
		return startWorker(t, name, model, "--pace", "40", "--register", server.workers())
	}
	names := func() (all []string) {
		for _, worker := range w.workersNow(t) {
			if worker.State == "healthy" {
				all = append(all, worker.Name)
			}
		}
		slices.Sort(all)
		return all
	}
	found := func(what string, want ...string) time.Duration {
		begun := time.Now()
		polltest.Eventually(t, what, func() bool { return slices.Equal(names(), want) })
		return time.Since(begun)
	}
	first := work("llm-worker/1")
	w.ready(t)
	second := work("llm-worker/2")
	second.logged(t, "that it is registered", func(r record) bool { return r.Msg == "registered" })
	t.Log("a new worker gets streams after", found("both are found", "llm-worker/1", "llm-worker/2"))
	other := startWorker(t, "llm-worker/owl", "owl", "--register", server.workers())
	other.logged(t, "that it is registered", func(r record) bool { return r.Msg == "registered" })

	want := w.answer(t, greedy(long, "max_tokens", 200))
	var all [6]*live
	for i := range all {
		all[i] = w.open(t, greedy(long, "max_tokens", 200)).begun(t)
	}
	begun := time.Now()
	second.kill(t)
	polltest.Eventually(t, "the dead one vanishes", func() bool { return len(w.workersNow(t)) == 1 })
	t.Log("a dead worker vanishes after", time.Since(begun))
	for _, l := range all {
		if got := l.completed(t); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}

	for i := range all {
		all[i] = w.open(t, greedy(long, "max_tokens", 200)).begun(t)
	}
	server.process.kill(t)
	for _, p := range []*process{w.processes[chatService], w.processes[apiService]} {
		p.await(t, p.Log, "that discovery does not answer", func(line string) bool { return strings.Contains(line, "discovery does not answer") })
	}
	if s := w.processes[chatService].scrape(t); !strings.Contains(s.Text, `whence_discovery_unanswered{hop="chat-service"} 1`) {
		t.Error(s.Text)
	}
	for _, l := range all {
		if got := l.completed(t); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	w.works(t)
	first.await(t, first.Log, "that it is not registered", func(line string) bool { return strings.Contains(line, `"not registered`) })
	server.process.Args[slices.Index(server.process.Args, "--data-dir")+1] = t.TempDir() // it loses all of its data
	server.process.launch(t)
	w.processes[chatService].await(t, w.processes[chatService].Log, "that discovery answers again", func(line string) bool { return strings.Contains(line, "discovery answers again") })
	w.works(t)
	work("llm-worker/3")
	found("the old one and a new one are found", "llm-worker/1", "llm-worker/3")
	first.terminate(t)
	t.Log("a worker that drains is gone after", found("the one that drains is not used", "llm-worker/3"))
	w.works(t)
}

// TestOnlyWorkerKeepsItsStreamsWithoutItsLease: somebody revokes the lease of the only worker,
// again and again. No request is refused, because the worker answers its probes.
func TestOnlyWorkerKeepsItsStreamsWithoutItsLease(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	w := above(t, "", "--worker", server.workers())
	worker := startWorker(t, "llm-worker/1", model, "--register", server.workers())
	worker.logged(t, "that it is registered", func(r record) bool { return r.Msg == "registered" })
	w.ready(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{strings.Split(server.url, "/")[2]}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 3 {
		leases, err := client.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, lease := range leases.Leases {
			_, _ = client.Revoke(t.Context(), lease.ID) // the worker may have a new one
		}
		for range 20 {
			w.answer(t, greedy("Hi.", "max_tokens", 1))
		}
	}
}
