package fleet

import (
	"context"

	"google.golang.org/grpc"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
)

// An EmbedEngine computes vectors of token ids, or of texts.
type EmbedEngine = stream.Engine[*workerv1.EmbedRequest, *workerv1.EmbedResponse]

// A ScoreEngine rates documents.
type ScoreEngine = stream.Engine[*workerv1.ScoreRequest, *workerv1.ScoreResponse]

// EmbedEngine returns the worker's embedding engine. peer is the worker's name at the time of the
// choice.
func (w *Worker) EmbedEngine(peer string) EmbedEngine { return w.embed(peer) }

// ScoreEngine returns the worker's scoring engine. peer is as that of EmbedEngine.
func (w *Worker) ScoreEngine(peer string) ScoreEngine { return w.score(peer) }

// dialUnary returns the engine behind a unary method of a worker, by the worker's name. self is this
// hop's name.
func dialUnary[Req, In, Out any](self string, client workerv1.WorkerClient, ask func(context.Context, Req, ...grpc.CallOption) (*Out, error), m *rpc.Method[Req, In, Out]) func(peer string) stream.Engine[Req, *Out] {
	tell := func(ctx context.Context, stop *streamv1.StopStreamRequest) error {
		_, err := client.Stop(ctx, &workerv1.StopRequest{Stream: stop})
		return err
	}
	return func(peer string) stream.Engine[Req, *Out] { return rpc.DialUnary(self, peer, ask, tell, m) }
}
