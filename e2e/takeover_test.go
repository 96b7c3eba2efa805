package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
)

// TestKeptStreamSurvivesItsApiService: when the api-service of a stream is killed, its readers get
// the whole answer and one ending from the other replica.
func TestKeptStreamSurvivesItsApiService(t *testing.T) {
	t.Parallel()
	s, _ := replicas(t, "40")
	want := s.answer(t, greedy(long, "max_tokens", 150))
	m := s.makeStream(t, greedy(long, "max_tokens", 150))
	here, there := m.read(t, s.addrs[api0]).begun(), m.read(t, s.addrs[api1]).begun()
	for range 10 {
		here.next()
	}
	at := time.Now()
	s.procs[api0].kill(t)
	for here.next() {
	}
	taken := s.procs[api1].logged(t, "it takes the stream over", func(r record) bool { return r.Msg == "stream moved" && r.Stream == m.ID })
	t.Logf("taken over %v after the kill", time.Since(at).Round(time.Millisecond))
	if taken.From != api0 || taken.To != api1 {
		t.Errorf("the stream moved from %q to %q", taken.From, taken.To)
	}
	here.url = strings.Replace(here.url, s.addrs[api0], s.addrs[api1], 1)
	here.begun().rest().completed(want)
	there.rest().completed(want)
	m.read(t, s.addrs[api1]).begun().rest().completed(want)
	s.id = m.ID
	if got := s.logged(api1); got != "completed: engine > llm-worker/0 > chat-service > api-service/1" {
		t.Error("the replica logged", got)
	}
}

// TestPausedApiServiceInjectsNothing: a paused api-service comes back after another instance has
// taken over its stream.
func TestPausedApiServiceInjectsNothing(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s, _ := replicas(t, "15") // the stream lasts much longer than the lease
	want := s.answer(t, greedy(long, "max_tokens", 200))
	m := s.makeStream(t, greedy(long, "max_tokens", 200))
	there := m.read(t, s.addrs[api1]).begun()
	s.procs[api0].freeze(t)
	s.procs[api1].logged(t, "it takes the stream over", func(r record) bool { return r.Msg == "stream moved" && r.Stream == m.ID })
	s.procs[api0].thaw(t)
	s.id = m.ID
	polltest.Eventually(t, "the earlier instance ends its own stream", func() bool { return s.logged(api0) != "" })
	if got := s.logged(api0); !strings.HasPrefix(string(got), "peer_lost: api-service/0") {
		t.Error("the earlier instance logged", got)
	}
	there.rest().completed(want)
	m.read(t, s.addrs[api0]).begun().rest().completed(want)
	m.read(t, s.addrs[api1]).begun().rest().completed(want)
	if got := s.logged(api1); got != "completed: engine > llm-worker/0 > chat-service > api-service/1" {
		t.Error("the replica logged", got)
	}
}

// TestDrainingApiServiceHandsItsStreamsOver: streams that last longer than the drain continue on
// the other replica.
func TestDrainingApiServiceHandsItsStreamsOver(t *testing.T) {
	t.Parallel()
	s, _ := replicas(t, "40", "--drain", "300ms")
	s.handsStreamsOver(t)
}

// handsStreamsOver drains the first replica while it makes a stream, which the readers of both replicas get
// whole.
func (s *scene) handsStreamsOver(t *testing.T) {
	t.Helper()
	want := s.answer(t, greedy(long, "max_tokens", 150))
	m := s.makeStream(t, greedy(long, "max_tokens", 150))
	here, there := m.read(t, s.addrs[api0]).begun(), m.read(t, s.addrs[api1]).begun()
	s.procs[api0].terminate(t)
	for here.next() {
	}
	s.procs[api0].exit(t)
	here.url = strings.Replace(here.url, s.addrs[api0], s.addrs[api1], 1)
	here.begun().rest().completed(want)
	there.rest().completed(want)
}
