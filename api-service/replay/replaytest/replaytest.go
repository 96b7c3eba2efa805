// Package replaytest tests the contract of every replay.Log.
package replaytest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/internal/polltest"
)

// soon is the TTL of ended streams in EndedStreamsExpire.
const soon = 100 * time.Millisecond

// Run tests the contract. open returns an empty log, which Run closes.
func Run(t *testing.T, open func(*testing.T, replay.Limits) replay.Log) {
	for name, test := range map[string]func(*testing.T, log){
		"EveryCursorGetsTheRest":          everyCursorGetsTheRest,
		"ReadersWakeUp":                   readersWakeUp,
		"ReadersDoNotDisturbEachOther":    readersDoNotDisturbEachOther,
		"NothingFollowsTheEnd":            nothingFollowsTheEnd,
		"TheClosingEventIsReadAlone":      theClosingEventIsReadAlone,
		"UnknownStreamsAreErrors":         unknownStreamsAreErrors,
		"AKeyHasOneStream":                aKeyHasOneStream,
		"ForgottenStreamsLeaveTheirKey":   forgottenStreamsLeaveTheirKey,
		"RefusedStreamsLeaveTheirKey":     refusedStreamsLeaveTheirKey,
		"AnEpochIsForOneLog":              anEpochIsForOneLog,
		"AFullStreamTakesOnlyItsEnding":   aFullStreamTakesOnlyItsEnding,
		"EndedStreamsExpire":              endedStreamsExpire,
		"UnreadTextComesInFewLargeEvents": unreadTextComesInFewLargeEvents,
		"OnlyEndedStreamsAreErased":       onlyEndedStreamsAreErased,
	} {
		t.Run(name, func(t *testing.T) {
			limits := replay.Limits{StreamBytes: 1 << 20, TTL: time.Hour}
			if name == "EndedStreamsExpire" {
				limits.TTL = soon
			}
			l := open(t, limits)
			defer func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}()
			test(t, log{l})
		})
	}
}

type log struct{ replay.Log }

func (l log) begin(t *testing.T, id string) {
	t.Helper()
	h, err := l.Begin(t.Context(), replay.Head{ID: id, Epoch: "e", Owner: "o", Body: "b", Edge: "api", Began: time.Now()})
	if err != nil || h.ID != id || !h.Shared {
		t.Fatalf("begin: %+v, %v", h, err)
	}
}

func (l log) append(t *testing.T, id string, events ...replay.Event) {
	t.Helper()
	if err := l.Append(id, "e", events...); err != nil {
		t.Fatalf("append: %v", err)
	}
}

func delta(text string) replay.Event { return replay.Event{Kind: replay.Delta, Data: text} }

// ending has the final events of a stream.
var ending = []replay.Event{{Kind: replay.Usage, Data: `{"n":1}`}, {Kind: replay.Ending, Data: `{}`}}

// collect reads from a cursor to the end, and returns the text, the other events, and the number of
// events.
func (l log) collect(ctx context.Context, id string, after uint64) (text string, rest []replay.Event, events int, err error) {
	r, err := l.Open(ctx, id)
	if err != nil {
		return "", nil, 0, err
	}
	defer r.Close()
	var b strings.Builder
	for late := time.After(polltest.Patience); ; {
		p, err := r.Read(ctx, after)
		if err != nil {
			return "", nil, 0, err
		}
		for _, e := range p.Events {
			if e.Seq <= after {
				return "", nil, 0, fmt.Errorf("event %d after %d", e.Seq, after)
			}
			after = e.Seq
			events++
			if e.Kind == replay.Delta {
				b.WriteString(e.Data)
			} else {
				rest = append(rest, e)
			}
		}
		if p.Ended {
			return b.String(), rest, events, nil
		}
		if len(p.Events) > 0 {
			continue
		}
		select {
		case <-p.More:
		case <-late:
			return "", nil, 0, fmt.Errorf("nothing after %d within %v", after, polltest.Patience)
		}
	}
}

func everyCursorGetsTheRest(t *testing.T, l log) {
	l.begin(t, "s")
	const n = 50
	var said strings.Builder
	for i := range n {
		piece := fmt.Sprintf("%d ä\n", i)
		said.WriteString(piece)
		l.append(t, "s", delta(piece))
	}
	whole := said.String()
	l.append(t, "s", ending...)
	at := 0
	for after := range uint64(n + 2) {
		text, rest, _, err := l.collect(t.Context(), "s", after)
		if err != nil || text != whole[at:] {
			t.Fatalf("after %d: %q, %v", after, text, err)
		}
		last := rest[len(rest)-1]
		if last.Kind != replay.Ending || last.Seq != n+2 || after <= n && (len(rest) != 2 || rest[0].Kind != replay.Usage || rest[0].Data != `{"n":1}` || rest[0].Seq != n+1) {
			t.Fatalf("after %d: %+v", after, rest)
		}
		if after < n {
			at += len(fmt.Sprintf("%d ä\n", after))
		}
	}
}

