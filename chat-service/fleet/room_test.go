package fleet

import (
	"testing"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

func TestRoomIsWhatHealthyWorkersHave(t *testing.T) {
	f := New(Options{})
	f.Pretend(Pretended("w/0", nil), Pretended("w/1", nil), Pretended("w/2", nil))
	set := func(i int, places uint32, others int64) {
		w := f.Members()[i]
		said := info(w.Name())
		said.Load = &workerv1.Load{MaxRunning: places}
		w.Say(said)
		w.others.Store(others)
	}
	set(0, 8, 3)
	set(1, 4, 6) // one that waits there is not ours to count
	f.Members()[2].Say(nil)
	if got := f.Room(); got != 5 {
		t.Errorf("%d, want 5", got)
	}
	set(2, 0, 0)
	if got := f.Room(); got >= 0 {
		t.Errorf("%d, although one does not say", got)
	}
	for _, w := range f.Members() {
		w.Say(nil)
	}
	if got := f.Room(); got >= 0 {
		t.Errorf("%d, although none is healthy: streams would wait instead of hearing that", got)
	}
}
