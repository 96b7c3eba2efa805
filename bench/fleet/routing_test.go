package main

import (
	"io"
	"reflect"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestPromptsGoWhereTheirPrefixIs checks only cache hits, because times depend on the machine.
func TestPromptsGoWhereTheirPrefixIs(t *testing.T) {
	c := &options{workers: 4, kvTokens: 96 << 10, requests: 240, warming: 80, together: 3, rate: 28, slow: 0.1, seed: 1, out: io.Discard}
	l := sharedPrefix(c.requests, c.rate, c.seed)
	found := map[string]float64{}
	for _, p := range []policy{policies[0], policies[4], policies[5]} {
		r, err := c.measure(t.Context(), p, l)
		if err != nil {
			t.Fatal(err)
		}
		if r.failed > 0 || len(r.first) != 160 {
			t.Errorf("%s: %d requests failed, the last with %v; %d were measured", p.called, r.failed, r.err, len(r.first))
		}
		found[p.called] = r.ratio(r.cached)
		if off := r.ratio(r.expected) - r.ratio(r.cached); p.called == "kv, events" && (off > 0.1 || off < -0.1) {
			t.Errorf("%s: %.2f of the tokens were expected in caches, but %.2f were cached", p.called, r.ratio(r.expected), r.ratio(r.cached))
		}
	}
	t.Log(found)
	// On a busy machine events are late, but forecasts are not.
	if found["kv, events"] < 0.6 || found["kv, events"] < 2*found["round-robin"] || found["kv, events"] < found["kv, approximate"]-0.1 {
		t.Errorf("cached fractions of all prompts: %v", found)
	}
}

func TestLoadsDependOnTheirSeedAlone(t *testing.T) {
	for _, make := range []func(int, float64, uint64) load{sharedPrefix, trace, longPrompts} {
		a, b, c := make(50, 10, 1), make(50, 10, 1), make(50, 10, 2)
		if !reflect.DeepEqual(a, b) || reflect.DeepEqual(a, c) {
			t.Errorf("%s: equal seeds make different loads", a.name)
		}
		n := 0
		for _, conv := range a.conversations {
			n += len(conv.turns)
		}
		if n != 50 {
			t.Errorf("%s: %d requests, want 50", a.name, n)
		}
	}
}

// TestPromptsAreHandedOver checks only which workers have read the prompts.
func TestPromptsAreHandedOver(t *testing.T) {
	c := &options{workers: 4, kvTokens: 64 << 10, requests: 12, together: 3, rate: 8, slow: 0.1, seed: 1, out: io.Discard}
	for prefill, handed := range map[int]int{0: 0, 2: 12} {
		r, err := c.measure(t.Context(), policy{name: "least-loaded", prefill: prefill}, longPrompts(c.requests, c.rate, c.seed))
		if err != nil || r.failed > 0 || r.handed != handed || len(r.first) != 12 || len(r.gaps) < 12*64 || r.cached != 0 {
			t.Errorf("with %d prefill workers: %+v, %v", prefill, r, err)
		}
	}
}