func readersWakeUp(t *testing.T, l log) {
	l.begin(t, "s")
	r, err := l.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if h := r.Head(); h.ID != "s" || h.Epoch != "e" || h.Owner != "o" || h.Body != "b" || h.Edge != "api" || h.Began.IsZero() {
		t.Errorf("%+v", h)
	}
	p, err := r.Read(t.Context(), 0)
	if err != nil || len(p.Events) > 0 || p.Ended {
		t.Fatalf("%+v, %v", p, err)
	}
	l.append(t, "s", delta("x"))
	polltest.Receive(t, "the reader is woken, because there are new events", p.More)
	l.append(t, "s", ending...)
	if text, _, _, err := l.collect(t.Context(), "s", 0); text != "x" || err != nil {
		t.Fatal(text, err)
	}
}

func readersDoNotDisturbEachOther(t *testing.T, l log) {
	l.begin(t, "s")
	var wg sync.WaitGroup
	texts := make([]string, 5)
	for i := range texts {
		wg.Go(func() {
			var err error
			if texts[i], _, _, err = l.collect(context.Background(), "s", 0); err != nil {
				t.Error(err)
			}
		})
	}
	var whole strings.Builder
	for i := range 300 {
		fmt.Fprint(&whole, i, " ")
		l.append(t, "s", delta(fmt.Sprint(i, " ")))
	}
	l.append(t, "s", ending...)
	wg.Wait()
	for i, text := range texts {
		if text != whole.String() {
			t.Errorf("reader %d has %q", i, text)
		}
	}
}

func nothingFollowsTheEnd(t *testing.T, l log) {
	l.begin(t, "s")
	l.append(t, "s", delta("x"))
	l.append(t, "s", replay.Event{Kind: replay.Failure, Data: "{}"})
	if err := l.Append("s", "e", delta("y")); !errors.Is(err, replay.ErrClosed) {
		t.Error(err)
	}
	if err := l.Append("s", "e", ending...); !errors.Is(err, replay.ErrClosed) {
		t.Error(err)
	}
	if text, rest, _, err := l.collect(t.Context(), "s", 0); text != "x" || len(rest) != 1 || rest[0].Kind != replay.Failure || rest[0].Seq != 2 || err != nil {
		t.Error(text, rest, err)
	}
	if text, rest, n, err := l.collect(t.Context(), "s", 2); n != 0 || err != nil {
		t.Error(text, rest, err)
	}
}

func unknownStreamsAreErrors(t *testing.T, l log) {
	if _, err := l.Open(t.Context(), "nobody"); !errors.Is(err, replay.ErrUnknown) {
		t.Error(err)
	}
	if err := l.Append("nobody", "e", delta("x")); !errors.Is(err, replay.ErrUnknown) {
		t.Error(err)
	}
	l.begin(t, "s")
	if _, err := l.Begin(t.Context(), replay.Head{ID: "s"}); !errors.Is(err, replay.ErrTaken) {
		t.Error(err)
	}
	l.append(t, "s", append([]replay.Event{delta("x")}, ending...)...)
	if _, _, _, err := l.collect(t.Context(), "s", 4); !errors.Is(err, replay.ErrAhead) {
		t.Error(err)
	}
}

func aKeyHasOneStream(t *testing.T, l log) {
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			h, err := l.Begin(context.Background(), replay.Head{ID: fmt.Sprint("s", i), Epoch: "e", Key: "k", Body: "b"})
			if err != nil || h.Body != "b" {
				t.Error(h, err)
			}
			ids[i] = h.ID
		})
	}
	wg.Wait()
	for i, id := range ids {
		if id != ids[0] {
			t.Errorf("the key has the streams %s and %s", ids[0], id)
		}
		if _, err := l.Open(t.Context(), fmt.Sprint("s", i)); (err == nil) != (ids[0] == fmt.Sprint("s", i)) {
			t.Errorf("s%d, where the key has %s: %v", i, ids[0], err)
		}
	}
	l.append(t, ids[0], ending...)
}

