package e2e

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/lab"
)

// A redisServer is a real Redis server that the test starts.
type redisServer struct {
	*process
	url string
}

func startRedis(t *testing.T) *redisServer {
	t.Helper()
	c, url, err := lab.Redis(t.TempDir(), "--appendonly", "yes", "--appendfsync", "no") // a killed Redis loses nothing that the kernel has, and a slow disk holds up nothing
	if err != nil {
		missing(t, "%v", err)
	}
	return &redisServer{startCommand(t, c), url}
}

func (s *redisServer) stop(t *testing.T) {
	t.Helper()
	s.terminate(t)
	s.exit(t)
}

// replicas starts two api-services that share a Redis.
func replicas(t *testing.T, pace string, more ...string) (*scene, *redisServer) {
	t.Helper()
	return replicasOf(t, flags{api: more, worker: []string{"--pace", pace}})
}

// replicasOf is replicas with more flags.
func replicasOf(t *testing.T, f flags) (*scene, *redisServer) {
	t.Helper()
	server := startRedis(t)
	f.api = append([]string{"--redis", server.url, "--token-key", "for tests", "--redis-lease", "3s"}, f.api...) // 3 s, because processes of tests are short of CPU
	return stage(t, "", t.TempDir(), f), server
}

func TestStreamIsResumedOnTheOtherReplica(t *testing.T) {
	t.Parallel()
	s, _ := replicas(t, "100")
	want := s.answer(t, greedy(long, "max_tokens", 150))
	m := s.makeStream(t, greedy(long, "max_tokens", 150))
	if !m.Resumable {
		t.Error("the new stream is not resumable")
	}
	here, there := m.read(t, s.addrs[api0]), m.read(t, s.addrs[api1])
	here.begun()
	here.cut()
	here.url = there.url // as behind a load balancer
	here.begun().rest().completed(want)
	there.begun().rest().completed(want)
	if r := s.postStream(t, greedy(short), "Idempotency-Key", "k"); r.status != 201 {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	s.api = s.addrs[api1]
	if r := s.postStream(t, greedy(short), "Idempotency-Key", "k"); r.status != 200 {
		t.Errorf("the same key on the other replica: status %d: %s", r.status, r.body)
	}
}

func TestReaderOfAnotherReplicaKeepsAStreamAlive(t *testing.T) {
	t.Parallel()
	s, _ := replicas(t, "40")
	want := s.answer(t, greedy(long))
	m := s.makeStream(t, greedy(long), "X-Leave", "linger:1s")
	there := m.read(t, s.addrs[api1]).begun()
	for there.text.Len() < len(want)/2 { // at this pace, this takes longer than the linger time
		if !there.next() {
			t.Fatal("the stream ended although it had a reader")
		}
	}
	if there.over() {
		t.Fatal("the stream ended although it had a reader:", there.names, there.err.statement())
	}
	there.cut()
	s.id = m.ID
	polltest.Eventually(t, "the stream ends", func() bool { return s.logged(work) != "" })
	if got := s.logged(work); got != "client_gone: client > api-service/0 > chat-service > llm-worker/0" {
		t.Error(got)
	}
	if there.connect() != 200 {
		t.Fatal("the ended stream cannot be read")
	}
	there.rest().failed("client_gone: client > api-service/0")
}

// TestDeadReplicaLosesNoSentEvents: no request is stored, so the stream ends with its api-service.
func TestDeadReplicaLosesNoSentEvents(t *testing.T) {
	t.Parallel()
	s, _ := replicas(t, "40", "--takeover-bytes", "0")
	want := s.answer(t, greedy(long))
	m := s.makeStream(t, greedy(long))
	here, there := m.read(t, s.addrs[api0]).begun(), m.read(t, s.addrs[api1]).begun()
	for range 20 {
		here.next()
	}
	at := time.Now()
	s.procs[api0].kill(t)
	for here.next() {
	}
	sent := here.text.String()
	here.url = strings.Replace(here.url, s.addrs[api0], s.addrs[api1], 1)
	if here.connect() != 200 {
		t.Fatal("events that the dead replica sent are lost")
	}
	here.rest()
	there.rest()
	t.Logf("the ending came %v after the death", time.Since(at).Round(time.Millisecond))
	for _, r := range []*reader{here, there, m.read(t, s.addrs[api1]).begun().rest()} {
		if got := r.text.String(); !strings.HasPrefix(got, sent) || !strings.HasPrefix(want, got) {
			t.Errorf("the dead replica had sent %q, but the reader has %q", sent, got)
		}
		r.failed("peer_lost: api-service/0 > api-service/1")
	}
	s.id = m.ID
	if got := s.logged(work); got != "peer_lost: api-service/0 > chat-service > llm-worker/0" {
		t.Error("the worker logged", got)
	}
}

func TestStreamsOutliveRedis(t *testing.T) {
	t.Parallel()
	s, server := replicas(t, "40")
	want := s.answer(t, greedy(long, "max_tokens", 200))
	m := s.makeStream(t, greedy(long, "max_tokens", 200))
	here, there := m.read(t, s.addrs[api0]).begun(), m.read(t, s.addrs[api1]).begun()
	server.stop(t)
	if n := here.text.Len(); !here.next() || here.text.Len() == n {
		t.Fatal("the reader at the stream's own replica gets no more events")
	}
	alone := s.makeStream(t, greedy("What is 2 + 3?"))
	if alone.Resumable {
		t.Error("a stream that began without Redis is resumable")
	}
	alone.read(t, s.addrs[api0]).begun().rest().completed("2 + 3 = 5.")
	if r := s.postStream(t, greedy(short), "Idempotency-Key", "k"); r.status != 503 || r.header.Get("Retry-After") == "" {
		t.Errorf("with a key: status %d: %s", r.status, r.body)
	}
	if status := m.read(t, s.addrs[api1]).connect(); status != 503 {
		t.Errorf("a new reader at the other replica: status %d", status)
	}
	server.launch(t)
	here.rest().completed(want)
	there.rest().completed(want)
	m.read(t, s.addrs[api1]).begun().rest().completed(want)
	if again := s.makeStream(t, greedy("What is 2 + 3?")); !again.Resumable {
		t.Error("with Redis back, a new stream is not resumable")
	}
}

func TestRedisNeedsACompleteConfiguration(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--redis", "redis://127.0.0.1:1/0"}, {"--redis", "127.0.0.1:1", "--token-key", "k"}} {
		out, err := exec.Command(binary(t, apiService), args...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() == 0 || !strings.Contains(string(out), "--redis") {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
}
