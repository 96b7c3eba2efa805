package vllm

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	vllmengine "github.com/whence-dev/whence/idl/gen/vllm/engine"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overgrpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// embedAtOnce bounds the concurrent calls of one request for vectors. The service takes one text per call, and batches
// the calls itself.
const embedAtOnce = 32

// An embedCall is a request for vectors.
type embedCall struct {
	engine *Engine
	inputs []*workerv1.TokenIds
	ids    []string        // of the calls
	calls  context.Context //nolint:containedctx // of all calls, which several goroutines start
	cancel context.CancelFunc
	done   atomic.Bool // no call runs any more
}

// askEmbed returns the call of a request for vectors.
func (e *Engine) askEmbed(ctx context.Context, up *beside.Upstream, req *workerv1.EmbedRequest) (*embedCall, error) {
	if req.Dimensions != nil {
		return nil, streamerr.InvalidParam("dimensions", "vLLM's gRPC service has vectors of one size; leave dimensions out").WithCode(streamerr.CodeUnsupportedField)
	}
	c := &embedCall{engine: e, inputs: req.GetInputs()}
	id := beside.NewID(ctx)
	for i, in := range req.GetInputs() {
		param := fmt.Sprintf("inputs[%d]", i)
		if n := len(in.GetIds()); n == 0 || n > up.Context {
			return nil, streamerr.InvalidParam(param, "%s has %d tokens; there must be 1 to %d", param, n, up.Context)
		}
		if at := slices.IndexFunc(in.GetIds(), func(id uint32) bool { return int64(id) >= int64(up.Vocab) }); at >= 0 {
			return nil, streamerr.InvalidParam(param, "%s: token id %d is not below %d, the size of the vocabulary", param, in.GetIds()[at], up.Vocab)
		}
		c.ids = append(c.ids, fmt.Sprintf("%s-%d", id, i))
	}
	c.calls, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return c, nil
}

// Do implements beside.PoolingCall. The first failure ends the other calls.
func (c *embedCall) Do(context.Context) (*workerv1.EmbedResponse, error) {
	out := &workerv1.EmbedResponse{Embeddings: make([]*llmv1.Embedding, len(c.inputs)), End: beside.PoolingEnd()}
	read := make([]uint32, len(c.inputs)) // tokens
	calls, ctx := errgroup.WithContext(c.calls)
	calls.SetLimit(embedAtOnce)
	for i := range c.inputs {
		if ctx.Err() != nil {
			break
		}
		calls.Go(func() (err error) {
			out.Embeddings[i], read[i], err = c.embed(ctx, i)
			return err
		})
	}
	err := calls.Wait()
	c.done.Store(true)
	if stopped := c.calls.Err(); err == nil && stopped != nil {
		err = beside.Unavailable(stopped)
	}
	if err != nil {
		return nil, err
	}
	for _, n := range read {
		out.End.Usage.PromptTokens += n
	}
	return out, nil
}

// embed returns the vector of one text, and the number of tokens read.
func (c *embedCall) embed(ctx context.Context, i int) (vector *llmv1.Embedding, read uint32, err error) {
	asked := &vllmengine.EmbedRequest{RequestId: c.ids[i], Tokenized: &vllmengine.TokenizedInput{InputIds: c.inputs[i].GetIds()}}
	err = overgrpc.Do(ctx, beside.VLLM, func(ctx context.Context) error {
		resp, err := c.engine.client.Embed(ctx, asked)
		if err != nil {
			return err
		}
		values, err := beside.Unit(resp.GetEmbedding())
		if err != nil {
			return beside.Broken(err)
		}
		vector, read = &llmv1.Embedding{Values: values}, resp.GetPromptTokens()
		return nil
	})
	return vector, read, err
}

// Stop implements beside.PoolingCall. vLLM stops a call that is canceled, and answers the abort of its id.
func (c *embedCall) Stop() (confirmed bool) {
	c.cancel()
	if c.done.Load() {
		return true
	}
	return overgrpc.Ask(context.Background(), overgrpc.AbortTimeout, func(ctx context.Context) error {
		_, err := c.engine.client.Abort(ctx, &vllmengine.AbortRequest{RequestIds: c.ids})
		return err
	}) == nil
}

// tryEmbed makes a server whose model does not generate compute a vector.
func (e *Engine) tryEmbed(ctx context.Context, up *beside.Upstream, vocab int) (*beside.Upstream, error) {
	up.Capabilities = &llmv1.Capabilities{Upstream: "vllm", Prompt: llmv1.Form_FORM_TOKEN_IDS}
	var err error
	if up.Notes, err = e.agree(ctx, up, vocab); err != nil {
		return nil, err
	}
	trial := &workerv1.EmbedRequest{Inputs: []*workerv1.TokenIds{{Ids: e.trials.Plain.GetPrompt()}}}
	call, err := e.askEmbed(ctx, up, trial)
	if err == nil {
		_, err = beside.TryPooling(ctx, call)
	}
	if err != nil {
		return nil, fmt.Errorf("the server runs a model that does not generate, and computes no vectors: %w", err)
	}
	up.AskEmbed = func(ctx context.Context, req *workerv1.EmbedRequest) (beside.PoolingCall[*workerv1.EmbedResponse], error) {
		return e.askEmbed(ctx, up, req)
	}
	up.Facts = []string{"the model does not generate, and " + capability.Abilities(true, false)}
	return up, nil
}
