package chat

import (
	"context"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/prompt"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An EmbedEngine computes vectors of texts.
type EmbedEngine = stream.Sequence[*chatv1.EmbeddingsRequest, *chatv1.EmbeddingsResponse]

const (
	maxInputs = 2048
	// maxEmbedSize bounds a request to a worker, in bytes, below the maximum size of a message.
	maxEmbedSize = rpc.MaxRequest - 64<<10
)

// Embed returns an engine that computes vectors of texts with m over worker. Texts are tokenised
// with the special tokens that the model adds to every text; token ids are passed on unchanged.
func Embed(m *Model, worker stream.Sequence[*workerv1.EmbedRequest, *workerv1.EmbedResponse]) EmbedEngine {
	return func(ctx context.Context, req *chatv1.EmbeddingsRequest) iter.Seq2[*chatv1.EmbeddingsResponse, error] {
		return func(yield func(*chatv1.EmbeddingsResponse, error) bool) {
			if cause := stream.Cause(ctx); cause != nil {
				yield(nil, cause)
				return
			}
			asked, err := m.embedRequest(ctx, req)
			if err != nil {
				yield(nil, err)
				return
			}
			prompt := &ledger.Prompt{}
			for _, in := range asked.GetInputs() {
				prompt.Tokens += len(in.GetIds())
			}
			for out, err := range worker(ledger.WithPrompt(ctx, prompt), asked) {
				if err != nil {
					yield(nil, err)
					return
				}
				if err := checkVectors(out.GetEmbeddings(), len(asked.GetInputs())); err != nil {
					yield(nil, err)
					return
				}
				if !yield(&chatv1.EmbeddingsResponse{Embeddings: out.GetEmbeddings(), Model: m.Name, End: out.GetEnd()}, nil) {
					return
				}
			}
		}
	}
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

// embedRequest tokenises the inputs. This takes time for many texts, so the loop checks for a stop.
func (m *Model) embedRequest(ctx context.Context, req *chatv1.EmbeddingsRequest) (*workerv1.EmbedRequest, error) {
	if m.TextOnly {
		return nil, needsFiles("model", "vectors")
	}
	if n := len(req.GetInputs()); n == 0 || n > maxInputs {
		return nil, streamerr.InvalidParam("inputs", "there are %d inputs; there must be 1 to %d", n, maxInputs)
	}
	if adapter := m.adapter(req.GetModel()); adapter != "" {
		return nil, streamerr.InvalidParam("model", "%q is an adapter and does not support embeddings; use %q", adapter, m.Name)
	}
	asked := &workerv1.EmbedRequest{StreamId: req.GetStreamId(), Model: m.Name, Dimensions: req.Dimensions, Claim: req.GetClaim()}
	length := m.Context()
	for i, in := range req.GetInputs() {
		if cause := stream.Cause(ctx); cause != nil {
			return nil, cause
		}
		param := fmt.Sprintf("inputs[%d]", i)
		if err := checkPrompt(param, in); err != nil {
			return nil, err
		}
		ids := in.GetIds().GetIds()
		if _, ok := in.GetContent().(*chatv1.Prompt_Text); ok {
			if in.GetText() == "" {
				return nil, streamerr.InvalidParam(param, "%s is empty", param)
			}
			var err error
			if ids, err = m.EncodeText(prompt.Clean(in.GetText()), true); err != nil {
				return nil, err
			}
		}
		if len(ids) > length {
			return nil, streamerr.TooLong(param, len(ids), length)
		}
		asked.Inputs = append(asked.Inputs, &workerv1.TokenIds{Ids: ids})
	}
	if size := proto.Size(asked); size > maxEmbedSize {
		return nil, streamerr.InvalidParam("inputs", "the tokens of all inputs take %d bytes; a request to a worker can have at most %d: send fewer inputs", size, maxEmbedSize)
	}
	return asked, nil
}
