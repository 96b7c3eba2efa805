package likely_test

import (
	"math"
	"slices"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
)

func at(id uint32, logprob float32, top ...likely.Token) likely.Position {
	return likely.Position{Token: likely.Token{ID: id, Logprob: logprob}, Top: top}
}

func complete(q *likely.Queue, ids ...uint32) *workerv1.Tokens {
	item := &workerv1.Tokens{Ids: ids}
	q.Complete(item)
	return item
}

func TestTokensLeaveTheQueueWithTheirLogprobs(t *testing.T) {
	q := likely.NewQueue(&llmv1.Sampling{Logprobs: new(uint32(2))})
	for _, positions := range [][]likely.Position{
		{at(7, -3, likely.Token{ID: 9, Logprob: -1}, likely.Token{ID: 7, Logprob: -3}, likely.Token{ID: 8, Logprob: -1})},
		{
			at(5, -0.5, likely.Token{ID: 5, Logprob: -0.5}, likely.Token{ID: 1, Logprob: float32(math.Inf(-1))}),
			at(6, -0.25, likely.Token{ID: 6, Logprob: -0.25}, likely.Token{ID: 2, Logprob: -2}),
		},
	} {
		var ids []uint32
		for _, p := range positions {
			ids = append(ids, p.ID)
		}
		if err := q.Add(ids, positions); err != nil {
			t.Fatal(err)
		}
	}
	first, rest := complete(q, 7, 5), complete(q, 6)
	if !slices.Equal(first.GetIds(), []uint32{7, 5}) || !slices.Equal(first.GetLogprobs(), []float32{-3, -0.5}) ||
		!slices.Equal(first.GetTopIds(), []uint32{8, 9, 5, 1}) || !slices.Equal(first.GetTopLogprobs(), []float32{-1, -1, -0.5, -9999}) {
		t.Error(first)
	}
	if !slices.Equal(rest.GetIds(), []uint32{6}) || !slices.Equal(rest.GetTopIds(), []uint32{6, 2}) {
		t.Error(rest)
	}
}

func TestNilQueueAddsNoLogprobs(t *testing.T) {
	for _, s := range []*llmv1.Sampling{nil, {}} {
		q := likely.NewQueue(s)
		if err := q.Add([]uint32{5}, nil); err != nil || q != nil || len(complete(q, 5).GetIds()) != 1 {
			t.Error(q, err)
		}
	}
}

func TestLogprobsThatDoNotMatchTheTokensAreRefused(t *testing.T) {
	for name, positions := range map[string][]likely.Position{
		"none": nil, "of another token": {at(6, -1, likely.Token{ID: 6})}, "without the top tokens": {at(5, -1)},
		"of too many tokens": {at(5, -1, likely.Token{ID: 5}), at(6, -1, likely.Token{ID: 6})},
	} {
		if err := likely.NewQueue(&llmv1.Sampling{Logprobs: new(uint32(1))}).Add([]uint32{5}, positions); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
