package main

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/protocol/sse"

	examplev1 "github.com/whence-dev/whence/idl/gen/whence/example/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An api is a Hertz service that answers with server-sent events.
type api struct {
	hop    *rpc.Hop
	engine answerer
	hertz  *server.Hertz
	addr   string
	served chan error
}

// serveHTTP starts an api that answers with engine.
func serveHTTP(name string, engine answerer, log *slog.Logger) (*api, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	hlog.SetLevel(hlog.LevelFatal)
	a := &api{hop: &rpc.Hop{Name: name, Log: log, Grace: grace}, engine: engine, addr: ln.Addr().String(), served: make(chan error, 1)}
	// Without WithSenseClientDisconnection the handler would learn from a failed write that its client
	// has left, and not at all while the model is silent.
	a.hertz = server.New(server.WithListener(ln), server.WithSenseClientDisconnection(true), server.WithDisablePrintRoute(true), server.WithExitWaitTime(time.Second))
	a.hertz.GET("/chat", a.chat)
	go func() { a.served <- a.hertz.Run() }()
	return a, nil
}

// chat answers a question. Hertz cancels ctx when the client closes its connection: lost is what
// ended the stream then.
func (a *api) chat(ctx context.Context, c *app.RequestContext) {
	q := &examplev1.Question{StreamId: string(c.GetHeader("X-Request-Id")), Text: c.Query("question")}
	ctx, end, err := a.hop.Begin(ctx, &q.StreamId, "", c.RemoteAddr().String(), lost)
	if err != nil {
		c.String(streamerr.As(err).Reason.HTTPStatus(), err.Error())
		return
	}
	defer end()
	events := sse.NewWriter(c)
	o := rpc.Drive(ctx, a.hop, ask, a.engine, q, func(m *examplev1.AskResponse) error {
		if m.GetEnd() != nil {
			return nil
		}
		if err := events.WriteEvent("", "word", []byte(m.GetWord())); err != nil {
			return lost() // the write noticed it first
		}
		return nil
	})
	// The last event says how the stream ended, whoever still reads.
	_ = events.WriteEvent("", "ending", []byte(o.Reason().String()))
}

// lost is the cause of a stream whose client has left.
func lost() *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("browser"), Message: "the user closed the tab"}
}

// stop stops the service, once its streams have ended: Hertz itself would not end them.
func (a *api) stop() error {
	drain(a.hop)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := a.hertz.Shutdown(ctx); err != nil {
		return err
	}
	return <-a.served
}
