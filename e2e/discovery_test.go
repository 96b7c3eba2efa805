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
	w := &whence{topology: separate, processes: map[string]*process{}}
	w.processes[chatService] = service(t, chatService, "127.0.0.1:0", []string{"--worker", server.workers(), "--register", server.chats(), "--metrics-listen", "127.0.0.1:0"})
	w.processes[apiService] = service(t, apiService, "127.0.0.1:0", []string{"--chat", server.chats()})
	w.api = w.processes[apiService].listening(t)
	transport := &http.Transport{}
	w.http = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
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

func TestSeveralChatServices(t *testing.T) {
	t.Parallel()
	w := assemble(t, lab.Layout{Workers: 1, Chats: 2, Edges: 1, Worker: []string{"--pace", "40"}})
	chats := w.processes["chat-service/0"].listening(t) + "," + w.processes["chat-service/1"].listening(t)
	holders := map[string]int{}
	var all [4]*live
	for i := range all {
		all[i] = w.open(t, greedy(long)).begun(t)
		s := w.why(t, all[i].id)
		if len(s.Hops) != 3 {
			t.Fatalf("%+v", s)
		}
		holders[s.Hops[1].Hop]++
	}
	if holders["chat-service/0"] != 2 || holders["chat-service/1"] != 2 {
		t.Error("one chat-service got all streams:", holders)
	}
	other := service(t, apiService, "127.0.0.1:0", []string{"--name", "api-service/other", "--chat", chats})
	for _, l := range all[2:] { // one stream on each chat-service
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+other.listening(t)+"/v1/streams/"+l.id, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := w.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if r := readAll(t, resp); r.status != http.StatusAccepted {
			t.Errorf("status %d: %s", r.status, r.body)
		}
		if e := l.failed(t); e.reason() != "user_stop" || strings.Join(e.Path[:2], " > ") != "client > api-service/other" {
			t.Error(e)
		}
	}
	w.processes["chat-service/0"].kill(t)
	for _, l := range all[:2] { // one of these streams was on the lost chat-service
		if e := l.rest(t); e.err != nil {
			t.Error(e.err)
		}
	}
	for range 4 {
		w.works(t)
	}
	if r := w.readiness(); r != http.StatusOK {
		t.Error(r)
	}
	w.idle(t)
}
