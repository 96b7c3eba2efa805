package replay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func text(n int) Event { return Event{Kind: Delta, Data: strings.Repeat("x", n)} }

var closed = Event{Kind: Failure, Data: "{}"}

// keep begins a stream of an owner, and appends n bytes.
func keep(t *testing.T, m *Memory, owner, id string, n int) {
	t.Helper()
	if _, err := m.Begin(t.Context(), Head{ID: id, Owner: owner, Began: time.Now()}); err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	if err := m.Append(id, "", text(n)); err != nil {
		t.Fatalf("%s: %v", id, err)
	}
}

// TestGreedyOwnerMakesRoom: after one owner has filled the log with running streams, another owner
// still has room. The largest stream of the greedy owner ends, the newest of several equally large,
// and its readers get its ending.
func TestGreedyOwnerMakesRoom(t *testing.T) {
	m := NewMemory(Limits{Bytes: 100_000})
	defer m.Close()
	keep(t, m, "greedy", "small", 10_000)
	keep(t, m, "greedy", "older", 40_000)
	keep(t, m, "greedy", "newer", 40_000)
	keep(t, m, "modest", "mine", 20_000)
	if err := m.Append("newer", "", text(1)); !errors.Is(err, ErrFull) {
		t.Errorf("the largest and newest stream of the greedy owner continues: %v", err)
	}
	for _, id := range []string{"small", "older", "mine"} {
		if err := m.Append(id, "", text(1)); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	r, err := m.Open(t.Context(), "newer")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if p, err := r.Read(t.Context(), 0); err != nil || len(p.Events) != 0 || p.Ended {
		t.Errorf("before its ending, a reader gets %v, %v", p, err)
	}
	if err := m.Append("newer", "", closed); err != nil {
		t.Fatal(err)
	}
	for after := range uint64(2) {
		if p, err := r.Read(t.Context(), after); err != nil || len(p.Events) != 1 || p.Events[0].Kind != Failure || p.Events[0].Seq != 2 || !p.Ended {
			t.Errorf("after %d a reader gets %v, %v", after, p, err)
		}
	}
	if _, err := m.Begin(t.Context(), Head{ID: "more", Owner: "greedy"}); err != nil {
		t.Error("there is room again:", err)
	}
}

// TestEvictedStreamDoesNotComplete: a stream whose text was dropped ends with a failure, even if
// its answer was complete.
func TestEvictedStreamDoesNotComplete(t *testing.T) {
	m := NewMemory(Limits{Bytes: 100_000})
	defer m.Close()
	keep(t, m, "greedy", "large", 90_000)
	keep(t, m, "modest", "mine", 20_000)
	if err := m.Append("large", "", Event{Kind: Usage, Data: "{}"}, Event{Kind: Ending, Data: "{}"}); !errors.Is(err, ErrFull) {
		t.Errorf("a stream without its text completes: %v", err)
	}
	if err := m.Append("large", "", closed); err != nil {
		t.Error(err)
	}
	if p, err := m.stream("large").open().Read(t.Context(), 0); err != nil || len(p.Events) != 1 || p.Events[0].Kind != Failure || !p.Ended {
		t.Errorf("a reader gets %v, %v", p, err)
	}
}

// TestGreedyOwnerIsRefusedFirst: while its streams run, the owner that keeps the most cannot begin
// another stream.
func TestGreedyOwnerIsRefusedFirst(t *testing.T) {
	m := NewMemory(Limits{Bytes: 100_000})
	defer m.Close()
	keep(t, m, "modest", "mine", 10_000)
	for i := range 80 {
		if _, err := m.Begin(t.Context(), Head{ID: fmt.Sprint(i), Owner: "greedy"}); err != nil {
			t.Fatal(i, err)
		}
	}
	for i := 80; ; i++ {
		if _, err := m.Begin(t.Context(), Head{ID: fmt.Sprint(i), Owner: "greedy"}); errors.Is(err, ErrFull) {
			break
		} else if err != nil || i > 100 {
			t.Fatal(i, err)
		}
	}
	keep(t, m, "modest", "too", 10_000)
}

// TestEndedStreamsAreEvictedBeforeRunningOnes also checks that owners within their share lose
// nothing.
func TestEndedStreamsAreEvictedBeforeRunningOnes(t *testing.T) {
	m := NewMemory(Limits{Bytes: 100_000})
	defer m.Close()
	keep(t, m, "modest", "over", 10_000)
	keep(t, m, "greedy", "first", 20_000)
	keep(t, m, "greedy", "second", 20_000)
	keep(t, m, "greedy", "runs", 40_000)
	for _, id := range []string{"over", "second", "first"} {
		if err := m.Append(id, "", closed); err != nil {
			t.Fatal(err)
		}
	}
	keep(t, m, "third", "new", 20_000)
	for id, want := range map[string]bool{"over": true, "second": false, "first": true, "runs": true} {
		if (m.stream(id) != nil) != want {
			t.Errorf("%s is kept: %t, want %t", id, !want, want)
		}
	}
	if err := m.Append("runs", "", text(1)); err != nil {
		t.Error("a stream that runs ends before one that has ended:", err)
	}
}

// TestSharesHold takes random steps and checks that the log stays within its bound, that accounts
// add up, and that owners within their share lose nothing.
func TestSharesHold(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := NewMemory(Limits{Bytes: 200_000, StreamBytes: 50_000})
		w := walk{m: m, r: r}
		for i := range 3000 {
			before := m.snapshot()
			actor := w.step(t, i)
			if err := m.audit(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
			after, share := m.snapshot(), m.limits.Bytes/(len(m.accounts)+1)
			for of, bytes := range before {
				if of != actor && bytes <= share && after[of] < bytes {
					t.Fatalf("seed %d, step %d: %s kept %d bytes, within its share of %d, and keeps %d after a step of %s", seed, i, of, bytes, share, after[of], actor)
				}
			}
		}
		_ = m.Close()
	}
}

// A walk takes random steps on a log.
type walk struct {
	m   *Memory
	r   *rand.Rand
	ids []string // of streams that have begun and have not ended

	ended []string
}

// step takes one random step, and returns the owner whose stream it used.
func (w *walk) step(t *testing.T, i int) (owner string) {
	if w.r.IntN(10) < 3 || len(w.ids) == 0 {
		owner, id := fmt.Sprint("owner", min(w.r.IntN(6), w.r.IntN(6))), fmt.Sprint(i)
		if _, err := w.m.Begin(t.Context(), Head{ID: id, Owner: owner, Memo: strings.Repeat("m", max(0, w.r.IntN(8000)-4000)), Began: time.Unix(int64(i), 0)}); err == nil {
			w.ids = append(w.ids, id)
		}
		return owner
	}
	at := w.r.IntN(len(w.ids))
	id := w.ids[at]
	if k := w.m.stream(id); k != nil {
		owner = k.head.Owner
	}
	switch w.r.IntN(14) {
	case 0, 1:
		_ = w.m.Append(id, "", closed)
		w.ended = append(w.ended, id)
		w.ids = append(w.ids[:at], w.ids[at+1:]...)
	case 2:
		w.m.Forget(t.Context(), id, "")
	case 3:
		if len(w.ended) == 0 {
			break
		}
		last := w.ended[len(w.ended)-1] // the newest: expiry and eviction drop the oldest anyway
		w.ended = w.ended[:len(w.ended)-1]
		if k := w.m.stream(last); k != nil {
			owner = k.head.Owner
		}
		if _, err := w.m.Erase(t.Context(), last, ""); err != nil {
			t.Fatal(err)
		}
	default:
		_ = w.m.Append(id, "", text(w.r.IntN(8000)))
	}
	return owner
}

// stream returns the stream with this id, or nil.
func (m *Memory) stream(id string) *memoryStream {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.streams[id]
}

// cost returns the bytes that a stream should be charged. Nothing else uses the log meanwhile.
func (s *memoryStream) cost() int {
	if s.evicted && s.phase == phaseLive {
		return len(s.memo)
	}
	n := headCost + len(s.memo) + s.text.Len() + eventCost*(len(s.ends)+len(s.rest))
	for _, e := range s.rest {
		n += len(e.Data)
	}
	return n
}

// audit returns an error if the accounts do not add up.
func (m *Memory) audit() error {
	costs, streams, sum := map[string]int{}, map[string]int{}, 0
	for _, s := range m.streams {
		cost := s.cost()
		if charged := int(s.bytes.Load()); charged != cost {
			return fmt.Errorf("the stream %s is charged %d bytes and has %d", s.head.ID, charged, cost)
		}
		costs[s.head.Owner] += cost
		streams[s.head.Owner]++
	}
	for of, a := range m.accounts {
		bytes := int(a.bytes.Load())
		for _, s := range a.ended {
			if s.phase != phaseEnded {
				return fmt.Errorf("the account of %s has the forgotten stream %s", of, s.head.ID)
			}
		}
		if sum += bytes; costs[of] != bytes || streams[of] == 0 {
			return fmt.Errorf("the account of %s has %d bytes, its %d streams have %d", of, bytes, streams[of], costs[of])
		}
	}
	var queued []*memoryStream
	for _, q := range m.ended {
		queued = append(queued, q.streams...)
	}
	for _, s := range queued {
		if s.phase == phaseForgotten && s.memo != "" {
			return fmt.Errorf("the forgotten stream %s has its memo", s.head.ID)
		}
	}
	// Closing events have room beyond the bound.
	if bound := m.limits.Bytes + len(m.streams)*(headCost+len(closed.Data)+eventCost); sum != int(m.bytes.Load()) || sum > bound {
		return fmt.Errorf("%d bytes are kept, by accounts %d; the bound is %d", m.bytes.Load(), sum, bound)
	}
	if len(queued) > 2*len(m.streams)+4 {
		return fmt.Errorf("%d ended streams are remembered, %d kept", len(queued), len(m.streams))
	}
	return nil
}

// snapshot returns the bytes that each owner keeps.
func (m *Memory) snapshot() map[string]int {
	all := map[string]int{}
	for of, a := range m.accounts {
		all[of] = int(a.bytes.Load())
	}
	return all
}
