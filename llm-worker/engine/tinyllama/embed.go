package tinyllama

import (
	"fmt"
	"math"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/pkg/streamerr"
)

var _ batch.Embedder = (*Model)(nil)

// A generative model has no state that represents a text. The usual substitute is the mean of its
// last hidden states, scaled to length 1. It is good enough for demonstrations, and worse than a
// model trained to embed.

// CheckEmbed refuses a text that could never join.
func (m *Model) CheckEmbed(ids []uint32) error {
	switch {
	case len(ids) == 0:
		return streamerr.InvalidParam("", "the text has no tokens")
	case len(ids) > m.longest():
		return streamerr.TooLong("", len(ids), m.longest())
	}
	for i, id := range ids {
		if int64(id) >= int64(m.VocabSize()) {
			return streamerr.InvalidParam("", "token id %d, at %d, is not below %d, the size of the vocabulary", id, i, m.VocabSize())
		}
	}
	return nil
}

// JoinEmbed adds a text. It returns the error of CheckEmbed, or batch.ErrFull.
func (m *Model) JoinEmbed(id uint64, ids []uint32) error {
	if err := m.CheckEmbed(ids); err != nil {
		return err
	}
	if m.sequences[id] != nil {
		return fmt.Errorf("tinyllama: sequence %d has joined already", id)
	}
	return m.admit(id, &sequence{prompt: ids, sum: make([]float64, m.weights.config.Hidden)})
}

// vector returns the vector of a text that has been read, scaled to length 1. A sum of zero fails
// only this text.
func (s *sequence) vector(id uint64) batch.Output {
	length := 0.0
	for _, v := range s.sum {
		length += v * v
	}
	if length = math.Sqrt(length); !(length > 0 && length <= math.MaxFloat64) {
		return batch.Output{ID: id, Err: &streamerr.Error{
			Reason: streamerr.EngineFailed, Path: streamerr.NewPath("engine"), Message: fmt.Sprintf("the states of the text add up to a vector of length %v", length),
		}}
	}
	values := make([]float32, len(s.sum))
	for i, v := range s.sum {
		values[i] = float32(v / length)
	}
	return batch.Output{ID: id, Vector: &llmv1.Embedding{Values: values}}
}

// embeds reports whether a sequence is a text to be embedded.
func (s *sequence) embeds() bool { return s.sum != nil }

// sum adds the last hidden states of rows to the sums of their sequences. A text's rows come in
// order, on one goroutine at a time, so its sum has the same bits whatever else is in the batch.
// Rows that run again after a panic are not added twice.
func (l *lane) sum(rows []row, states []float32) {
	d := l.weights.config.Hidden
	l.normalizeAll(states, l.weights.norm, len(rows))
	for i, r := range rows {
		s := r.sequence
		if r.position < s.summed {
			continue
		}
		for k, v := range l.h[i*d : (i+1)*d] {
			s.sum[k] += float64(v)
		}
		s.summed = r.position + 1
	}
}
