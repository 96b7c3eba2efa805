package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxVectors bounds an answer, in bytes of JSON: somewhat more than a message holds.
const maxVectors = 96 << 20

// An embedding is the body of POST /v1/embeddings.
type embedding struct {
	Model      string `json:"model"`
	Input      []any  `json:"input"` // texts, or lists of ids
	Dimensions uint32 `json:"dimensions,omitempty"`
}

// vectors is the part of the answer that the engine reads.
type vectors struct {
	Data []struct {
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	} `json:"data"`
	Usage struct {
		Prompt uint32 `json:"prompt_tokens"`
	} `json:"usage"`
}

// An embedCall is a request for vectors, in as many shares as the server takes.
type embedCall struct {
	shares    []*overhttp.Exchange
	size      int // inputs in each share, and fewer in the last one
	inputs    int
	estimated uint32 // tokens of the inputs, for a server that does not count them
}

// askEmbed returns the call of a request for vectors. The server itself refuses texts that exceed
// its context.
func (e *Engine) askEmbed(up *upstream, req *workerv1.EmbedRequest) (beside.PoolingCall[*workerv1.EmbedResponse], error) {
	inputs, tokens, err := e.inputs(up, req)
	if err != nil {
		return nil, err
	}
	c := &embedCall{size: up.share(len(inputs)), inputs: len(inputs), estimated: uint32(tokens)}
	for share := range slices.Chunk(inputs, c.size) {
		body, err := json.Marshal(embedding{Model: up.model, Input: share, Dimensions: req.GetDimensions()})
		if err != nil {
			return nil, err
		}
		c.shares = append(c.shares, e.client.Exchange("/v1/embeddings", body, maxVectors))
	}
	return c, nil
}

// share returns the number of inputs of one request to the server, of n inputs.
func (u *upstream) share(n int) int {
	if u.batch > 0 {
		return min(n, u.batch)
	}
	return n
}

// inputs returns the inputs in the form that the server takes, texts or lists of ids, and the number of
// their tokens.
func (e *Engine) inputs(up *upstream, req *workerv1.EmbedRequest) (all []any, tokens int, err error) {
	for i, text := range req.GetTexts() {
		if text == "" {
			return nil, 0, streamerr.InvalidParam("inputs", "inputs[%d] is empty", i)
		}
		all, tokens = append(all, text), tokens+textonly.Count(text)
	}
	for i, in := range req.GetInputs() {
		param := fmt.Sprintf("inputs[%d]", i)
		switch {
		case len(in.GetIds()) == 0:
			return nil, 0, streamerr.InvalidParam(param, "%s has no tokens", param)
		case e.isTextOnly():
			return nil, 0, streamerr.InvalidParam(param, "%s has token ids, and this worker has no files of the model: it takes only texts", param)
		}
		for _, id := range in.GetIds() {
			if int64(id) >= int64(up.Vocab) {
				return nil, 0, streamerr.InvalidParam(param, "%s: token id %d is not below %d, the size of the vocabulary", param, id, up.Vocab)
			}
		}
		if tokens += len(in.GetIds()); up.embeds != llmv1.Form_FORM_TEXT {
			all = append(all, in.GetIds())
			continue
		}
		text, err := e.model.Spell(in.GetIds())
		if err != nil {
			return nil, 0, streamerr.InvalidParam(param, "%s: %s", param, streamerr.As(err).Text()).WithCode(streamerr.As(err).Code)
		}
		all = append(all, text)
	}
	return all, tokens, nil
}

// Do implements beside.PoolingCall. It normalizes each vector to length 1.
func (c *embedCall) Do(ctx context.Context) (*workerv1.EmbedResponse, error) {
	out := &workerv1.EmbedResponse{End: beside.PoolingEnd()}
	used := out.GetEnd().GetUsage()
	for i, share := range c.shares {
		var v vectors
		if err := share.Do(ctx, &v); err != nil {
			return nil, err
		}
		part, err := v.ordered(min(c.size, c.inputs-i*c.size))
		if err != nil {
			return nil, beside.Broken(err)
		}
		out.Embeddings = append(out.Embeddings, part...)
		used.PromptTokens += v.Usage.Prompt
	}
	if n := len(out.GetEmbeddings()[0].GetValues()); slices.ContainsFunc(out.GetEmbeddings(), func(v *llmv1.Embedding) bool { return len(v.GetValues()) != n }) {
		return nil, beside.Broken(errors.New("vectors of different lengths"))
	}
	if used.GetPromptTokens() == 0 { // not all servers count
		used.PromptTokens = c.estimated
	}
	return out, nil
}

// ordered returns the vectors of n inputs, in their order.
func (v *vectors) ordered(n int) ([]*llmv1.Embedding, error) {
	if len(v.Data) != n {
		return nil, fmt.Errorf("%d vectors for %d inputs", len(v.Data), n)
	}
	all := make([]*llmv1.Embedding, n)
	for _, d := range v.Data {
		if d.Index < 0 || d.Index >= n || all[d.Index] != nil {
			return nil, fmt.Errorf("a vector for input %d of %d, or two", d.Index, n)
		}
		values, err := beside.Unit(d.Embedding)
		if err != nil {
			return nil, err
		}
		all[d.Index] = &llmv1.Embedding{Values: values}
	}
	return all, nil
}

// Stop implements beside.PoolingCall.
func (c *embedCall) Stop() (confirmed bool) { return hangUp(c.shares) }

// hangUp closes the connections of all requests, also of those that have not begun.
func hangUp(all []*overhttp.Exchange) (confirmed bool) {
	for _, x := range all {
		x.HangUp()
	}
	return true // the connection is closed: these servers confirm a stop in no other way
}
