package fleet

import (
	"context"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
)

// An EmbedEngine computes vectors of token ids.
type EmbedEngine = stream.Sequence[*workerv1.EmbedRequest, *workerv1.EmbedResponse]

// EmbedEngine returns the worker's embedding engine. peer is the worker's name at the time of the
// choice.
func (w *Worker) EmbedEngine(peer string) EmbedEngine { return w.embed(peer) }

// dialEmbed returns the function behind EmbedEngine. self is this hop's name.
func dialEmbed(self string, client workerv1.WorkerClient) func(peer string) EmbedEngine {
	tell := func(ctx context.Context, stop *streamv1.StopStreamRequest) error {
		_, err := client.Stop(ctx, &workerv1.StopRequest{Stream: stop})
		return err
	}
	return func(peer string) EmbedEngine {
		return rpc.DialUnary(self, peer, client.Embed, tell, methods.WorkerEmbed)
	}
}
