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

// keep begins a stream of an owner, and has it say n bytes.
func keep(t *testing.T, m *Memory, owner, id string, n int) {
	t.Helper()
	if _, err := m.Begin(t.Context(), Head{ID: id, Owner: owner, Began: time.Now()}); err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	if err := m.Append(id, text(n)); err != nil {
		t.Fatalf("%s: %v", id, err)
	}
}

// TestGreedyOwnerMakesRoom: one owner fills the log with streams that run. The next owner has room all the same: the largest stream of the
// greedy one ends, of equals the newest, and its readers get its ending.
func TestGreedyOwnerMakesRoom(t *testing.T) {
	m := NewMemory(Limits{Bytes: 100_000})
	defer m.Close()
	keep(t, m, "greedy", "small", 10_000)
	keep(t, m, "greedy", "older", 40_000)
	keep(t, m, "greedy", "newer", 40_000)
	keep(t, m, "modest", "mine", 20_000)
	if err := m.Append("newer", text(1)); !errors.Is(err, ErrFull) {
		t.Errorf("the largest and newest stream of the greedy owner goes on: %v", err)
	}
	for _, id := range []string{"small", "older", "mine"} {
		if err := m.Append(id, text(1)); err != nil {
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
	if err := m.Append("newer", closed); err != nil {
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

// TestGreedyOwnerIsRefusedFirst: while its streams run, the owner that keeps most begins no further one.
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

// TestEndedStreamsGoBeforeThoseThatRun, but those of owners within their share.
func TestEndedStreamsGoBeforeThoseThatRun(t *testing.T) {
	m := NewMemory(Limits{Bytes: 100_000})
	defer m.Close()
	keep(t, m, "modest", "over", 10_000)
	keep(t, m, "greedy", "first", 20_000)
	keep(t, m, "greedy", "second", 20_000)
	keep(t, m, "greedy", "runs", 40_000)
	for _, id := range []string{"over", "second", "first"} {
		if err := m.Append(id, closed); err != nil {
			t.Fatal(err)
		}
	}
	keep(t, m, "third", "new", 20_000)
	for id, want := range map[string]bool{"over": true, "second": false, "first": true, "runs": true} {
		if (m.find(id) != nil) != want {
			t.Errorf("%s is kept: %t, want %t", id, !want, want)
		}
	}
	if err := m.Append("runs", text(1)); err != nil {
		t.Error("a stream that runs ends before one that has ended:", err)
	}
}

// TestSharesHold: whatever owners do, what is kept stays within the bound, accounts add up, and no owner within its share loses anything.
func TestSharesHold(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := NewMemory(Limits{Bytes: 200_000, StreamBytes: 50_000})
		var ids []string
		for i := range 3000 {
			owner := fmt.Sprint("owner", min(r.IntN(6), r.IntN(6)))
			before := m.snapshot()
			actor := ""
			switch r.IntN(10) {
			case 0, 1, 2:
				actor = owner
				id := fmt.Sprint(i)
				if _, err := m.Begin(t.Context(), Head{ID: id, Owner: owner, Began: time.Unix(int64(i), 0)}); err == nil {
					ids = append(ids, id)
				}
			case 3:
				if len(ids) > 0 {
					at := r.IntN(len(ids))
					_ = m.Append(ids[at], closed)
					ids = append(ids[:at], ids[at+1:]...)
				}
			case 4:
				if len(ids) > 0 && r.IntN(5) == 0 {
					m.Forget(t.Context(), ids[r.IntN(len(ids))])
					continue
				}
			default:
				if len(ids) > 0 {
					id := ids[r.IntN(len(ids))]
					if k := m.find(id); k != nil {
						actor = k.head.Owner
					}
					_ = m.Append(id, text(r.IntN(8000)))
				}
			}
			after := m.snapshot()
			sum, share := 0, m.limits.Bytes/max(1, len(m.accounts)+1)
			for of, a := range m.accounts {
				cost, streams := 0, 0
				for _, k := range m.streams {
					if k.head.Owner == of {
						cost += k.cost()
						streams++
					}
				}
				if sum += a.bytes; cost != a.bytes || streams == 0 {
					t.Fatalf("seed %d, step %d: the account of %s has %d bytes, its %d streams have %d", seed, i, of, a.bytes, streams, cost)
				}
			}
			if sum != m.bytes || sum > m.limits.Bytes+len(m.streams)*(headCost+len(closed.Data)+eventCost) {
				t.Fatalf("seed %d, step %d: %d bytes are kept, by accounts %d; the bound is %d", seed, i, m.bytes, sum, m.limits.Bytes)
			}
			if len(m.ended) > 2*len(m.streams)+2 {
				t.Fatalf("seed %d, step %d: %d ended streams are remembered, %d kept", seed, i, len(m.ended), len(m.streams))
			}
			for of, bytes := range before {
				if of != actor && bytes <= share && after[of] < bytes {
					t.Fatalf("seed %d, step %d: %s kept %d bytes, within its share of %d, and keeps %d after what %s did", seed, i, of, bytes, share, after[of], actor)
				}
			}
		}
		_ = m.Close()
	}
}

// snapshot returns how much each owner keeps.
func (m *Memory) snapshot() map[string]int {
	all := map[string]int{}
	for of, a := range m.accounts {
		all[of] = a.bytes
	}
	return all
}
