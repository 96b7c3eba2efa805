package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func parse(t *testing.T, name string, opts Options) Policy {
	t.Helper()
	p, err := Parse(name, opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func loads(streams ...float64) (all []Candidate) {
	for i, n := range streams {
		all = append(all, Candidate{Name: fmt.Sprint("w/", i), Streams: n})
	}
	return all
}

// shares sends a policy 1,000 streams that never end, and returns the number that each worker gets.
func shares(p Policy, all []Candidate) []int {
	counts := make([]int, len(all))
	for range 1000 {
		i := p(Request{}, all)
		counts[i]++
		all[i].Streams++
	}
	return counts
}

func TestPoliciesSpreadStreams(t *testing.T) {
	for name, c := range map[string]struct {
		want   [3]int // of workers that begin with 0, 0 and 400 streams
		within int
	}{
		LeastLoaded: {[3]int{467, 467, 66}, 1},
		RoundRobin:  {[3]int{333, 333, 333}, 1},
		PowerOfTwo:  {[3]int{460, 460, 80}, 60},
	} {
		p := parse(t, name, Options{})
		for i, n := range shares(p, loads(0, 0, 400)) {
			if n < c.want[i]-c.within || n > c.want[i]+c.within {
				t.Errorf("%s gave worker %d %d of 1,000 streams, want about %d", name, i, n, c.want[i])
			}
		}
		for i, n := range shares(p, loads(0, 0, 0, 0)) {
			if n < 200 || n > 300 {
				t.Errorf("%s gave worker %d %d of 1,000 streams, want about 250", name, i, n)
			}
		}
		if counts := shares(p, loads(7)); counts[0] != 1000 {
			t.Errorf("%s: %v", name, counts)
		}
	}
}

func of(key uint64) Request { return Request{Session: func() uint64 { return key }} }

func TestSessionKeepsItsWorkerWithinItsShare(t *testing.T) {
	p := parse(t, Session, Options{})
	all := loads(0, 0, 0, 0)
	for key := range uint64(100) {
		home := p(of(key), all)
		if again := p(of(key), all); again != home {
			t.Errorf("session %d goes to %d and %d", key, home, again)
		}
		// If another worker leaves, the session stays.
		other := (home + 1) % 4
		rest := slices.Delete(slices.Clone(all), other, other+1)
		if now := rest[p(of(key), rest)].Name; now != all[home].Name {
			t.Errorf("session %d moved from %s to %s, though only %s has gone", key, all[home].Name, now, all[other].Name)
		}
		busy := slices.Clone(all)
		busy[home].Streams = fewStreams - 1
		if p(of(key), busy) != home {
			t.Errorf("session %d leaves a worker with few streams", key)
		}
		busy[home].Full = true
		if p(of(key), busy) == home {
			t.Errorf("session %d stays at a worker that cannot run more", key)
		}
		busy[home].Streams, busy[home].Full = 50, false
		if p(of(key), busy) == home {
			t.Errorf("session %d stays at a worker that has all streams", key)
		}
	}
}

func TestSessionsAreSpread(t *testing.T) {
	p := parse(t, Session, Options{})
	counts := make([]int, 8)
	for key := range uint64(800) {
		counts[p(of(Hash(0, fmt.Sprint("session ", key))), loads(0, 0, 0, 0, 0, 0, 0, 0))]++
	}
	for i, n := range counts {
		if n < 60 || n > 140 {
			t.Errorf("worker %d has %d of 800 sessions", i, n)
		}
	}
	all := loads(0, 0, 0, 0)
	for range 1000 {
		all[p(of(1), all)].Streams++
	}
	for _, c := range all {
		if c.Streams > 314 { // 1.25 times its share, rounded up
			t.Errorf("%s has %v of the 1,000 streams of one session", c.Name, c.Streams)
		}
	}
}

// Every worker has its share or more, and one of them must still be chosen.
func TestSessionPolicyChoosesWhenAllWorkersAreBusy(t *testing.T) {
	p := parse(t, Session, Options{})
	for _, all := range [][]Candidate{loads(9, 9, 9), loads(0.6, 0.6), loads(1e15, 1e15), loads(3)} {
		if i := p(of(1), all); i < 0 || i >= len(all) {
			t.Error(i)
		}
	}
}

func TestCachedPrefixCompetesWithLoad(t *testing.T) {
	kv := parse(t, KV, Options{Overlap: 1})
	all := loads(0, 0)
	all[1].Cached = 320
	if kv(Request{Prompt: 400}, all) != 1 {
		t.Error("a cached prefix does not count")
	}
	all[1].Unread, all[1].Held = 10000, 10000
	if kv(Request{Prompt: 400}, all) != 0 {
		t.Error("a busy worker is not worth its cache")
	}
}

func TestNamedSessionBreaksTies(t *testing.T) {
	p := parse(t, KV, Options{Overlap: 1})
	all := loads(0, 0, 0, 0)
	named, other := of(7), of(7)
	named.Named = true
	home, turns := p(named, all), map[int]bool{}
	for range 8 {
		if again := p(named, all); again != home {
			t.Errorf("a session goes to %d and %d", home, again)
		}
	}
	for range all {
		turns[p(other, all)] = true
	}
	if len(turns) != len(all) {
		t.Errorf("requests without a session go to %d of %d equal workers", len(turns), len(all))
	}
	all[home].Held = 10 * tokensPerStream
	if p(named, all) == home {
		t.Error("a session outweighs a load")
	}
}

func TestCompositionWeighsItsParts(t *testing.T) {
	for spec, want := range map[string]int{
		"load=1":                    0,
		"load=1, session=9":         1,
		"load=1,session=0.5":        0,
		"prefill=1":                 1,
		"prefill=1,load=100":        0,
		"share,load=0.001,prefill=": -1,
	} {
		p, err := Parse(spec, Options{Overlap: 1})
		if (err != nil) != (want < 0) {
			t.Errorf("%q: %v", spec, err)
		}
		if err != nil {
			continue
		}
		all := loads(0, 2)
		all[0].Unread = 160
		key := uint64(0)
		for Hash(key, all[1].Name) < Hash(key, all[0].Name) {
			key++
		}
		if got := p(of(key), all); got != want {
			t.Errorf("%q chooses %d, want %d", spec, got, want)
		}
	}
	for _, spec := range []string{"best", "load", "load=x", "load=-1", "load=1,,", "two=1", "load=NaN"} {
		if _, err := Parse(spec, Options{}); err == nil || !strings.Contains(err.Error(), LeastLoaded) {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

func TestTemperatureSpreadsChoices(t *testing.T) {
	p := parse(t, "prefill=1", Options{Overlap: 1, Temperature: 0.5})
	all := loads(0, 0, 0)
	all[0].Cached = 160
	counts := make([]int, 3)
	for range 1000 {
		counts[p(Request{Prompt: 160}, all)]++
	}
	// Two workers cost the most, so their weight is exp(-1/0.5): 787, 106 and 106 of 1,000.
	for i, want := range []int{787, 106, 106} {
		if counts[i] < want-60 || counts[i] > want+60 {
			t.Errorf("worker %d got %d of 1,000, want about %d", i, counts[i], want)
		}
	}
}

func TestPromptsGoToWorkersWithTheLeastToRead(t *testing.T) {
	for name, want := range map[string]string{KV: KV, Session: Session, LeastLoaded: "prefill=1", "": "prefill=1", "load=1,kv=2": "load=1,kv=2"} {
		if got := ForPrompts(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	p := parse(t, ForPrompts(RoundRobin), Options{})
	all := loads(9, 0)
	all[1].Unread = 1
	if p(Request{Prompt: 5}, all) != 0 {
		t.Error("the worker with less to read was not chosen")
	}
}

func BenchmarkChoose(b *testing.B) {
	p, _ := Parse(KV, Options{Overlap: 1})
	all := loads(make([]float64, 16)...)
	b.ReportAllocs()
	for b.Loop() {
		p(Request{Prompt: 100}, all)
	}
}
