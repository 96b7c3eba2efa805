// Package worker serves an engine over gRPC: token ids in, token ids out.
package worker

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/pkg/drain"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/grpcserver"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/inspect"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/methods/codec"
	"github.com/whence-dev/whence/pkg/rpc/mtls"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/usage"
)

// An Engine is the engine of a worker.
type Engine = stream.Sequence[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// A Server implements whence.worker.v1.Worker.
type Server struct {
	workerv1.UnimplementedWorkerServer
	hop      rpc.Hop
	records  ledger.Ledger // the hop's observer
	model    string
	engine   Engine
	embed    EmbedEngine // works while info lists it as a capability; nil if it never does
	score    ScoreEngine // likewise
	info     func() *llmv1.WorkerInfo
	health   *health.Server
	held     *kvevents.Hub  // nil if the engine does not report its cache
	gone     chan struct{}  // closed when the streams have drained
	limits   guard.Limits   // limits on the calls that callers hold open
	linked   bool           // streams may come over links
	linkPort int            // of the links; 0 for any
	links    *link.Port     // while Serve runs; nil without links
	identity *mtls.Identity // nil for plain TCP
}

// NewServer returns a server of model on engine; name is the hop's. An empty model means the name
// in info. info returns the current description, in a new message each time. The server is
// unhealthy until SetHealthy changes that.
func NewServer(name, model string, engine Engine, info func() *llmv1.WorkerInfo, log *slog.Logger) *Server {
	s := &Server{hop: rpc.Hop{Name: name, Log: log}, model: model, engine: engine, info: info, health: health.NewServer(), gone: make(chan struct{})}
	s.hop.Observer = &s.records
	s.SetHealthy(false)
	return s
}

// Hop returns the server's hop: the records of its streams.
func (s *Server) Hop() *rpc.Hop { return &s.hop }

// SetHealthy sets whether the server can answer requests.
func (s *Server) SetHealthy(healthy bool) {
	inspect.SetHealthy(s.health, workerv1.Worker_ServiceDesc.ServiceName, healthy)
}

// Embeds sets the engine for vectors. It must be called before Serve.
func (s *Server) Embeds(e EmbedEngine) { s.embed = e }

// Scores sets the engine that rates documents. It must be called before Serve.
func (s *Server) Scores(e ScoreEngine) { s.score = e }

// Measure sets the metrics that count the streams. It must be called before Serve.
func (s *Server) Measure(h *metrics.Hop) { s.records.Metrics = h }

// Trace sets the tracer of the streams. It must be called before Serve.
func (s *Server) Trace(t *streamtrace.Tracer) { s.records.Traces = t }

// Account sets the log of the streams' usage records. It must be called before Serve.
func (s *Server) Account(l *usage.Log) { s.records.Usage = l }

// Limit sets limits on the calls of callers. It must be called before Serve.
func (s *Server) Limit(l guard.Limits) { s.limits = l }

// Link makes Serve serve links too, on a port, or on any port if it is 0. It must be called before
// Serve.
func (s *Server) Link(port int) { s.linked, s.linkPort = true, port }

// Authenticate makes Serve accept only callers with mutual TLS. nil means plain TCP. It must be
// called before Serve.
func (s *Server) Authenticate(i *mtls.Identity) { s.identity = i }

// Generate implements workerv1.WorkerServer.
func (s *Server) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	return rpc.Serve(&s.hop, codec.SendTokens(st), methods.Worker, stream.Push(s.check))
}

// check refuses requests for another model, and begun answers that the engine could not continue.
func (s *Server) check(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	info := s.describe()
	if err := serves(info, req.GetModel()); err != nil {
		return stream.Fail[*workerv1.GenerateResponse](err)
	}
	if info.GetPoolsOnly() {
		return stream.Fail[*workerv1.GenerateResponse](capability.NoGeneration(info))
	}
	if n := req.GetGenerated(); n > 0 && !info.GetContinues() && !info.GetResumes() {
		return stream.Fail[*workerv1.GenerateResponse](streamerr.InvalidParam("generated", "generated is %d, but this worker's engine cannot continue an answer that another engine began", n))
	}
	if adapter := req.GetAdapter(); adapter != "" && !info.GetCapabilities().GetAdapters() {
		return stream.Fail[*workerv1.GenerateResponse](capability.NoAdapters(cmp.Or(info.GetCapabilities().GetUpstream(), info.GetEngine()), adapter))
	}
	if err := capability.CheckImages(cmp.Or(info.GetCapabilities().GetUpstream(), info.GetEngine()), info.GetCapabilities(), req); err != nil {
		return stream.Fail[*workerv1.GenerateResponse](err)
	}
	if err := checkRole(info.GetRole(), req); err != nil {
		return stream.Fail[*workerv1.GenerateResponse](err)
	}
	return s.engine(ctx, req)
}

