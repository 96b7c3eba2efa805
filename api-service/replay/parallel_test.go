package replay

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestParallelStreamsStayWithinBounds runs owners that fill a small log in parallel, while readers
// read every stream. The log must not exceed its bound, the accounts must add up at the end, and
// every reader must get either the whole text of its stream or the failure of an evicted stream.
func TestParallelStreamsStayWithinBounds(t *testing.T) {
	const owners, rounds, deltas = 6, 40, 60
	m := NewMemory(Limits{Bytes: 60_000, StreamBytes: 20_000})
	defer m.Close()
	// Closing events have room beyond the bound.
	bound := int64(m.limits.Bytes + owners*rounds*(headCost+len(closed.Data)+eventCost))
	var all sync.WaitGroup
	for owner := range owners {
		all.Go(func() {
			for round := range rounds {
				id := fmt.Sprint(owner, "-", round)
				if _, err := m.Begin(t.Context(), Head{ID: id, Epoch: "e", Owner: fmt.Sprint(owner)}); errors.Is(err, ErrFull) {
					continue
				} else if err != nil {
					t.Error(err)
					return
				}
				w, err := m.Writer(id, "e")
				if err != nil {
					t.Error(err)
					return
				}
				r, err := m.Open(t.Context(), id)
				if err != nil {
					t.Error(err)
					return
				}
				all.Go(func() { readToTheEnd(t, r, deltas*10) })
				err = nil
				for i := range deltas {
					if err = w.Delta(fmt.Appendf(nil, "%10d", i), nil); err != nil {
						break
					}
					if bytes := m.bytes.Load(); bytes > bound {
						t.Errorf("the log has %d bytes, of at most %d", bytes, bound)
					}
				}
				last := Event{Kind: Ending, Data: "{}"}
				if err != nil {
					last.Kind = Failure
				}
				if err := w.Append(last); errors.Is(err, ErrFull) { // the stream was evicted after its last delta
					last.Kind = Failure
					err = w.Append(last)
					if err != nil {
						t.Error(err)
					}
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := m.audit(); err != nil {
		t.Error(err)
	}
}

// readToTheEnd reads a stream of n bytes. If the log fails or the stream is evicted, the reader
// gets no ending.
func readToTheEnd(t *testing.T, r Reader, n int) {
	defer r.Close()
	var text int
	for after := uint64(0); ; {
		p, err := r.Read(t.Context(), after)
		if errors.Is(err, ErrUnknown) {
			return
		} else if err != nil {
			t.Error(err)
			return
		}
		for _, e := range p.Events {
			if e.Seq <= after {
				t.Errorf("the event %d comes after %d", e.Seq, after)
			}
			after = e.Seq
			if e.Kind == Delta {
				text += len(e.Data)
			}
			if e.Kind == Ending && text != n {
				t.Errorf("a stream that completed gave its reader %d bytes, want %d", text, n)
			}
		}
		if p.Ended {
			return
		}
		if len(p.Events) == 0 {
			<-p.More
		}
	}
}

// TestTokensCostNoAllocation checks that appending a delta and reading it allocate nothing except
// for the growth of the stream's buffer.
func TestTokensCostNoAllocation(t *testing.T) {
	m := NewMemory(Limits{})
	defer m.Close()
	w, err := m.Add(Head{ID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	token, after := []byte(" token"), uint64(0)
	if n := testing.AllocsPerRun(10_000, func() {
		if err := w.Delta(token, nil); err != nil {
			t.Fatal(err)
		}
		p, err := r.Read(t.Context(), after)
		if err != nil || len(p.Events) != 1 || p.Events[0].Data != " token" {
			t.Fatal(p, err)
		}
		after = p.Events[0].Seq
	}); n > 0 {
		t.Errorf("a token costs %v allocations", n)
	}
}

// TestPageKeepsItsTextWhileTheStreamContinues: a page shares the bytes of the log, so neither later
// deltas nor an eviction nor Forget may change the page.
func TestPageKeepsItsTextWhileTheStreamContinues(t *testing.T) {
	m := NewMemory(Limits{})
	defer m.Close()
	w, err := m.Add(Head{ID: "s", Epoch: "e"})
	if err != nil {
		t.Fatal(err)
	}
	r := m.stream("s").open()
	defer r.Close()
	if err := w.Delta([]byte("first"), nil); err != nil {
		t.Fatal(err)
	}
	p, err := r.Read(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := w.Delta([]byte(strings.Repeat("x", 100)), nil); err != nil {
			t.Fatal(err)
		}
	}
	m.mu.Lock()
	m.evict(m.streams["s"])
	m.mu.Unlock()
	m.Forget(t.Context(), "s", "e")
	if len(p.Events) != 1 || p.Events[0].Data != "first" {
		t.Errorf("the page says %v", p.Events)
	}
}

// TestEndOfAnEvictedStreamIsCharged: an eviction refunds the charge of the head, and a stream that
// ends is charged for its head again.
func TestEndOfAnEvictedStreamIsCharged(t *testing.T) {
	m := NewMemory(Limits{Bytes: 100_000})
	defer m.Close()
	keep(t, m, "greedy", "large", 90_000)
	keep(t, m, "modest", "mine", 20_000)
	if err := m.audit(); err != nil {
		t.Error(err)
	}
	if err := m.Append("large", "", closed); err != nil {
		t.Fatal(err)
	}
	if err := m.audit(); err != nil {
		t.Error(err)
	}
	m.Forget(t.Context(), "large", "")
	m.Forget(t.Context(), "mine", "")
	if n := m.bytes.Load(); n != 0 || len(m.accounts) != 0 {
		t.Errorf("an empty log has %d bytes and %d accounts", n, len(m.accounts))
	}
}
