package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// tryEmbedTimeout bounds the trial embedding of one word, which shows whether the server
	// embeds. It is shorter than TryTimeout, because most servers are started to generate.
	tryEmbedTimeout = 5 * time.Second
	// maxVectors bounds an answer, in bytes of JSON: somewhat more than a message holds.
	maxVectors = 96 << 20
)

// An embedding is the body of POST /v1/embeddings.
type embedding struct {
	Model      string `json:"model"`
	Input      any    `json:"input"` // []string or [][]uint32
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

// An embedCall is a request for vectors.
type embedCall struct {
	exchange *overhttp.Exchange
	texts    []*workerv1.TokenIds
}

// askEmbed returns the call of a request for vectors. The server itself refuses texts that exceed
// its context.
func (e *Engine) askEmbed(up *upstream, req *workerv1.EmbedRequest) (*embedCall, error) {
	b := embedding{Model: up.model, Dimensions: req.GetDimensions()}
	ids, texts := [][]uint32{}, []string{}
	for i, in := range req.GetInputs() {
		param := fmt.Sprintf("inputs[%d]", i)
		if len(in.GetIds()) == 0 {
			return nil, streamerr.InvalidParam(param, "%s has no tokens", param)
		}
		for _, id := range in.GetIds() {
			if int64(id) >= int64(up.Vocab) {
				return nil, streamerr.InvalidParam(param, "%s: token id %d is not below %d, the size of the vocabulary", param, id, up.Vocab)
			}
		}
		if up.embeds != llmv1.Form_FORM_TEXT {
			ids = append(ids, in.GetIds())
			continue
		}
		text, err := e.model.Spell(in.GetIds())
		if err != nil {
			return nil, streamerr.InvalidParam(param, "%s: %s", param, streamerr.As(err).Text()).WithCode(streamerr.As(err).Code)
		}
		texts = append(texts, text)
	}
	if b.Input = ids; up.embeds == llmv1.Form_FORM_TEXT {
		b.Input = texts
	}
	body, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	return &embedCall{e.client.Exchange("/v1/embeddings", body, maxVectors), req.GetInputs()}, nil
}

// Do implements beside.EmbedCall. It normalizes each vector to length 1.
func (c *embedCall) Do(ctx context.Context) (*workerv1.EmbedResponse, error) {
	var v vectors
	if err := c.exchange.Do(ctx, &v); err != nil {
		return nil, err
	}
	out := &workerv1.EmbedResponse{Embeddings: make([]*llmv1.Embedding, len(c.texts)), End: &llmv1.End{
		Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{beside.Hop}, Finish: llmv1.Finish_FINISH_STOP,
		Usage: &llmv1.Usage{PromptTokens: v.Usage.Prompt},
	}}
	if len(v.Data) != len(c.texts) {
		return nil, beside.Broken(fmt.Errorf("%d vectors for %d inputs", len(v.Data), len(c.texts)))
	}
	for _, d := range v.Data {
		switch {
		case d.Index < 0 || d.Index >= len(c.texts) || out.GetEmbeddings()[d.Index] != nil:
			return nil, beside.Broken(fmt.Errorf("a vector for input %d of %d, or two", d.Index, len(c.texts)))
		case len(d.Embedding) != len(v.Data[0].Embedding):
			return nil, beside.Broken(fmt.Errorf("vectors of %d and of %d numbers", len(v.Data[0].Embedding), len(d.Embedding)))
		}
		values, err := unit(d.Embedding)
		if err != nil {
			return nil, beside.Broken(err)
		}
		out.Embeddings[d.Index] = &llmv1.Embedding{Values: values}
	}
	if v.Usage.Prompt == 0 { // not all servers count
		for _, text := range c.texts {
			out.End.Usage.PromptTokens += uint32(len(text.GetIds()))
		}
	}
	return out, nil
}

// Stop implements beside.EmbedCall.
func (c *embedCall) Stop() (confirmed bool) {
	c.exchange.HangUp()
	return true // the connection is closed: these servers confirm a stop in no other way
}

// unit scales v to length 1.
func unit(v []float32) ([]float32, error) {
	length := 0.0
	for _, x := range v {
		length += float64(x) * float64(x)
	}
	if !(length > 0) || math.IsInf(length, 0) {
		return nil, fmt.Errorf("a vector of %d numbers without a direction", len(v))
	}
	for i, x := range v {
		v[i] = float32(float64(x) / math.Sqrt(length))
	}
	return v, nil
}

// tryEmbed makes the upstream embed one word, and records which form of input it accepts. Most
// servers that generate refuse; they can be used all the same.
func (e *Engine) tryEmbed(ctx context.Context, up *upstream) {
	ctx, cancel := context.WithTimeout(ctx, tryEmbedTimeout)
	defer cancel()
	req := &workerv1.EmbedRequest{Inputs: []*workerv1.TokenIds{{Ids: e.model.Tokenizer.Encode(beside.TrialPrompt, true)}}}
	for _, form := range slices.Compact([]llmv1.Form{up.prompt, llmv1.Form_FORM_TEXT}) {
		up.embeds = form
		c, err := e.askEmbed(up, req)
		if err == nil {
			err = beside.TryEmbed(ctx, c)
		}
		if err == nil {
			return
		}
		if !errors.Is(err, streamerr.Invalid) && !errors.Is(err, streamerr.EngineFailed) {
			break // another form would not help
		}
	}
	up.embeds = llmv1.Form_FORM_UNSPECIFIED
}
