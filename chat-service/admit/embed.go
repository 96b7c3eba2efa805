package admit

import (
	"context"
	"iter"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
)

// An EmbedEngine makes vectors of token ids.
type EmbedEngine = stream.Engine[*workerv1.EmbedRequest, *workerv1.EmbedResponse]

// EmbedStage is Stage for requests for vectors, which take places at the workers like all others. Their texts are what is charged.
func (q *Queue) EmbedStage(next EmbedEngine) EmbedEngine {
	return func(ctx context.Context, req *workerv1.EmbedRequest) iter.Seq2[*workerv1.EmbedResponse, error] {
		return func(yield func(*workerv1.EmbedResponse, error) bool) {
			tokens := 0
			for _, text := range req.GetInputs() {
				tokens += len(text.GetIds())
			}
			if err := q.hold(ctx, req.GetClaim(), tokens, func(*ticket) { next(ctx, req)(yield) }); err != nil {
				yield(nil, err)
			}
		}
	}
}
