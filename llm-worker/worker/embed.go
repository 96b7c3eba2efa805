package worker

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An EmbedEngine computes vectors of texts.
type EmbedEngine = stream.Sequence[*workerv1.EmbedRequest, *workerv1.EmbedResponse]

const (
	maxInputs = 2048
	// maxVectors bounds the vectors of an answer, in bytes. It leaves room for the other fields,
	// and for the fields that chat-service adds.
	maxVectors = rpc.MaxAnswer - 64<<10
)

// Embed implements workerv1.WorkerServer. The call is a stream of one item: it is stopped, timed,
// counted and recorded like any other stream.
func (s *Server) Embed(ctx context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	var resp *workerv1.EmbedResponse
	err := rpc.ServeUnary(ctx, &s.hop, methods.WorkerEmbed, s.vectors, req, func(out *workerv1.EmbedResponse) { resp = out })
	return resp, err
}

// vectors refuses requests that no engine could answer, and answers that do not fit into a message.
func (s *Server) vectors(ctx context.Context, req *workerv1.EmbedRequest) iter.Seq2[*workerv1.EmbedResponse, error] {
	info := s.describe()
	if err := serves(info, req.GetModel()); err != nil {
		return stream.Fail[*workerv1.EmbedResponse](err)
	}
	switch n := len(req.GetInputs()); {
	case s.embed == nil || !info.GetEmbeds():
		return stream.Fail[*workerv1.EmbedResponse](streamerr.InvalidParam("model", "the engine of %q does not support embeddings", info.GetModel()))
	case n == 0 || n > maxInputs:
		return stream.Fail[*workerv1.EmbedResponse](streamerr.InvalidParam("inputs", "there are %d inputs; there must be 1 to %d", n, maxInputs))
	}
	return func(yield func(*workerv1.EmbedResponse, error) bool) {
		for out, err := range s.embed(ctx, req) {
			if size := proto.Size(out); err == nil && size > maxVectors {
				out, err = nil, streamerr.InvalidParam("inputs", "the vectors take %d bytes; an answer can have at most %d: send fewer inputs", size, maxVectors)
			}
			if !yield(out, err) {
				return
			}
		}
	}
}
