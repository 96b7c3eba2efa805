package rpc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

type embedEngine = stream.Engine[*workerv1.EmbedRequest, *workerv1.EmbedResponse]

// An embedder is a service that makes vectors.
type embedder struct {
	*service
	embed embedEngine
	deaf  bool          // ignores Stop
	asked func()        // called when a call arrives, before it becomes a stream; may be nil
	stops chan struct{} // receives a value when a Stop has been answered
}

func (s *embedder) Embed(ctx context.Context, req *workerv1.EmbedRequest) (resp *workerv1.EmbedResponse, err error) {
	if s.asked != nil {
		s.asked()
	}
	err = rpc.ServeUnary(ctx, s.hop, methods.WorkerEmbed, s.embed, req, func(out *workerv1.EmbedResponse) { resp = out })
	return resp, err
}

func (s *embedder) Stop(ctx context.Context, req *workerv1.StopRequest) (*workerv1.StopResponse, error) {
	if s.deaf {
		return s.UnimplementedWorkerServer.Stop(ctx, req)
	}
	resp, err := s.hop.Stop(ctx, req.GetStream())
	s.stops <- struct{}{}
	return &workerv1.StopResponse{Stream: resp}, err
}

func newEmbedder(name string, e embedEngine) *embedder {
	return &embedder{service: newService(name, nil), embed: e, stops: make(chan struct{}, 1000)}
}

func embedAt(cc grpc.ClientConnInterface, self, peer string) embedEngine {
	client := workerv1.NewWorkerClient(cc)
	tell := func(ctx context.Context, stop *streamv1.StopStreamRequest) error {
		_, err := client.Stop(ctx, &workerv1.StopRequest{Stream: stop})
		return err
	}
	return rpc.DialUnary(self, peer, client.Embed, tell, methods.WorkerEmbed)
}

// vectors is an engine. The first token is its duration in milliseconds, during which it can be
// stopped. It refuses 0, and panics at 13.
func (c *counter) vectors(ctx context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	n := req.GetInputs()[0].GetIds()[0]
	switch n {
	case 0:
		return nil, streamerr.InvalidParam("inputs[0]", "inputs[0] must not be 0")
	case 13:
		panic("unlucky")
	}
	select {
	case <-time.After(time.Duration(n) * time.Millisecond):
	case <-stream.Stopping(ctx):
		c.causes <- stream.Cause(ctx)
		return nil, stream.Cause(ctx)
	}
	return &workerv1.EmbedResponse{
		Embeddings: []*llmv1.Embedding{{Values: []float32{1}}},
		End:        &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"engine"}, Usage: &llmv1.Usage{PromptTokens: 1}},
	}, nil
}

// embed is an engine that always calls vectors, so that causes receives the cause of every stop.
// stream.Unary does not call vectors if the stream was stopped before the engine runs.
func (c *counter) embed(ctx context.Context, req *workerv1.EmbedRequest, to stream.Reader[*workerv1.EmbedResponse]) {
	resp, err := c.vectors(ctx, req)
	if err == nil {
		to.Item(nil, resp)
	}
	to.End(err)
}

// whenRunning calls running when the engine runs.
func whenRunning(e embedEngine, running func()) embedEngine {
	return func(ctx context.Context, req *workerv1.EmbedRequest, to stream.Reader[*workerv1.EmbedResponse]) {
		running()
		e(ctx, req, to)
	}
}

func text(n uint32) func() *workerv1.EmbedRequest {
	return func() *workerv1.EmbedRequest {
		return &workerv1.EmbedRequest{StreamId: stream.NewID(), Inputs: []*workerv1.TokenIds{{Ids: []uint32{n}}}}
	}
}

func TestUnaryEngineAcrossAProcessBoundaryKeepsTheContract(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			svc := newEmbedder("worker", stream.Unary(newCounter().vectors))
			cc := tr.dial(t, tr.serve(t, svc))
			streamtest.Run(t, func(*testing.T) streamtest.Subject[*workerv1.EmbedRequest, *workerv1.EmbedResponse] {
				return streamtest.Subject[*workerv1.EmbedRequest, *workerv1.EmbedResponse]{
					Engine: embedAt(cc, "caller", "worker"),
					Short:  text(1), Bad: text(0),
					Live: svc.hop.Live.Len,
				}
			})
		})
	}
}

func TestUnaryAnswersMayBeLarge(t *testing.T) {
	svc := newEmbedder("worker", stream.Unary(func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
		return &workerv1.EmbedResponse{Embeddings: []*llmv1.Embedding{{Values: make([]float32, 5<<18)}}, End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}, nil
	}))
	for _, tr := range transports {
		for out, err := range embedAt(tr.dial(t, tr.serve(t, svc)), "caller", "worker").Range(t.Context(), text(1)()) {
			if err != nil || len(out.GetEmbeddings()[0].GetValues()) != 5<<18 {
				t.Errorf("%s: %v", tr.name, err)
			}
		}
	}
}

// lastError returns the error with which a unary engine ends a request.
func lastError(ctx context.Context, e embedEngine, req *workerv1.EmbedRequest) (last error) {
	for _, err := range e.Range(ctx, req) {
		last = err
	}
	return last
}

