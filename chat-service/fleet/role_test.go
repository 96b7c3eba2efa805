package fleet

import (
	"maps"
	"slices"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// fleetWithRoles returns a fleet of healthy workers with these roles, which are named by the keys.
func fleetWithRoles(roles map[string]llmv1.Role) *Fleet {
	f := New(Options{})
	var workers []*Worker
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		w := Pretended(name, nil)
		w.Say(&llmv1.WorkerInfo{Instance: name, ContextLength: 100, Role: roles[name], Load: &llmv1.Load{MaxRunning: 4}})
		workers = append(workers, w)
	}
	f.Pretend(workers...)
	return f
}

func TestPrefillWorkersCountAsNoRoomForStreams(t *testing.T) {
	const prefill, decode = llmv1.Role_ROLE_PREFILL, llmv1.Role_ROLE_DECODE
	f := fleetWithRoles(map[string]llmv1.Role{"r": prefill, "w": decode})
	told := []bool{}
	f.changed = func(healthy bool) { told = append(told, healthy) }
	f.notify()
	places, up := f.Room()
	if healthy, known := f.Count(); healthy != 2 || known != 2 || places != 4 || !up || f.Context() != 100 {
		t.Errorf("%d of %d healthy, room for %d, context %d", healthy, known, places, f.Context())
	}
	f.Members()[1].Say(nil)
	f.notify()
	if _, up := f.Room(); !slices.Equal(told, []bool{true, false}) || up || f.Context() != 0 {
		t.Errorf("told %v, healthy %v, context %d", told, up, f.Context())
	}
}

func TestWhyAsksWorkersInTheOrderOfTheStream(t *testing.T) {
	f := fleetWithRoles(map[string]llmv1.Role{"a": 0, "b": 0, "c": 0, "r": llmv1.Role_ROLE_PREFILL})
	names := func(r *streamv1.Record) (names []string) {
		workers, named := f.had(r)
		if len(workers) != 4 {
			t.Errorf("%v: %d workers are asked, not all", r, len(workers))
		}
		for _, w := range workers[:named] {
			names = append(names, w.Name())
		}
		return names
	}
	for _, c := range []struct {
		record *streamv1.Record
		want   []string
	}{
		{nil, nil},
		{&streamv1.Record{}, nil},
		{&streamv1.Record{Workers: []string{"b", "gone", "a"}}, []string{"b", "a"}},
		{&streamv1.Record{Handovers: []*streamv1.Handover{{From: "r", To: "b"}}}, []string{"r", "b"}},
		{&streamv1.Record{Handovers: []*streamv1.Handover{{To: "b"}}}, []string{"b"}},
		{&streamv1.Record{Handovers: []*streamv1.Handover{{From: "r", To: "b"}, {From: "r", To: "a"}}, Moves: []*streamv1.Move{{From: "b", To: "a"}, {From: "a", To: "c"}}}, []string{"r", "b", "a", "c"}},
	} {
		if got := names(c.record); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.record, got, c.want)
		}
	}
}
