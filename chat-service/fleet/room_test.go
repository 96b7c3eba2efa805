package fleet

import (
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

func TestRoomCountsHealthyWorkers(t *testing.T) {
	f := New(Options{})
	f.Pretend(Pretended("w/0", nil), Pretended("w/1", nil), Pretended("w/2", nil))
	set := func(i int, places uint32, others int64) {
		w := f.Members()[i]
		said := info(w.Name())
		said.Load = &llmv1.Load{MaxRunning: places}
		w.Say(said)
		w.others.Store(others)
	}
	set(0, 8, 3)
	set(1, 4, 6) // a stream that waits at the worker does not reduce our places
	f.Members()[2].Say(nil)
	want := func(places int, healthy bool) {
		t.Helper()
		if got, ok := f.Room(); got != places || ok != healthy {
			t.Errorf("%d places, healthy %v; want %d, %v", got, ok, places, healthy)
		}
	}
	want(5, true)
	set(2, 0, 0)
	want(-1, true) // one does not say
	for _, w := range f.Members() {
		w.Say(nil)
	}
	want(0, false)
}