func TestStopOfAUnaryCallCrossesThreeHopsWithItsCause(t *testing.T) {
	leaf := newCounter()
	worker := newEmbedder("worker", stream.Unary(leaf.vectors))
	chat := newEmbedder("chat", embedAt(dialGRPC(t, serveGRPC(t, worker)), "chat", "worker"))
	patient(worker.service)
	patient(chat.service)
	edge := embedAt(dialKitex(t, serveKitex(t, chat)), "edge", "chat")
	for i := range 100 {
		ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
		gone := &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client"), Message: "closed its connection"}
		time.AfterFunc(time.Duration(i)*20*time.Microsecond, func() { ctl.Stop(gone) }) // before, during and after the call
		if err := lastError(ctx, edge, text(1<<30)()); !errors.Is(err, gone) {
			t.Fatal(err)
		}
		select {
		case err := <-leaf.causes:
			if got := streamerr.As(err); got.Reason != streamerr.ClientGone || got.Path.String() != "client > edge > chat" || got.Message != gone.Message {
				t.Fatalf("the leaf was stopped with %v", got)
			}
		default: // the stop came before the call
		}
		ctl.Release()
		awaitNoLive(t, worker.hop, chat.hop)
	}
}

// awaitNoLive waits until no stream runs on the hops. A caller that abandons its peer after the
// grace returns before the peer does.
func awaitNoLive(t *testing.T, hops ...*rpc.Hop) {
	t.Helper()
	for _, h := range hops {
		polltest.Eventually(t, "no stream of "+h.Name+" is live", func() bool { return h.Live.Len() == 0 })
	}
}

// TestStopIsRepeatedUntilThePeerKnowsTheStream: the Stop is a separate call, and may arrive before
// the call that it stops.
func TestStopIsRepeatedUntilThePeerKnowsTheStream(t *testing.T) {
	leaf := newCounter()
	svc := newEmbedder("worker", leaf.embed)
	ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
	defer ctl.Release()
	svc.asked = func() {
		ctl.Stop(streamerr.New(streamerr.Deadline, "too late"))
		for range 2 { // the stream begins after two Stops
			<-svc.stops
		}
	}
	if err := lastError(ctx, embedAt(dialGRPC(t, serveGRPC(t, svc)), "edge", "worker"), text(1<<30)()); !errors.Is(err, streamerr.Deadline) {
		t.Error(err)
	}
	if got := streamerr.As(<-leaf.causes); got.Reason != streamerr.Deadline || got.Path.String() != "edge" {
		t.Errorf("the leaf was stopped with %v", got)
	}
}

// TestStoppedUnaryCallEndsNoStreamOfAnotherOwner: a call with the id of another owner's stream is
// refused, and its Stop, which arrives first, must not end that stream.
func TestStoppedUnaryCallEndsNoStreamOfAnotherOwner(t *testing.T) {
	leaf := newCounter()
	svc := newEmbedder("worker", stream.Unary(leaf.vectors))
	cc := dialGRPC(t, serveGRPC(t, svc))
	ask := func(owner string) *workerv1.EmbedRequest {
		req := text(1 << 30)()
		req.StreamId, req.Claim = "taken", &llmv1.Claim{Owner: owner}
		return req
	}
	ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
	defer ctl.Release()
	victim := make(chan error, 1)
	go func() { victim <- lastError(ctx, embedAt(cc, "edge", "worker"), ask("a")) }()
	polltest.Eventually(t, "the stream of a is live", func() bool { return svc.hop.Live.Len() == 1 })
	other, stop := stream.WithControl(t.Context(), polltest.Patience)
	defer stop.Release()
	svc.asked = func() {
		stop.Stop(streamerr.New(streamerr.Deadline, "at once"))
		<-svc.stops // the Stop arrives before the call is refused
	}
	if err := lastError(other, embedAt(cc, "edge/1", "worker"), ask("b")); !errors.Is(err, streamerr.Deadline) {
		t.Error(err)
	}
	ctl.Stop(streamerr.New(streamerr.UserStop, "enough"))
	if err := <-victim; !errors.Is(err, streamerr.UserStop) {
		t.Error(err)
	}
	if err := <-leaf.causes; !errors.Is(err, streamerr.UserStop) {
		t.Errorf("the stop of b's call has ended a's stream: %v", err)
	}
}

func TestPeerThatCannotBeStoppedIsReset(t *testing.T) {
	leaf := newCounter()
	ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
	defer ctl.Release()
	svc := newEmbedder("worker", whenRunning(leaf.embed, func() { ctl.Stop(streamerr.New(streamerr.UserStop, "enough")) }))
	svc.deaf = true
	if err := lastError(ctx, embedAt(dialGRPC(t, serveGRPC(t, svc)), "edge", "worker"), text(1<<30)()); !errors.Is(err, streamerr.UserStop) {
		t.Error(err)
	}
	if got := streamerr.As(<-leaf.causes); got.Reason != streamerr.PeerReset || got.Path.String() != "edge" {
		t.Errorf("the leaf was stopped with %v", got)
	}
}

func TestUnaryFailureCrossesThreeHopsWithItsPath(t *testing.T) {
	worker := newEmbedder("worker", stream.Unary(newCounter().vectors))
	chat := newEmbedder("chat", embedAt(dialGRPC(t, serveGRPC(t, worker)), "chat", "worker"))
	edge := embedAt(dialKitex(t, serveKitex(t, chat)), "edge", "chat")
	for n, want := range map[uint32]streamerr.Error{
		0:  {Reason: streamerr.Invalid, Message: "inputs[0] must not be 0", Param: "inputs[0]"},
		13: {Reason: streamerr.Internal, Message: "a bug in worker ended this stream; its log has the details"},
	} {
		e := streamerr.As(lastError(t.Context(), edge, text(n)()))
		if e.Reason != want.Reason || e.Path.String() != "worker > chat" || e.Message != want.Message || e.Param != want.Param {
			t.Errorf("text %d: %v (param %q)", n, e, e.Param)
		}
	}
}
