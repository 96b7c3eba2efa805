package beside

import (
	"cmp"
	"context"
	"fmt"
	"math"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A PoolingCall is one request to the server for vectors or for scores.
type PoolingCall[Resp any] interface {
	// Do sends the request and returns the answer, without the model's name. It uses only the
	// values of ctx; Stop ends it.
	Do(ctx context.Context) (Resp, error)
	// Stop is the same as Call.Stop.
	Stop() (confirmed bool)
}

// Embed computes the vectors of texts; stream.Unary makes an engine of it.
func (e *Engine) Embed(ctx context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	up := e.upstream.Load()
	switch {
	case up == nil:
		return nil, e.unavailable()
	case up.AskEmbed == nil:
		return nil, e.lacks(up, "embeddings")
	}
	resp, err := once(ctx, e, req, up.AskEmbed)
	if err == nil {
		resp.Model = cmp.Or(e.opts.Name, up.Name)
	}
	return resp, err
}

// Score rates documents; stream.Unary makes an engine of it.
func (e *Engine) Score(ctx context.Context, req *workerv1.ScoreRequest) (*workerv1.ScoreResponse, error) {
	up := e.upstream.Load()
	switch {
	case up == nil:
		return nil, e.unavailable()
	case up.AskScore == nil:
		return nil, e.lacks(up, "scores")
	}
	resp, err := once(ctx, e, req, up.AskScore)
	if err == nil {
		resp.Model = cmp.Or(e.opts.Name, up.Name)
	}
	return resp, err
}

// lacks refuses what the server does not do.
func (e *Engine) lacks(up *Upstream, what string) error {
	return streamerr.InvalidParam("model", "the server that generates (%s) does not support %s", up.Capabilities.GetUpstream(), what)
}

// once sends a request whose answer is one item.
func once[Req, Resp any](ctx context.Context, e *Engine, req Req, ask func(context.Context, Req) (PoolingCall[Resp], error)) (resp Resp, err error) {
	var none Resp
	if err := e.enter(); err != nil {
		return none, err
	}
	defer e.running.Add(-1)
	call, err := ask(ctx, req)
	if err != nil {
		return none, err
	}
	stopped := make(chan struct{})
	undo := stream.AfterStop(ctx, func(error) {
		defer close(stopped)
		if call.Stop() {
			ledger.Of(ctx).Confirmed()
		}
	})
	resp, err = call.Do(ctx)
	if undo() {
		call.Stop()
	} else {
		<-stopped
	}
	if err == nil {
		e.answers.Add(1)
		return resp, nil
	}
	if cause := stream.Cause(ctx); cause != nil {
		return none, cause // the server's own error is a consequence of the stop
	}
	e.answers.Add(1)
	e.suspect(err)
	return none, err
}

// TryPooling sends a request for vectors or scores and returns the answer, like Drain.
func TryPooling[Resp any](ctx context.Context, call PoolingCall[Resp]) (Resp, error) {
	undo := context.AfterFunc(ctx, func() { call.Stop() })
	resp, err := call.Do(ctx)
	if !undo() && err != nil {
		err = context.Cause(ctx)
	}
	call.Stop()
	return resp, err
}

// PoolingEnd returns the ending of vectors and scores, with an empty usage.
func PoolingEnd() *llmv1.End {
	return &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{Hop}, Finish: llmv1.Finish_FINISH_STOP, Usage: &llmv1.Usage{}}
}

// Unit scales v to length 1.
func Unit(v []float32) ([]float32, error) {
	length := 0.0
	for _, x := range v {
		length += float64(x) * float64(x)
	}
	if !(length > 0) || math.IsInf(length, 0) || len(v) < 2 { // llama.cpp's vector of a reranker is one number, its score
		return nil, fmt.Errorf("a vector of %d numbers without a direction", len(v))
	}
	for i, x := range v {
		v[i] = float32(float64(x) / math.Sqrt(length))
	}
	return v, nil
}
