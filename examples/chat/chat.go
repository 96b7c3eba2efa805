package main

import (
	"context"
	"iter"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"

	examplev1 "github.com/whence-dev/whence/idl/gen/whence/example/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An answerer is an engine that answers questions with words: the model, or a call of a service.
type answerer = stream.Engine[*examplev1.Question, *examplev1.AskResponse]

// ask tells package rpc which fields of Ask's messages to use.
var ask = &rpc.Method[*examplev1.Question, examplev1.AskRequest, examplev1.AskResponse]{
	Open: func(q *examplev1.Question) *examplev1.AskRequest {
		return &examplev1.AskRequest{Message: &examplev1.AskRequest_Question{Question: q}}
	},
	Opened: func(in *examplev1.AskRequest) (*examplev1.Question, bool) {
		return in.GetQuestion(), in.GetQuestion() != nil
	},
	Stop: func(stop *streamv1.Stop) *examplev1.AskRequest {
		return &examplev1.AskRequest{Message: &examplev1.AskRequest_Stop{Stop: stop}}
	},
	Stopped: func(in *examplev1.AskRequest) (*streamv1.Stop, bool) { return in.GetStop(), in.GetStop() != nil },
	ID:      func(q *examplev1.Question) *string { return &q.StreamId },
	End:     func(out *examplev1.AskResponse) *streamerr.Ending { return streamerr.EndingOf(out.GetEnd()) },
}

// A service is a Kitex service of this process, and a Kitex client of it.
type service struct {
	examplev1.UnimplementedAnswersServer
	name   string
	hop    *rpc.Hop
	engine answerer
	server *kitexrpc.Server
	client *kitexrpc.ClientConn
	served chan error
}

// serve starts a service that answers with engine.
func serve(name string, engine answerer, log *slog.Logger) (*service, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &service{name: name, hop: &rpc.Hop{Name: name, Log: log, Grace: grace}, engine: engine, server: kitexrpc.NewServer(), served: make(chan error, 1)}
	if s.client, err = kitexrpc.Dial(ln.Addr().String(), &examplev1.Answers_ServiceDesc); err != nil {
		return nil, err
	}
	examplev1.RegisterAnswersServer(s.server, s)
	go func() { s.served <- s.server.Serve(ln) }()
	return s, nil
}

// Ask implements examplev1.AnswersServer: this is all that the handler of a stream does.
func (s *service) Ask(st grpc.BidiStreamingServer[examplev1.AskRequest, examplev1.AskResponse]) error {
	return rpc.Serve(s.hop, st, ask, s.engine)
}

// stop stops the service, once its streams have ended.
func (s *service) stop() error {
	drain(s.hop)
	_ = s.client.Close() // no call is open
	s.server.Stop()
	return <-s.served
}

// asking returns the engine of the hop self, which passes questions on to a service. It wraps its
// context, as handlers do: over plain gRPC or TTHeader Streaming that would lose the cause of a stop.
func asking(self string, below *service) answerer {
	call := rpc.Dial(self, below.name, examplev1.NewAnswersClient(below.client).Ask, ask)
	return stream.Push(func(ctx context.Context, q *examplev1.Question) iter.Seq2[*examplev1.AskResponse, error] {
		return func(yield func(*examplev1.AskResponse, error) bool) {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			for item, err := range call.Range(ctx, q) {
				if !yield(item, err) {
					return
				}
			}
		}
	})
}
