package openai_test

import (
	"strings"
	"testing"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
)

func second(t *testing.T) (rank beside.Rank) {
	t.Helper()
	if err := rank.Set("1"); err != nil {
		t.Fatal(err)
	}
	return rank
}

func TestRequestsNameTheRank(t *testing.T) {
	f := newFake(t, counting)
	e := engineOn(t, f.URL, func(o *openai.Options) { o.Rank = second(t) })
	if tried := f.header.Load().Get("X-Data-Parallel-Rank"); tried != "1" {
		t.Errorf("the trial is of rank %q", tried)
	}
	if r := read(t.Context(), e, request(3), nil); r.err != nil || f.header.Load().Get("X-Data-Parallel-Rank") != "1" {
		t.Error(r.err, f.header.Load())
	}
}

func TestServerWithoutRanksIsRefused(t *testing.T) {
	f := newFake(t, counting, func(f *fake) { f.owner = "llamacpp" })
	e := openai.New(tinyModel(t), openai.Options{Options: beside.Options{Upstream: f.URL, MaxRunning: 1, Rank: second(t)}})
	if err := e.Try(t.Context()); err == nil || !strings.Contains(err.Error(), "--upstream-rank") {
		t.Error(err)
	}
}

func TestInvalidRanksAreRefused(t *testing.T) {
	for _, text := range []string{"-1", "x", "4096", "1.0"} {
		if err := new(beside.Rank).Set(text); err == nil {
			t.Errorf("%q is a rank", text)
		}
	}
}
