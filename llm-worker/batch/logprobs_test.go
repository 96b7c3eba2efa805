package batch_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
)

// A logprobModel gives each number a log-probability that is 1 lower each time, with two
// alternatives.
type logprobModel struct{ *countingModel }

func (m logprobModel) Step(ids []uint64, out []batch.Output) ([]batch.Output, error) {
	out, err := m.countingModel.Step(ids, out)
	for i := range out {
		n := out[i].Token
		out[i].Logprobs = &batch.Logprobs{Token: -float32(n), IDs: []uint32{n, n + 1}, Top: []float32{-float32(n), -float32(n) - 0.5}}
	}
	return out, err
}

func TestLogprobsStayWithTheirTokensForSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const goal = 20000
		loop, _ := run(t, logprobModel{newCounting()}, batch.Options{})
		var sizes []int
		next := uint32(1)
		var end *llmv1.End
		for out, err := range loop.Generate(t.Context(), &workerv1.TokenRequest{Prompt: []uint32{goal}}) {
			if err != nil {
				t.Fatal(err)
			}
			if out.GetStarted() != nil {
				time.Sleep(time.Minute) // everything is unread by then
			}
			got := out.GetTokens()
			if n := len(got.GetIds()); len(got.GetLogprobs()) != n || len(got.GetTopIds()) != 2*n || len(got.GetTopLogprobs()) != 2*n {
				t.Fatalf("%d tokens, %d, %d and %d numbers", n, len(got.GetLogprobs()), len(got.GetTopIds()), len(got.GetTopLogprobs()))
			}
			for i, id := range got.GetIds() {
				if id != next || got.GetLogprobs()[i] != -float32(id) || got.GetTopIds()[2*i+1] != id+1 || got.GetTopLogprobs()[2*i+1] != -float32(id)-0.5 {
					t.Fatalf("token %d, after %d: %v", id, next, got.GetLogprobs()[i])
				}
				next++
			}
			if got != nil {
				sizes = append(sizes, len(got.GetIds()))
			}
			end = out.GetEnd()
		}
		if next != goal+1 || end == nil || len(sizes) != 4 || sizes[0] != 5461 {
			t.Errorf("%d tokens in items of %v, then %v", next-1, sizes, end)
		}
		if end.MatchedToken == nil {
			t.Error("the ending does not name the token that ended the answer")
		}
	})
}

// A scoredModel gives each sequence the log-probabilities of its prompt.
type scoredModel struct{ *countingModel }

func (m scoredModel) Step(ids []uint64, out []batch.Output) ([]batch.Output, error) {
	out, err := m.countingModel.Step(ids, out)
	for i := range out {
		if out[i].Token <= 1 {
			out[i].Prompt = &workerv1.PromptLogprobs{Logprobs: []float32{-1}}
		}
	}
	return out, err
}

// TestScoresOfThePromptComeOnce: beside the first tokens, or beside the end of an answer without tokens.
func TestScoresOfThePromptComeOnce(t *testing.T) {
	for _, goal := range []uint32{0, 5} {
		synctest.Test(t, func(t *testing.T) {
			loop, _ := run(t, scoredModel{newCounting()}, batch.Options{})
			var with []string
			for out, err := range loop.Generate(t.Context(), &workerv1.TokenRequest{Prompt: []uint32{goal}}) {
				if err != nil {
					t.Fatal(err)
				}
				if out.GetPrompt() != nil {
					with = append(with, fmt.Sprintf("%T", out.GetMessage()))
				}
			}
			if want := map[uint32]string{0: "*workerv1.GenerateResponse_End", 5: "*workerv1.GenerateResponse_Tokens"}[goal]; len(with) != 1 || with[0] != want {
				t.Errorf("%d tokens: the scores are beside %v, want %s", goal, with, want)
			}
		})
	}
}
