package replaytest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/whence-dev/whence/api-service/replay"
)

func theClosingEventIsReadAlone(t *testing.T, l log) {
	l.begin(t, "s")
	r, err := l.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l.append(t, "s", delta("x"))
	if e, err := r.Closing(t.Context()); !errors.Is(err, replay.ErrOpen) {
		t.Errorf("a stream that has not ended: %+v, %v", e, err)
	}
	l.append(t, "s", replay.Event{Kind: replay.Failure, Data: `{"n":1}`})
	if _, _, _, err := l.collect(t.Context(), "s", 0); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Closing(t.Context()); err != nil || e != (replay.Event{Seq: 2, Kind: replay.Failure, Data: `{"n":1}`}) {
		t.Errorf("%+v, %v", e, err)
	}
	l.Forget(t.Context(), "s", "e")
	if e, err := r.Closing(t.Context()); !errors.Is(err, replay.ErrUnknown) {
		t.Errorf("a forgotten stream: %+v, %v", e, err)
	}
}

// refusedStreamsLeaveTheirKey checks that the readers who got a stream from its key read why it was
// refused, and that the key is free at once.
func refusedStreamsLeaveTheirKey(t *testing.T, l log) {
	for i, ended := range []bool{false, true} {
		key, ids := fmt.Sprint("k", i), [2]string{fmt.Sprint("s", i), fmt.Sprint("t", i)}
		if _, err := l.Begin(t.Context(), replay.Head{ID: ids[0], Epoch: "e", Key: key}); err != nil {
			t.Fatal(err)
		}
		if h, err := l.Begin(t.Context(), replay.Head{ID: "retry", Epoch: "e", Key: key}); err != nil || h.ID != ids[0] {
			t.Fatal(h, err)
		}
		want := replay.Event{Seq: 1, Kind: replay.Failure, Data: `{"refused":1}`}
		if ended {
			want.Data = `{"failed":1}`
			l.append(t, ids[0], replay.Event{Kind: replay.Failure, Data: want.Data})
		}
		refusal := replay.Event{Kind: replay.Failure, Data: `{"refused":1}`}
		l.Refuse(t.Context(), ids[0], "another", refusal)
		l.Refuse(t.Context(), ids[0], "e", refusal)
		h, err := l.Begin(t.Context(), replay.Head{ID: ids[1], Epoch: "e", Key: key})
		if err != nil || h.ID != ids[1] {
			t.Fatal("the key of a refused stream is not free:", h, err)
		}
		if text, rest, n, err := l.collect(t.Context(), ids[0], 0); err != nil || text != "" || n != 1 || rest[0] != want {
			t.Errorf("a reader of the refused stream gets %q, %+v, %v", text, rest, err)
		}
		l.append(t, ids[1], ending...)
		if _, rest, _, err := l.collect(t.Context(), ids[1], 0); err != nil || len(rest) != 2 {
			t.Error(rest, err)
		}
	}
	l.Refuse(t.Context(), "nobody", "e", replay.Event{Kind: replay.Failure})
}
