package tinyllama

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A poisonedModel panics in a lane that runs a prompt whose first token is one of the following.
type poisonedModel struct{ *Model }

const (
	poisonSampler = 1000 + iota // when it chooses the first token
	poisonForward               // in the forward pass
	poisonSum                   // when the states of a text are summed
)

func (m poisonedModel) Join(id uint64, req *workerv1.TokenRequest) error {
	err := m.Model.Join(id, req)
	if s := m.sequences[id]; s != nil {
		s.poison()
	}
	return err
}

func (m poisonedModel) Prepare(ctx context.Context, req *workerv1.TokenRequest) (func(id uint64) error, error) {
	_, err := m.Model.Prepare(ctx, req)
	return func(id uint64) error { return m.Join(id, req) }, err
}

func (m poisonedModel) JoinEmbed(id uint64, ids []uint32) error {
	err := m.Model.JoinEmbed(id, ids)
	if s := m.sequences[id]; s != nil {
		s.poison()
	}
	return err
}

func (s *sequence) poison() {
	switch s.prompt[0] {
	case poisonSampler:
		s.sampler = nil
	case poisonForward:
		s.prompt = slices.Clone(s.prompt)
		s.prompt[len(s.prompt)-1] = 1 << 30
	case poisonSum:
		s.sum = s.sum[:len(s.sum)/2]
	}
}

// beginning returns g's request with another first token.
func beginning(first uint32, g golden) *workerv1.TokenRequest {
	req := g.request()
	req.Prompt = slices.Clone(req.GetPrompt())
	req.Prompt[0] = first
	return req
}

// TestPanicInALaneEndsItsSequenceAlone mixes sequences that panic with others, on several threads, and
// compares the answers of the others, during and after the panics, with llama.cpp's.
func TestPanicInALaneEndsItsSequenceAlone(t *testing.T) {
	var short []golden
	for _, g := range goldens(t) {
		if len(g.Answer) < 60 && len(g.Prompt) < 100 {
			short = append(short, g)
		}
	}
	for name, opts := range map[string]Options{"one thread": {Threads: 1}, "four threads": {Threads: 4, PrefillChunk: 48}} {
		t.Run(name, func(t *testing.T) {
			m := New(tinyWeights(t), opts)
			l := batch.New(poisonedModel{m}, batch.Options{})
			ctx, cancel := context.WithCancel(context.Background())
			var loop, streams sync.WaitGroup
			loop.Go(func() { l.Run(ctx) })
			text := random(9, 100, m.VocabSize())
			vector := func() []float32 {
				resp, err := l.Embed(t.Context(), &workerv1.EmbedRequest{Inputs: []*workerv1.TokenIds{{Ids: text}}})
				if err != nil {
					t.Error(err)
					return nil
				}
				return resp.GetEmbeddings()[0].GetValues()
			}
			want := vector()
			for range 3 { // later rounds run on the state that earlier rounds left
				for i, g := range short {
					streams.Go(func() { checkAnswer(t, l, g) })
					streams.Go(func() { checkPanicked(t, l, beginning(uint32(poisonSampler+i%2), g)) })
				}
				streams.Go(func() {
					if got := vector(); !slices.Equal(got, want) {
						t.Error("the vector of a text has changed")
					}
				})
				streams.Go(func() {
					bad := append([]uint32{poisonSum}, text...)
					if _, err := l.Embed(t.Context(), &workerv1.EmbedRequest{Inputs: []*workerv1.TokenIds{{Ids: bad}}}); !errors.Is(err, streamerr.Internal) {
						t.Error(err)
					}
				})
				streams.Wait()
			}
			cancel()
			loop.Wait()
			made, idle := m.pool.Made()
			if used, _ := m.KV(); used != 0 || idle != made || len(m.sequences) != 0 {
				t.Errorf("%d positions are reserved, %d sequences are left; of %d blocks %d are free", used, len(m.sequences), made, idle)
			}
			if len(m.lane.tile) != 0 || len(m.lane.rows) != 0 {
				t.Errorf("%d and %d rows of sequences that have left are in the lane", len(m.lane.tile), len(m.lane.rows))
			}
		})
	}
}

// checkAnswer compares a stream's answer with the golden one.
func checkAnswer(t *testing.T, l *batch.Loop, g golden) {
	t.Helper()
	var got []uint32
	for out, err := range l.Generate(t.Context(), g.request()) {
		if err != nil {
			t.Error(err)
			return
		}
		got = append(got, out.GetTokens().GetIds()...)
	}
	want := g.Answer
	if g.Finish == "stop" {
		want = want[:len(want)-1] // the token that ends the answer is not sent
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// checkPanicked reads a stream that must end with INTERNAL without a token.
func checkPanicked(t *testing.T, l *batch.Loop, req *workerv1.TokenRequest) {
	t.Helper()
	var last error
	for out, err := range l.Generate(t.Context(), req) {
		if last = err; out.GetTokens() != nil || out.GetEnd() != nil {
			t.Error(out)
		}
	}
	if !errors.Is(last, streamerr.Internal) || streamerr.As(last).Path.Origin() != "engine" {
		t.Errorf("the stream ended with %v", last)
	}
}
