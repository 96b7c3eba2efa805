package likely_test

import (
	"encoding/json"
	"slices"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/openai/likely"
)

func read(t *testing.T, text string) *likely.Logprobs {
	t.Helper()
	var l *likely.Logprobs
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

func complete(q *likely.Queue, ids ...uint32) *workerv1.Tokens {
	item := &workerv1.Tokens{Ids: ids}
	q.Complete(item)
	return item
}

func TestTokensAreTakenWithTheirLogprobs(t *testing.T) {
	q := likely.NewQueue(&llmv1.Sampling{Logprobs: new(uint32(2))})
	for _, c := range []struct {
		text string
		ids  []uint32
	}{
		{`{"tokens":["token_id:7"],"token_logprobs":[-3],"top_logprobs":[{"token_id:9":-1,"token_id:7":-3,"token_id:8":-1}]}`, []uint32{7}},
		{`{"tokens":["token_id:5","token_id:6"],"token_logprobs":[-0.5,-0.25],"top_logprobs":[{"token_id:5":-0.5,"token_id:1":-9999},{"token_id:6":-0.25,"token_id:2":-2}]}`, []uint32{5, 6}},
	} {
		if err := q.Add(read(t, c.text), c.ids); err != nil {
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

func TestNobodyWhoDoesNotAskIsTold(t *testing.T) {
	for _, s := range []*llmv1.Sampling{nil, {}} {
		if q := likely.NewQueue(s); q != nil || len(complete(q, 5).GetIds()) != 1 {
			t.Error(q)
		}
	}
}

func TestLogprobsThatDoNotFitAreRefused(t *testing.T) {
	for _, text := range []string{
		`null`, `{}`, `{"tokens":["token_id:5"],"token_logprobs":[],"top_logprobs":[{}]}`, `{"tokens":["x"],"token_logprobs":[-1],"top_logprobs":[{"token_id:5":-1}]}`,
		`{"tokens":["token_id:6"],"token_logprobs":[-1],"top_logprobs":[{"token_id:5":-1}]}`, `{"tokens":["token_id:5"],"token_logprobs":[-1],"top_logprobs":[{}]}`,
		`{"tokens":["token_id:5"],"token_logprobs":[-1],"top_logprobs":[{"x":-1}]}`, `{"tokens":["token_id:5"],"token_logprobs":[-1]}`,
		`{"tokens":["token_id:99999999999"],"token_logprobs":[-1],"top_logprobs":[{"token_id:5":-1}]}`,
	} {
		if err := likely.NewQueue(&llmv1.Sampling{Logprobs: new(uint32(1))}).Add(read(t, text), []uint32{5}); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