func forgottenStreamsLeaveTheirKey(t *testing.T, l log) {
	head := replay.Head{ID: "s", Epoch: "e", Key: "k"}
	if _, err := l.Begin(t.Context(), head); err != nil {
		t.Fatal(err)
	}
	r, err := l.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l.Forget(t.Context(), "s", "e")
	if _, err := r.Read(t.Context(), 0); !errors.Is(err, replay.ErrUnknown) {
		t.Error(err)
	}
	if _, err := l.Open(t.Context(), "s"); !errors.Is(err, replay.ErrUnknown) {
		t.Error(err)
	}
	head.ID = "s2"
	if h, err := l.Begin(t.Context(), head); err != nil || h.ID != "s2" {
		t.Error(h, err)
	}
	l.append(t, "s2", ending...)
}

// anEpochIsForOneLog checks that a run whose epoch is not the epoch of the log neither writes to
// the log nor drops it.
func anEpochIsForOneLog(t *testing.T, l log) {
	l.begin(t, "s")
	if err := l.Append("s", "earlier", delta("not mine")); !errors.Is(err, replay.ErrUnknown) {
		t.Error(err)
	}
	l.Forget(t.Context(), "s", "earlier")
	l.append(t, "s", append([]replay.Event{delta("mine")}, ending...)...)
	if text, _, _, err := l.collect(t.Context(), "s", 0); text != "mine" || err != nil {
		t.Error(text, err)
	}
}

func aFullStreamTakesOnlyItsEnding(t *testing.T, l log) {
	l.begin(t, "s")
	piece, n := strings.Repeat("x", 10000), 0
	for ; ; n++ {
		if err := l.Append("s", "e", delta(piece)); errors.Is(err, replay.ErrFull) {
			break
		} else if err != nil || n > 200 {
			t.Fatal(n, err)
		}
	}
	l.append(t, "s", ending...)
	if text, rest, _, err := l.collect(t.Context(), "s", 0); text != strings.Repeat(piece, n) || len(rest) != 2 || err != nil {
		t.Error(len(text), rest, err)
	}
}

func endedStreamsExpire(t *testing.T, l log) {
	l.begin(t, "s")
	l.begin(t, "live")
	l.append(t, "s", ending...)
	polltest.Eventually(t, "the stream expires", func() bool {
		r, err := l.Open(t.Context(), "s")
		if err == nil {
			r.Close()
		} else if !errors.Is(err, replay.ErrUnknown) {
			t.Fatal(err)
		}
		return err != nil
	})
	l.append(t, "live", delta("still here"))
	r, err := l.Open(t.Context(), "live") // its end is not appended: it would expire soon, too
	if err != nil {
		t.Fatal("a live stream has expired:", err)
	}
	r.Close()
}

func unreadTextComesInFewLargeEvents(t *testing.T, l log) {
	l.begin(t, "s")
	var events []replay.Event
	for range 5000 {
		events = append(events, delta("token "))
	}
	l.append(t, "s", events...)
	l.append(t, "s", ending...)
	text, _, n, err := l.collect(t.Context(), "s", 0)
	if err != nil || text != strings.Repeat("token ", 5000) {
		t.Fatal(len(text), err)
	}
	if n > 100 {
		t.Errorf("5000 unread deltas came in %d events", n)
	}
}

func onlyEndedStreamsAreErased(t *testing.T, l log) {
	const memo = "what the API needs"
	if _, err := l.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e", Key: "k", Memo: memo, Began: time.Now()}); err != nil {
		t.Fatal(err)
	}
	l.append(t, "s", delta("text"))
	if erased, err := l.Erase(t.Context(), "s", "e"); erased || err != nil {
		t.Error("a live stream was erased", erased, err)
	}
	l.append(t, "s", ending...)
	if _, _, _, err := l.collect(t.Context(), "s", 0); err != nil {
		t.Fatal(err)
	}
	r, err := l.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Head().Memo; got != memo {
		t.Errorf("the memo is %q", got)
	}
	r.Close()
	if erased, err := l.Erase(t.Context(), "s", "earlier"); !erased || err != nil {
		t.Error(erased, err)
	}
	for range 2 {
		if erased, err := l.Erase(t.Context(), "s", "e"); !erased || err != nil {
			t.Error("an ended stream was not erased", erased, err)
		}
		if _, err := l.Open(t.Context(), "s"); !errors.Is(err, replay.ErrUnknown) {
			t.Error(err)
		}
	}
	if h, err := l.Begin(t.Context(), replay.Head{ID: "t", Epoch: "e", Key: "k"}); err != nil || h.ID != "t" {
		t.Error("the key is not free:", h, err)
	}
	l.append(t, "t", ending...)
}
