package chat

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/prompt"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An EmbedEngine computes vectors of texts.
type EmbedEngine = stream.Engine[*chatv1.EmbeddingsRequest, *chatv1.EmbeddingsResponse]

const (
	maxInputs = 2048
	// maxEmbedSize bounds a request to a worker, in bytes, below the maximum size of a message.
	maxEmbedSize = rpc.MaxRequest - 64<<10
)

// Embed returns an engine that computes vectors of texts with m over worker. Texts are tokenised
// with the special tokens that the model adds to every text; token ids are passed on unchanged.
func Embed(m *Model, worker stream.Engine[*workerv1.EmbedRequest, *workerv1.EmbedResponse]) EmbedEngine {
	return unary(worker, m.embedRequest, func(asked *workerv1.EmbedRequest, out *workerv1.EmbedResponse) (*chatv1.EmbeddingsResponse, error) {
		if err := checkVectors(out.GetEmbeddings(), max(len(asked.GetInputs()), len(asked.GetTexts()))); err != nil {
			return nil, err
		}
		return &chatv1.EmbeddingsResponse{Embeddings: out.GetEmbeddings(), Model: m.Name, End: out.GetEnd()}, nil
	})
}

// unary returns an engine whose answers are one item of worker. prepare makes the worker's request, and
// answer the item.
func unary[Req, Asked, Out, Resp any](worker stream.Engine[Asked, Out], prepare func(context.Context, Req) (Asked, int, error), answer func(Asked, Out) (Resp, error)) stream.Engine[Req, Resp] {
	return func(ctx context.Context, req Req, to stream.Reader[Resp]) {
		if cause := stream.Cause(ctx); cause != nil {
			to.End(cause)
			return
		}
		asked, tokens, err := prepare(ctx, req)
		if err != nil {
			to.End(err)
			return
		}
		converted := func(out Out) (Resp, error) { return answer(asked, out) }
		worker(ledger.WithPrompt(ctx, &ledger.Prompt{Tokens: tokens}), asked, &converter[Out, Resp]{stream.RelayTo(to), converted})
	}
}

// A converter is the Reader of a worker's answer that becomes another item.
type converter[Out, Resp any] struct {
	stream.Relay[Resp]

	convert func(Out) (Resp, error)
}

// Item implements stream.Reader.
func (c *converter[Out, Resp]) Item(on *stream.Loop, out Out) (more bool) {
	resp, err := c.convert(out)
	if err != nil {
		return c.Finish(err)
	}
	return c.Pass(on, resp)
}

// checkVectors returns an error if a worker has sent other vectors than one of finite numbers for
// each text.
func checkVectors(all []*llmv1.Embedding, texts int) error {
	if len(all) != texts {
		return streamerr.New(streamerr.EngineFailed, "the worker has sent %d vectors for %d texts", len(all), texts)
	}
	for i, v := range all {
		for _, x := range v.GetValues() {
			if x-x != 0 { // NaN or infinite
				return streamerr.New(streamerr.EngineFailed, "vector %d of the worker has the value %v", i, x)
			}
		}
	}
	return nil
}

// embedRequest tokenises the inputs, and returns the number of their tokens. This takes time for many
// texts, so the loop checks for a stop. Without files of the model, texts pass as they are.
func (m *Model) embedRequest(ctx context.Context, req *chatv1.EmbeddingsRequest) (asked *workerv1.EmbedRequest, tokens int, err error) {
	if n := len(req.GetInputs()); n == 0 || n > maxInputs {
		return nil, 0, streamerr.InvalidParam("inputs", "there are %d inputs; there must be 1 to %d", n, maxInputs)
	}
	if err := m.poolsItself(req.GetModel(), "embeddings"); err != nil {
		return nil, 0, err
	}
	asked = &workerv1.EmbedRequest{StreamId: req.GetStreamId(), Model: m.Name, Dimensions: req.Dimensions, Claim: req.GetClaim()}
	for i, in := range req.GetInputs() {
		if cause := stream.Cause(ctx); cause != nil {
			return nil, 0, cause
		}
		n, err := m.addInput(asked, fmt.Sprintf("inputs[%d]", i), in)
		if err != nil {
			return nil, 0, err
		}
		tokens += n
	}
	if size := proto.Size(asked); size > maxEmbedSize {
		return nil, 0, streamerr.InvalidParam("inputs", "all inputs take %d bytes; a request to a worker can have at most %d: send fewer inputs", size, maxEmbedSize)
	}
	return asked, tokens, nil
}

// addInput adds an input to a request for vectors, and returns the number of its tokens.
func (m *Model) addInput(asked *workerv1.EmbedRequest, param string, in *chatv1.Prompt) (tokens int, err error) {
	if err := checkPrompt(param, in); err != nil {
		return 0, err
	}
	ids := in.GetIds().GetIds()
	if _, isText := in.GetContent().(*chatv1.Prompt_Text); isText {
		if in.GetText() == "" {
			return 0, streamerr.InvalidParam(param, "%s is empty", param)
		}
		text := prompt.Clean(in.GetText())
		if m.TextOnly {
			asked.Texts = append(asked.Texts, text)
			return textonly.Count(text), nil
		}
		if ids, err = m.EncodeText(text, true); err != nil {
			return 0, err
		}
	} else if m.TextOnly {
		return 0, needsFiles(param, "vectors of token ids")
	}
	if length := m.Context(); len(ids) > length {
		return 0, streamerr.TooLong(param, len(ids), length)
	}
	asked.Inputs = append(asked.Inputs, &workerv1.TokenIds{Ids: ids})
	return len(ids), nil
}

// poolsItself refuses a request for vectors or scores of an adapter.
func (m *Model) poolsItself(model, what string) error {
	if adapter := m.adapter(model); adapter != "" {
		return streamerr.InvalidParam("model", "%q is an adapter and does not support %s; use %q", adapter, what, m.Name)
	}
	return nil
}
