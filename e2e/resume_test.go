package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestReaderIsCutAHundredTimes(t *testing.T) {
	eachTopology(t, flags{worker: []string{"--pace", "100"}}, func(t *testing.T, w *whence) {
		want := w.answer(t, greedy(long, "max_tokens", 200))
		m := w.makeStream(t, greedy(long, "max_tokens", 200))
		r := m.read(t, w.api)
		cuts := 0
		for ; !r.over(); cuts++ {
			if status := r.connect(); status != http.StatusOK {
				t.Fatalf("status %d after %q", status, r.last)
			}
			if !r.next() {
				t.Fatalf("there was no event after %q", r.last)
			}
			r.cut()
		}
		if cuts < 100 {
			t.Errorf("there were only %d cuts: the reader is too slow", cuts)
		}
		r.completed(want)
		m.read(t, w.api).begun().rest().completed(want) // a late reader
		w.idle(t)
	})
}

func TestReadersOfOneStreamGetOneStop(t *testing.T) {
	eachTopology(t, flags{worker: []string{"--pace", "40"}}, func(t *testing.T, w *whence) {
		m := w.makeStream(t, greedy(long))
		first, second := m.read(t, w.api).begun(), m.read(t, w.api).begun()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, w.url("/v1/streams/"+m.ID), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := w.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if r := readAll(t, resp); r.status != http.StatusAccepted {
			t.Fatalf("status %d: %s", r.status, r.body)
		}
		late := m.read(t, w.api).begun().rest()
		first.rest()
		second.rest()
		for _, r := range []*reader{first, second, late} {
			if r.text.String() != late.text.String() {
				t.Errorf("readers have %q and %q", r.text.String(), late.text.String())
			}
			r.failed("user_stop: client > api-service")
		}
		for _, hop := range hops {
			if got := w.ended(t, hop, m.ID); got.Reason != "user_stop" {
				t.Errorf("%s logged %s", hop, got.Reason)
			}
		}
		w.idle(t)
	})
}

func TestDetachedStreamIsFinishedAndKept(t *testing.T) {
	eachTopology(t, flags{worker: []string{"--pace", "200"}}, func(t *testing.T, w *whence) {
		want := w.answer(t, greedy(short))
		m := w.makeStream(t, greedy(short), "X-Leave", "detach")
		m.read(t, w.api).begun().cut()
		for _, hop := range hops {
			if got := w.ended(t, hop, m.ID); got.Reason != "completed" {
				t.Errorf("%s logged %s", hop, got.Reason)
			}
		}
		m.read(t, w.api).begun().rest().completed(want)
		var story struct{ Hops []struct{ Leave string } }
		if err := json.Unmarshal(w.get(t, "/v1/streams/"+m.ID).body, &story); err != nil || story.Hops[0].Leave != "detach" {
			t.Error(story, err)
		}
	})
}

func TestIdempotencyKeyMakesOneStream(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		first := w.postStream(t, greedy(short), "Idempotency-Key", "k")
		again := w.postStream(t, greedy(short), "Idempotency-Key", "k")
		other := w.postStream(t, greedy(long), "Idempotency-Key", "k")
		id := func(r reply) string {
			var m keptStream
			_ = json.Unmarshal(r.body, &m)
			return m.ID
		}
		if first.status != http.StatusCreated || again.status != http.StatusOK || id(first) != id(again) || other.status != http.StatusConflict {
			t.Errorf("%d %s\n%d %s\n%d %s", first.status, first.body, again.status, again.body, other.status, other.body)
		}
		w.ended(t, "llm-worker/0", id(first))
		if n := strings.Count(w.processes[llmWorker].Log.String(), "stream ended"); w.topology == separate && n != 1 {
			t.Errorf("%d streams ran", n)
		}
	})
}

func TestReadersGetTheEndingOfADrain(t *testing.T) {
	eachTopology(t, flags{all: []string{"--drain", "300ms"}, worker: []string{"--pace", "40"}}, func(t *testing.T, w *whence) {
		m := w.makeStream(t, greedy(long))
		r, late := m.read(t, w.api).begun(), m.read(t, w.api)
		p := w.processes[apiService]
		p.terminate(t)
		p.logged(t, "that it drains", func(r record) bool { return strings.HasPrefix(r.Msg, "draining: live streams") })
		late.begun() // running streams can still be read
		if got := w.postStream(t, greedy(short)); got.status != http.StatusServiceUnavailable {
			t.Errorf("a new stream: status %d: %s", got.status, got.body)
		}
		for _, r := range []*reader{r, late} {
			if got := r.rest().err.statement(); got != "draining: api-service" {
				t.Errorf("a reader got %q", got)
			}
		}
		p.exit(t)
		w.drained(t, m.ID, victims[0])
	})
}
