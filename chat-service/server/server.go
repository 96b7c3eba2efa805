// Package server is chat-service: whence.chat.v1.Chat over gRPC, TTHeader Streaming and links.
package server

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/choices"
	"github.com/whence-dev/whence/chat-service/models"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/drain"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/inspect"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/methods/codec"
	"github.com/whence-dev/whence/pkg/rpc/mtls"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Server implements whence.chat.v1.Chat.
type Server struct {
	chatv1.UnimplementedChatServer
	hop      *rpc.Hop
	models   *models.Registry
	answer   chat.Engine
	health   *health.Server
	limits   guard.Limits   // limits on the calls of callers
	linked   bool           // links are served
	linkPort int            // port for links; 0 takes any
	links    *link.Port     // set while Serve runs; nil without links
	identity *mtls.Identity // nil for plain TCP

	repeats bool // answer may read a request again after its stream has started
}

// New returns a server for the models of registry, with answer as the engine of all streams. health
// reports whether requests can be answered.
func New(hop *rpc.Hop, registry *models.Registry, health *health.Server, answer chat.Engine) *Server {
	return &Server{hop: hop, models: registry, answer: answer, health: health}
}

// Limit sets limits on the calls of callers. It must be called before Serve.
func (s *Server) Limit(l guard.Limits) { s.limits = l }

// Link makes Serve serve links too, on a port, or on any port if it is 0. It must be called before
// Serve.
func (s *Server) Link(port int) { s.linked, s.linkPort = true, port }

// Authenticate makes Serve accept only callers with mutual TLS. nil means plain TCP. It must be
// called before Serve.
func (s *Server) Authenticate(i *mtls.Identity) { s.identity = i }

// Generate implements chatv1.ChatServer.
func (s *Server) Generate(st grpc.BidiStreamingServer[chatv1.GenerateRequest, chatv1.GenerateResponse]) error {
	return rpc.Serve(s.hop, codec.SendDeltas(st), methods.Chat, s.generate())
}

// Complete implements chatv1.ChatServer.
func (s *Server) Complete(ctx context.Context, req *chatv1.CompleteRequest) (*chatv1.CompleteResponse, error) {
	if req.GetChat() == nil {
		return nil, streamerr.Via(s.hop.Name, streamerr.InvalidParam("chat", "chat is missing"))
	}
	req.Chat.Gathered = true
	var w whole
	if err := rpc.ServeUnary(ctx, s.hop, methods.Chat, s.generate(), req.GetChat(), w.take); err != nil {
		return nil, err
	}
	return w.response(), nil
}

// Models implements chatv1.ChatServer.
func (s *Server) Models(context.Context, *chatv1.ModelsRequest) (*chatv1.ModelsResponse, error) {
	all := s.models.Models()
	if missing := s.models.Missing(); len(all) == 0 && missing != "" {
		return nil, streamerr.Via(s.hop.Name, streamerr.New(streamerr.Unavailable, "there is no model yet: %s", missing))
	}
	return &chatv1.ModelsResponse{Models: all}, nil
}

// Workers implements chatv1.ChatServer.
func (s *Server) Workers(context.Context, *chatv1.WorkersRequest) (*chatv1.WorkersResponse, error) {
	return &chatv1.WorkersResponse{Workers: s.models.Workers()}, nil
}

// below returns the workers' records of a stream, or of its choices, in their order.
func (s *Server) below(ctx context.Context, id string) []*streamv1.Record {
	n := ledger.At(s.hop).Parts(id)
	if n == 0 {
		return s.models.Why(ctx, id, ledger.At(s.hop).Get(id))
	}
	told := make([][]*streamv1.Record, n)
	var asked sync.WaitGroup
	for i := range told {
		// It is unknown which of the choices have moved, so all workers are asked.
		asked.Go(func() { told[i] = s.models.Why(ctx, choices.ID(id, i), nil) })
	}
	asked.Wait()
	return slices.Concat(told...)
}

// Stop implements chatv1.ChatServer.
func (s *Server) Stop(ctx context.Context, req *chatv1.StopRequest) (*chatv1.StopResponse, error) {
	resp, err := s.hop.Stop(ctx, req.GetStream())
	if err != nil {
		return nil, err
	}
	return &chatv1.StopResponse{Stream: resp}, nil
}

// stopWait bounds the goodbye of links after all streams have ended.
const stopWait = time.Second

// Serve serves on ln until ctx is done. Then it refuses new streams, lets live streams finish for
// grace, ends the rest with DRAINING, and returns nil.
func (s *Server) Serve(ctx context.Context, ln net.Listener, grace time.Duration) error {
	srv := kitexrpc.NewServer()
	srv.Creds, srv.MaxRecvBytes = s.identity.ServerCredentials(), rpc.MaxRequest
	srv.MaxStreams, srv.Flooded = s.limits.Transport(), guard.Flooded(s.guarded())
	registrar := guard.Server(srv)
	if s.linked {
		port, err := link.OpenPort(ln, s.linkPort, link.Options{Mux: mux.Options{MaxMessage: rpc.MaxRequest}, TLS: s.identity.ServerTLS(), Refused: s.identity.Refused}, s.hop.Log)
		if err != nil {
			return err
		}
		defer func() { port.Close(drain.Goodbye(ctx, stopWait)) }()
		s.links, registrar = port, port.Beside(srv)
	}
	s.Register(registrar)
	if s.links != nil {
		s.links.Serve()
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.Drain(ctx, grace)
	srv.Stop()
	return ended(ctx, failed)
}

// ended waits for a stopped server, which waits up to a second for its callers to close their
// connections. After the second signal the wait is shorter, because the process must still export
// its last spans.
func ended(ctx context.Context, failed <-chan error) error {
	select {
	case err := <-failed:
		return err
	case <-drain.Hurried(ctx):
	}
	select {
	case err := <-failed:
		return err
	case <-time.After(drain.Goodbye(ctx, stopWait)):
		return nil
	}
}

// guarded returns the options of the guard between the server and the services.
func (s *Server) guarded() guard.Options {
	return guard.Options{Name: s.hop.Name, Limits: s.limits, Observer: ledger.At(s.hop).Metrics, Log: s.hop.Log}
}

// Register registers all services of s with a gRPC server.
func (s *Server) Register(srv guard.Server) {
	guarded := guard.New(srv, s.guarded())
	chatv1.RegisterChatServer(guarded, s)
	inspect.Register(guarded, s.hop, s.below)
	healthpb.RegisterHealthServer(guarded, s.health)
	if s.links != nil {
		s.links.Advertise(guarded)
	}
	reflection.Register(guarded)
}

// Drain refuses new streams, lets live streams finish for grace, and ends the rest with DRAINING.
func (s *Server) Drain(ctx context.Context, grace time.Duration) {
	// before the health service reports it, so that no stream begins after the report
	s.hop.Live.Close()
	s.health.Shutdown()
	s.hop.Drain(ctx, grace)
}
