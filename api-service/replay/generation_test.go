package replay_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/replay"
)

// resumed returns a log with a stream of three deltas that another instance began, and the writer
// of the next generation.
func resumed(t *testing.T) (*replay.Memory, *replay.Writer) {
	t.Helper()
	m := replay.NewMemory(replay.Limits{})
	w, err := m.Resume(replay.Head{ID: "s", Epoch: "e", Key: "k"}, replay.Seams{3}, []replay.Event{
		{Seq: 1, Kind: replay.Delta, Data: "a", Note: "1"},
		{Seq: 2, Kind: replay.Delta, Data: "b", Note: "22"},
		{Seq: 3, Kind: replay.Delta, Data: "c"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m, w
}

func TestResumedStreamContinuesInANewGeneration(t *testing.T) {
	m, w := resumed(t)
	defer m.Close()
	out := w.Outbox()
	if err := w.Delta([]byte("d"), []byte("4")); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(replay.Event{Kind: replay.Usage, Data: "{}"}, replay.Event{Kind: replay.Ending, Data: "{}"}); err != nil {
		t.Fatal(err)
	}
	unwritten, closing, _ := out.Unwritten(nil, 3, 1)
	if len(unwritten) != 3 || !closing || unwritten[0].Seq != 1_000_000_004 || unwritten[0].Note != "4" || unwritten[2].Seq != 1_000_000_006 {
		t.Errorf("the outbox has %+v", unwritten)
	}
	all, _, _ := out.Unwritten(nil, 0, 100)
	if len(all) != 6 || all[0].Note != "1" || all[1].Note != "22" || all[2].Note != "" || all[2].Seq != 3 || all[3].Note != "4" {
		t.Errorf("a server that has lost the stream gets %+v", all)
	}
	out.Show(1_000_000_006)
	r, err := m.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for after, want := range map[uint64]string{0: "abcd", 1: "bcd", 3: "d", 1_000_000_004: ""} {
		p, err := r.Read(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, e := range p.Events {
			if e.Kind == replay.Delta {
				text.WriteString(e.Data)
			}
			if e.Note != "" {
				t.Errorf("a reader gets the note %q", e.Note)
			}
		}
		if last := p.Events[len(p.Events)-1]; text.String() != want || last.Seq != 1_000_000_006 || !p.Ended {
			t.Errorf("after %d: %q up to %d", after, text.String(), last.Seq)
		}
	}
	p, err := r.Read(t.Context(), 0)
	if err != nil || len(p.Events) != 4 || p.Events[0].Seq != 3 || p.Events[0].Data != "abc" || p.Events[1].Data != "d" {
		t.Errorf("a reader gets deltas of both generations in one event: %+v, %v", p.Events, err)
	}
	// The first generation has shown event 4 without storing it; the event now at that position is
	// another one.
	for _, lost := range []uint64{4, 6, 7, 1_000_000_000, 1_000_000_003, 1_000_000_007, 2_000_000_004} {
		if _, err := r.Read(t.Context(), lost); !errors.Is(err, replay.ErrAhead) {
			t.Errorf("the cursor %d gets %v", lost, err)
		}
	}
}

// TestClosingEventThatBeginsAGenerationIsRead: the number before the number of the closing event
// names no event.
func TestClosingEventThatBeginsAGenerationIsRead(t *testing.T) {
	m := replay.NewMemory(replay.Limits{})
	defer m.Close()
	w, err := m.Resume(replay.Head{ID: "s", Epoch: "e"}, replay.Seams{1}, []replay.Event{{Seq: 1, Kind: replay.Delta, Data: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	out := w.Outbox()
	if err := w.Append(replay.Event{Kind: replay.Failure, Data: "{}"}); err != nil {
		t.Fatal(err)
	}
	r, err := m.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if e, err := r.Closing(t.Context()); !errors.Is(err, replay.ErrOpen) {
		t.Errorf("before the server has the event: %+v, %v", e, err)
	}
	out.Show(1_000_000_002)
	if _, err := r.Read(t.Context(), 1_000_000_001); !errors.Is(err, replay.ErrAhead) {
		t.Error("the number before the closing event:", err)
	}
	if e, err := r.Closing(t.Context()); err != nil || e != (replay.Event{Seq: 1_000_000_002, Kind: replay.Failure, Data: "{}"}) {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestReaderMayBeAheadOfTheOutbox checks a reader that has got the last event at another instance,
// before this one knows that the server has the event.
func TestReaderMayBeAheadOfTheOutbox(t *testing.T) {
	m := replay.NewMemory(replay.Limits{})
	defer m.Close()
	w, err := m.Add(replay.Head{ID: "s", Epoch: "e"})
	if err != nil {
		t.Fatal(err)
	}
	out := w.Outbox()
	if err := w.Append(replay.Event{Kind: replay.Ending, Data: "{}"}); err != nil {
		t.Fatal(err)
	}
	r, err := m.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Read(t.Context(), 2); !errors.Is(err, replay.ErrAhead) {
		t.Errorf("an event that does not exist: %v", err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(io.EOF)
	if _, err := r.Read(gone, 1); !errors.Is(err, io.EOF) {
		t.Errorf("a reader that has left gets %v", err)
	}
	pages := make(chan replay.Page)
	go func() {
		p, err := r.Read(t.Context(), 1)
		if err != nil {
			t.Error(err)
		}
		pages <- p
	}()
	out.Show(1)
	if p := <-pages; !p.Ended || len(p.Events) != 0 {
		t.Errorf("%+v", p)
	}
}

func TestStreamWithAGapIsNotResumed(t *testing.T) {
	a, b := replay.Event{Seq: 1, Kind: replay.Delta, Data: "a"}, replay.Event{Seq: 2, Kind: replay.Delta, Data: "b"}
	for name, c := range map[string]struct {
		seams  replay.Seams
		events []replay.Event
	}{
		"no seam":           {nil, []replay.Event{a, b}},
		"a missing event":   {replay.Seams{2}, []replay.Event{b}},
		"a missing end":     {replay.Seams{2}, []replay.Event{a}},
		"another order":     {replay.Seams{2}, []replay.Event{b, a}},
		"an ending":         {replay.Seams{2}, []replay.Event{a, {Seq: 2, Kind: replay.Usage}}},
		"a lost number":     {replay.Seams{1, 2}, []replay.Event{a, b}},
		"an early takeover": {replay.Seams{1}, []replay.Event{a, b}},
	} {
		m := replay.NewMemory(replay.Limits{})
		if _, err := m.Resume(replay.Head{ID: "s"}, c.seams, c.events); err == nil {
			t.Errorf("%s: the stream is resumed", name)
		}
		_ = m.Close()
	}
}

func TestSeamsTellCursorsOfLostEvents(t *testing.T) {
	seams := replay.Seams{3, 3, 10}
	for position, number := range map[uint64]uint64{0: 0, 1: 1, 3: 3, 4: 2_000_000_004, 10: 2_000_000_010, 11: 3_000_000_011} {
		if got := seams.Number(position); got != number || seams.Lost(got) {
			t.Errorf("position %d has the number %d", position, got)
		}
	}
	for _, lost := range []uint64{4, 11, 1_000_000_004, 2_000_000_011} {
		if !seams.Lost(lost) {
			t.Errorf("%d is not lost", lost)
		}
	}
}
