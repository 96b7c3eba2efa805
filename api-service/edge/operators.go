package edge

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/cloudwego/hertz/pkg/route"
	"golang.org/x/sync/errgroup"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/connlimit"
	"github.com/whence-dev/whence/api-service/edge/admin"
	"github.com/whence-dev/whence/api-service/gate"
	"github.com/whence-dev/whence/api-service/openai"
)

// besideAdmin runs serve beside the admin listener, if there is one. The admin listener serves until serve has
// returned, so that a drain can be watched. A failure of one ends the other.
func (e *Edge) besideAdmin(ctx context.Context, serve func(context.Context) error) error {
	ln, err := e.config.Admin.Open(e.config.OperatorKey)
	if err != nil {
		return err
	}
	if ln == nil {
		return serve(ctx)
	}
	e.log.Info("serving operators", "addr", ln.Addr().String())
	both, ctx := errgroup.WithContext(ctx)
	watched, stop := context.WithCancel(context.WithoutCancel(ctx))
	both.Go(func() error {
		defer stop()
		return serve(ctx)
	})
	both.Go(func() error { return e.serveOperators(watched, ln) })
	return both.Wait()
}

// maxOperators bounds the connections of the admin listener.
const maxOperators = 256

// serveOperators serves the admin listener until ctx is done. Beyond loopback, where the operator's key crosses a
// network, it uses TLS if the public listener does.
func (e *Edge) serveOperators(ctx context.Context, ln net.Listener) error {
	certificate := e.config.TLS
	if gate.Loopback(ln.Addr()) {
		certificate = connection.Certificate{}
	} else if !certificate.On() {
		e.log.Warn("the admin listener is reached from other machines without TLS, so the operator's key crosses the network in clear text; set --tls-cert, or listen on loopback", "addr", ln.Addr().String())
	}
	secure, err := certificate.Open(e.log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	guard := &access.Guard{Role: access.ForOperators, Keys: e.guard.Keys, Operator: e.config.OperatorKey, Tokens: e.keyring}
	h, _ := e.server(ln.Addr(), guard, connlimit.New(connlimit.Config{Total: maxOperators}, nil, e.log))
	h.TLS = secure
	e.operatorRoutes(h.Engine, guard)
	return h.Run(ctx, ln, func() time.Duration { return connection.StopWait })
}

// operatorRoutes adds the routes of the admin listener. The console's chat makes kept streams, reads
// them and reports how they arrived.
func (e *Edge) operatorRoutes(h *route.Engine, guard *access.Guard) {
	h.POST("/v1/chat/completions", e.answer(openAI(openai.ParseChat)))
	h.POST("/v1/streams", e.makeStream)
	h.GET("/v1/streams/:id/events", e.readers.Events)
	h.POST("/v1/streams/:id/seen", e.reports.Seen)
	e.operator.Routes(h)
	admin.Routes(h, e.config.Metrics)
	e.lastRoutes(h, guard)
}

// hasConsole reports whether the listener of guard serves the console: that of operators does, if there is one.
func (e *Edge) hasConsole(guard *access.Guard) bool {
	return !e.config.Admin.NoConsole && guard.Role != access.ForCallers
}