// serves returns an error unless model is a name or an alias of the served model.
func serves(info *llmv1.WorkerInfo, model string) error {
	if model == "" || info.GetModel() == "" || model == info.GetModel() || slices.Contains(info.GetAliases(), model) {
		return nil
	}
	e := streamerr.New(streamerr.NotFound, "this worker serves %q, not %.128q", info.GetModel(), model).WithCode(streamerr.CodeModelNotFound)
	e.Param = "model"
	return e
}

// Info implements workerv1.WorkerServer.
func (s *Server) Info(context.Context, *workerv1.InfoRequest) (*llmv1.WorkerInfo, error) {
	return s.describe(), nil
}

// describe returns the current description of the worker.
func (s *Server) describe() *llmv1.WorkerInfo {
	info := s.info()
	info.Instance = s.hop.Name
	if s.model != "" {
		info.Model = s.model
	}
	if s.hop.Live.Closed() {
		info.Problem = "the worker is shutting down and finishes its streams"
	}
	return info
}

// Stop implements workerv1.WorkerServer.
func (s *Server) Stop(ctx context.Context, req *workerv1.StopRequest) (*workerv1.StopResponse, error) {
	resp, err := s.hop.Stop(ctx, req.GetStream())
	if err != nil {
		return nil, err
	}
	return &workerv1.StopResponse{Stream: resp}, nil
}

// stopWait bounds the graceful close of connections whose streams have all ended, and of those that
// are still in their handshake.
const stopWait = time.Second

// Serve serves on ln until ctx is done. Then it takes no new streams, lets the live streams finish
// for grace, ends the rest with DRAINING, and returns nil.
func (s *Server) Serve(ctx context.Context, ln net.Listener, grace time.Duration) error {
	gs := grpcserver.New(grpcserver.Options{
		Creds: s.identity.ServerCredentials(), MaxRecvBytes: rpc.MaxRequest, MaxStreams: s.limits.Transport(), Flooded: guard.Flooded(s.guarded()),
	})
	srv := guard.Server(gs)
	if s.linked {
		port, err := link.OpenPort(ln, s.linkPort, link.Options{Mux: mux.Options{MaxMessage: rpc.MaxRequest}, TLS: s.identity.ServerTLS(), Refused: s.identity.Refused}, s.hop.Log)
		if err != nil {
			return err
		}
		defer func() { port.Close(drain.Goodbye(ctx, stopWait)) }()
		s.links, srv = port, port.Beside(gs)
	}
	s.Register(srv)
	if s.links != nil {
		s.links.Serve()
	}

	failed := make(chan error, 1)
	go func() { failed <- gs.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.Drain(ctx, grace)
	gs.Close(drain.Goodbye(ctx, stopWait))
	return <-failed
}

// guarded returns the options of the guard between the server and the services.
func (s *Server) guarded() guard.Options {
	return guard.Options{Name: s.hop.Name, Limits: s.limits, Observer: s.records.Metrics, Log: s.hop.Log}
}

// Register registers all services of s with a gRPC server.
func (s *Server) Register(srv guard.Server) {
	guarded := guard.New(srv, s.guarded())
	healthpb.RegisterHealthServer(guarded, s.health)
	workerv1.RegisterWorkerServer(guarded, s)
	inspect.Register(guarded, &s.hop, nil)
	if s.links != nil {
		s.links.Advertise(guarded)
	}
	reflection.Register(guarded)
}

// Drain takes no new streams, lets the live streams finish for grace, and ends the rest with
// DRAINING. It is called once.
func (s *Server) Drain(ctx context.Context, grace time.Duration) {
	// Before the health changes: a caller that has read the new health must not see a new stream
	// accepted.
	s.hop.Live.Close()
	s.health.Shutdown()
	s.hop.Drain(ctx, grace)
	close(s.gone)
}
