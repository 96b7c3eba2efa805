package edge

import (
	"cmp"
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/dialogue"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/gate"
	"github.com/whence-dev/whence/api-service/responses"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/stream"
)

// prepareDialogues sets up the service of OpenAI's Responses API over WebSockets.
func (e *Edge) prepareDialogues(g *gate.Gate) {
	s := &e.dialogues
	s.Name, s.Desk, s.Gate, s.Log, s.Run = e.hop.Name, e.desk, g, e.log, e.runTurn
	s.Bounds, s.KeepAlive, s.MaxMessage, s.Lifetime = e.bounds(), e.config.KeepAlive, e.config.MaxBody, cmp.Or(e.config.SocketLifetime, DefaultSocketLifetime)
	s.Live.Max = e.config.MaxStreams
}

// runTurn implements dialogue.Service.Run: it runs the response that a message of a WebSocket asks
// for. An error is a refusal: the client has not been told anything yet. c is the request that
// opened the WebSocket; it names the caller and the policy.
func (e *Edge) runTurn(conn context.Context, c *app.RequestContext, t *dialogue.Turn) error {
	conn, err := exchange.Identify(conn, c, e.guard) // again: the key may have expired since the last turn
	if err != nil {
		return err
	}
	caller := exchange.Caller(conn)
	if err := caller.Make(); err != nil {
		return err
	}
	in, err := exchange.Parse(e.desk, c, t.Body, responses.Parser(e.config.StoreResponses))
	if err != nil {
		return err
	}
	policy, err := permit(c, caller, in, e.config.Leave)
	if err != nil {
		return err
	}
	if !t.Generates {
		dropStorage(in)
		if err := e.continueEarlier(conn, c, in, t); err != nil {
			return err
		}
		return t.Prepare(in)
	}
	in.Request.StreamId, in.Stream = t.ID, true
	ctx, r, _, err := e.beginAnswer(conn, c, in, policy, t)
	if err != nil {
		return err
	}
	defer r.finish(conn)
	r.enter(t.Taken, t.Free)
	t.Begin(ctx, in, r.leave)
	t.End(ctx, r.drive(ctx, in, func(on *stream.Loop, out *chatv1.GenerateResponse) error {
		waits, err := t.Write(out)
		if err == nil && waits && !r.outlives { // a slow client must not slow down the other readers of its stream
			on.Wait()
			err = t.Flush()
		}
		return err
	}))
	return nil
}
