package tinyllama

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// embed embeds one text, from JoinEmbed to Leave, in a batch with others.
func embed(t testing.TB, m *Model, ids []uint32, others ...uint64) []float32 {
	t.Helper()
	const id = 1 << 40
	if err := m.JoinEmbed(id, ids); err != nil {
		t.Fatal(err)
	}
	defer m.Leave(id)
	for {
		others = slices.DeleteFunc(others, func(o uint64) bool { return m.sequences[o].finished })
		for _, out := range mustStep(t, m, append([]uint64{id}, others...), nil) {
			if out.ID != id {
				continue
			}
			if out.Err != nil {
				t.Fatal(out.Err)
			}
			return out.Vector.GetValues()
		}
	}
}

func random(seed uint64, n, vocab int) []uint32 {
	r := rand.New(rand.NewPCG(seed, 9))
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = r.Uint32N(uint32(vocab))
	}
	return ids
}

func TestVectorIsTheMeanOfTheLastStates(t *testing.T) {
	model := newRandomModel(5, nil)
	// The reference returns logits. With the unit matrix as the head they are the last states.
	d := model.config["hidden_size"].(int)
	unit := tensor{shape: []int{d, d}, values: make([]float32, d*d)}
	for i := range d {
		unit.values[i*d+i] = 1
	}
	w := model.load(t)
	model.tensors["lm_head.weight"] = unit
	ids := random(1, 70, 50)
	want := make([]float64, d)
	for n := range ids {
		add(want, model.reference(w.config, func(i int) float64 { return math.Pow(10000, -2*float64(i)/6) }, ids[:n+1]))
	}
	length := 0.0
	for _, v := range want {
		length += v * v
	}
	got := embed(t, New(w, Options{Threads: 1, PrefillChunk: 50}), ids)
	for i, v := range got {
		if math.Abs(float64(v)-want[i]/math.Sqrt(length)) > 1e-5 {
			t.Fatalf("number %d is %v, want %v", i, v, want[i]/math.Sqrt(length))
		}
	}
}

func TestBatchesDoNotChangeABitOfAVector(t *testing.T) {
	w := tinyWeights(t)
	ids := random(2, 150, 1500)
	want := embed(t, New(w, Options{Threads: 1, NoPrefixCache: true}), ids)
	for _, opts := range []Options{{Threads: 1, PrefillChunk: 1}, {Threads: 3, PrefillChunk: 64}, {Threads: 2, PrefillChunk: 1000}} {
		t.Run(fmt.Sprintf("%+v", opts), func(t *testing.T) {
			m := New(w, opts)
			var others []uint64
			for i := range uint64(5) {
				if err := m.Join(i, endless(10+7*int(i), 40)); err != nil {
					t.Fatal(err)
				}
				others = append(others, i)
			}
			for range 2 { // the second text could use cached prefixes, and must not
				if got := embed(t, m, ids, others...); !slices.Equal(got, want) {
					t.Error("the vector is another one")
				}
			}
			for i := range uint64(5) {
				m.Leave(i)
			}
			alone := generate(t, New(w, Options{Threads: 1}), 1, endless(24, 40))
			// except for the number of cached tokens
			same := func(a, b batch.Output) bool { return a.Token == b.Token }
			if got := generate(t, m, 1, endless(24, 40)); !slices.EqualFunc(got, alone, same) {
				t.Error("an answer beside or behind it is another one")
			}
			if used, _ := m.KV(); used != 0 {
				t.Errorf("%d positions are still reserved", used)
			}
		})
	}
}

func TestInvalidTextsAreRefused(t *testing.T) {
	m := New(tinyWeights(t), Options{ContextLength: 300, KVTokens: 256})
	for want, ids := range map[string][]uint32{
		"no tokens": {}, "the context holds 300": make([]uint32, 301), "256 in all": make([]uint32, 257), "the vocabulary": {1, 1 << 31},
	} {
		for _, err := range []error{m.CheckEmbed(ids), m.JoinEmbed(1, ids)} {
			if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid {
				t.Errorf("%s: %v", want, err)
			}
		}
	}
	if err := m.JoinEmbed(1, make([]uint32, 200)); err != nil {
		t.Fatal(err)
	}
	if err := m.JoinEmbed(2, []uint32{1}); !errors.Is(err, batch.ErrFull) {
		t.Error(err)
	}
}

func TestNaNFailsOnlyItsText(t *testing.T) {
	broken := newRandomModel(1, nil)
	broken.tensors["model.norm.weight"].values[3] = float32(math.NaN())
	m := New(broken.load(t), Options{})
	if err := m.JoinEmbed(1, []uint32{1, 2}); err != nil {
		t.Fatal(err)
	}
	out, err := m.Step([]uint64{1}, nil)
	if err != nil || len(out) != 1 || !errors.Is(out[0].Err, streamerr.EngineFailed) || out[0].Vector != nil {
		t.Error(out, err)
	}
}

func BenchmarkEmbed(b *testing.B) {
	b.ReportAllocs()
	m, ids := New(tinyWeights(b), Options{Threads: 1}), random(1, 200, 1500)
	for b.Loop() {
		embed(b, m, ids)
	}
}
