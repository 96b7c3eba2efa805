package route

import (
	"testing"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

func TestRoomIsWhatHealthyWorkersHave(t *testing.T) {
	p := poolOf(t, Options{}, &fake{name: "w/0"}, &fake{name: "w/1"}, &fake{name: "w/2"})
	set := func(i int, places uint32, others int64) {
		w := p.members()[i]
		said := info(w.Name())
		said.Load = &workerv1.Load{MaxRunning: places}
		w.info.Store(said)
		w.others.Store(others)
	}
	set(0, 8, 3)
	set(1, 4, 6) // one that waits there is not ours to count
	p.members()[2].info.Store(nil)
	if got := p.Room(); got != 5 {
		t.Errorf("%d, want 5", got)
	}
	set(2, 0, 0)
	if got := p.Room(); got >= 0 {
		t.Errorf("%d, although one does not say", got)
	}
	for _, w := range p.members() {
		w.info.Store(nil)
	}
	if got := p.Room(); got >= 0 {
		t.Errorf("%d, although none is healthy: streams would wait instead of hearing that", got)
	}
}
