package tinyllama

import (
	"encoding/json"
	"os"
	"slices"
	"sync"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/matrix"
)

// A golden is an answer of llama.cpp; scripts/goldens-engine writes it.
type golden struct {
	Name      string   `json:"name"`
	MaxTokens *uint32  `json:"max_tokens"`
	Finish    string   `json:"finish"`
	Prompt    []uint32 `json:"prompt"`
	Answer    []uint32 `json:"answer"`
}

func goldens(t testing.TB) (all []golden) {
	t.Helper()
	b, err := os.ReadFile("testdata/greedy.json")
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil || len(all) < 24 {
		t.Fatalf("%d goldens, %v", len(all), err)
	}
	return all
}

func (g golden) request() *workerv1.TokenRequest {
	return &workerv1.TokenRequest{
		Prompt:   g.Prompt,
		Sampling: &llmv1.Sampling{Temperature: new(float32(0)), MaxTokens: g.MaxTokens},
	}
}

// check compares the engine's answer with llama.cpp's.
func (g golden) check(t *testing.T, got []batch.Output) {
	t.Helper()
	var ids []uint32
	for _, o := range got {
		ids = append(ids, o.Token)
	}
	if !slices.Equal(ids, g.Answer) {
		t.Errorf("%s: answer\n%v, want\n%v", g.Name, ids, g.Answer)
		return
	}
	for i, o := range got {
		want := batch.Output{ID: o.ID, Token: o.Token, Cached: o.Cached}
		if i == len(got)-1 {
			want.Hidden, want.Finish = g.Finish == "stop", llmv1.Finish_FINISH_LENGTH
			if want.Hidden {
				want.Finish = llmv1.Finish_FINISH_STOP
			}
		}
		if o != want {
			t.Errorf("%s: token %d is %+v, want %+v", g.Name, i, o, want)
		}
	}
}

var (
	tinyFS = whencetiny.FS()
	tiny   = sync.OnceValues(func() (*Weights, error) { return Load(tinyFS, LoadOptions{}) })
)

func tinyWeights(t testing.TB) *Weights {
	t.Helper()
	w, err := tiny()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestGreedyAnswersMatchLlamaCpp(t *testing.T) {
	m := New(tinyWeights(t), Options{})
	for i, g := range goldens(t) {
		if testing.Short() && len(g.Answer) > 100 {
			continue
		}
		g.check(t, generate(t, m, uint64(i), g.request()))
	}
}

func TestGreedyAnswersMatchLlamaCppWithoutAssembly(t *testing.T) {
	defer matrix.Portable()()
	m := New(tinyWeights(t), Options{})
	for i, g := range goldens(t) {
		if len(g.Prompt)+len(g.Answer) < 60 { // slow under the race detector
			g.check(t, generate(t, m, uint64(i), g.request()))
		}
	}
}

// generate runs one sequence alone, from Join to Leave.
func generate(t testing.TB, m *Model, id uint64, req *workerv1.TokenRequest) (got []batch.Output) {
	t.Helper()
	if err := m.Join(id, req); err != nil {
		t.Fatal(err)
	}
	defer m.Leave(id)
	for len(got) == 0 || got[len(got)-1].Finish == llmv1.Finish_FINISH_UNSPECIFIED {
		var err error
		if got, err = m.Step([]uint64{id}, got); err != nil {
			t.Fatal(err)
		}
	}
	return got
}
