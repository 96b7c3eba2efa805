package replaytest

import (
	"errors"
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
