package batch

import (
	"context"
	"fmt"
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Embeds reports whether Embed works: the model must be an Embedder.
func (l *Loop) Embeds() bool { return l.embedder != nil }

// Embed computes the vectors of texts; stream.Unary makes an engine of it. A request takes one
// place in the queue and in the batch, however many texts it has. The texts are read one after
// another, and between two texts the request queues again like any other sequence.
func (l *Loop) Embed(ctx context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	used, err := l.checkEmbed(req)
	if err != nil {
		return nil, err
	}
	s, _, err := l.enter(&sequence{texts: req.GetInputs()})
	if err != nil {
		return nil, err
	}
	defer l.leave(ctx, s)
	select {
	case <-s.box.ready: // all vectors or a failure: an embedding has no partial result
	case <-stream.Stopping(ctx):
		if l.leave(ctx, s); s.gone() {
			ledger.Of(ctx).Confirmed()
		}
		return nil, stream.Cause(ctx)
	}
	_, end, err := s.box.take()
	if err != nil {
		return nil, err
	}
	end.Usage = used
	return &workerv1.EmbedResponse{Model: l.opts.Model, Embeddings: s.vectors, End: end}, nil
}

// checkEmbed checks all texts before the first is read, so that a request fails before it costs the
// model work.
func (l *Loop) checkEmbed(req *workerv1.EmbedRequest) (*llmv1.Usage, error) {
	if req.Dimensions != nil {
		return nil, streamerr.InvalidParam("dimensions", "the vectors of this model have one size; leave dimensions out").WithCode(streamerr.CodeUnsupportedField)
	}
	if len(req.GetInputs()) == 0 {
		return nil, streamerr.InvalidParam("inputs", "there are no inputs")
	}
	used := new(llmv1.Usage)
	for i, text := range req.GetInputs() {
		if err := l.embedder.CheckEmbed(text.GetIds()); err != nil {
			param := fmt.Sprintf("inputs[%d]", i)
			return nil, streamerr.InvalidParam(param, "%s: %s", param, streamerr.As(err).Text()).WithCode(streamerr.As(err).Code)
		}
		used.PromptTokens += uint32(len(text.GetIds()))
	}
	return used, nil
}

// embedded stores the vector of a sequence's text. The next text joins the end of the queue. The
// queue's limit does not apply to it, because the sequence has just left its place in the batch.
func (l *Loop) embedded(s *sequence, vector *llmv1.Embedding) {
	s.vectors = append(s.vectors, vector)
	if len(s.vectors) < len(s.texts) && l.again(s) {
		return
	}
	if len(s.vectors) == len(s.texts) {
		s.box.close(&llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{engineHop}, Finish: llmv1.Finish_FINISH_STOP}, nil)
	}
	l.drop(s)
}

// again puts a sequence of the batch back at the end of the queue, under a new id. It reports false
// if the sequence's reader has left.
func (l *Loop) again(s *sequence) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.leaving, s) {
		return false
	}
	l.forget(s)
	l.nextID++
	s.id = l.nextID
	l.waiting = append(l.waiting, s)
	l.running = len(l.batch)
	l.kvUsed, _ = l.model.KV()
	return true
}
