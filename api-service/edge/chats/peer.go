package chats

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/methods/codec"
	"github.com/whence-dev/whence/pkg/rpc/mtls"
	"github.com/whence-dev/whence/pkg/rpc/problem"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// probeInterval is the time between health probes of a chat-service; probeTimeout bounds each
	// probe.
	probeInterval = time.Second
	probeTimeout  = time.Second
)

// A peer is the connection to one chat-service.
type peer struct {
	// Static.
	addr     string
	name     string // the name in paths, until the chat-service has reported its own
	conn     io.Closer
	chat     chatv1.ChatClient
	streams  streamv1.StreamsClient
	health   healthpb.HealthClient
	engine   Engine
	embed    EmbedEngine
	score    ScoreEngine
	converse ConverseEngine

	unwatch context.CancelFunc // stops the probes; nil while there are none; guarded by the fleet's mu
	live    atomic.Int64       // number of this process's streams on it
	ill     atomic.Bool        // the last probe failed, or a stream has been lost since
	leaving atomic.Bool        // close the connection when it has no streams
	closing sync.Once
}

// OverKitex returns a Connect with Kitex clients. A nil identity means plain TCP.
func OverKitex(identity *mtls.Identity) Connect {
	return func(addr string) (Conn, error) { return overKitex(identity, addr) }
}

// overKitex connects to the chat-service at addr with a Kitex client.
func overKitex(identity *mtls.Identity, addr string) (*kitexrpc.ClientConn, error) {
	descs := []*grpc.ServiceDesc{&chatv1.Chat_ServiceDesc, &streamv1.Streams_ServiceDesc, &streamv1.Links_ServiceDesc, &healthpb.Health_ServiceDesc}
	if config := identity.ClientTLS(addr); config != nil {
		return kitexrpc.DialTLS(addr, config, descs...)
	}
	return kitexrpc.Dial(addr, descs...)
}

// OverLinks returns a Connect whose streams go over links if the chat-service serves links. The
// connection logs when streams begin to use links, and calls opened for each stream (see
// link.Options). With several chat-services, a frozen chat-service is detected within about 3 s; a
// single chat-service is given more time. A nil identity means plain TCP.
func OverLinks(identity *mtls.Identity, log *slog.Logger, several bool, opened func(linked bool)) Connect {
	var options link.Options
	if several {
		options = link.Watchful()
	}
	return func(addr string) (Conn, error) {
		cc, err := overKitex(identity, addr)
		if err != nil {
			return nil, err
		}
		own := options
		own.TLS, own.Opened = identity.ClientTLS(addr), opened
		return link.Upgrade(cc, addr, own, log), nil
	}
}

func dial(connect Connect, self, name, addr string) (*peer, error) {
	conn, err := connect(addr)
	if err != nil {
		return nil, err
	}
	chat := chatv1.NewChatClient(conn)
	tell := func(ctx context.Context, stop *streamv1.StopStreamRequest) error {
		_, err := chat.Stop(ctx, &chatv1.StopRequest{Stream: stop})
		return err
	}
	return &peer{
		addr: addr, name: name, conn: conn, chat: chat, streams: streamv1.NewStreamsClient(conn), health: healthpb.NewHealthClient(conn),
		engine:   rpc.Dial(self, name, codec.Deltas(chat.Generate), methods.Chat),
		embed:    rpc.DialUnary(self, name, chat.Embeddings, tell, methods.ChatEmbeddings),
		score:    rpc.DialUnary(self, name, chat.Score, tell, methods.ChatScore),
		converse: converseOver(self, name, chat.Converse),
	}, nil
}

// watch probes the chat-service every probeInterval until ctx is done. It logs each change, and a
// problem that lasts again and again.
func (p *peer) watch(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	var results probeLog
	for {
		err := p.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		p.ill.Store(err != nil)
		switch recovered, due := results.step(err); {
		case recovered:
			log.Info("chat-service answers", "target", p.addr)
		case due:
			log.Warn("a chat-service cannot be used", "target", p.addr, "problem", err.Text(), "hint", hint(err))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// A probeLog decides which results of the probes of a chat-service are logged.
type probeLog struct {
	probed bool // there was a probe before
	failed bool // the last line that was logged is a problem
	logged problem.Log
}

// step returns whether to log that the chat-service answers, or a problem. A chat-service that
// answers its first probe, but takes no streams yet, is no news: its workers may start at the same
// time. If it is not ready at the second probe either, that is logged.
func (l *probeLog) step(err *streamerr.Error) (recovered, due bool) {
	first := !l.probed
	l.probed = true
	switch {
	case err == nil:
		recovered = l.failed
		l.failed = false
		l.logged.Clear()
	case first && err.Reason == streamerr.Unavailable:
	case l.logged.Due(err.Text()):
		l.failed, due = true, true
	}
	return recovered, due
}

// hint tells an operator what to do about a problem of a chat-service.
func hint(problem *streamerr.Error) string {
	if problem.Reason == streamerr.PeerLost {
		return "start chat-service at this address, or correct the address (--chat); it is probed every second"
	}
	return "streams go to other chat-services, if there are any; this one is probed every second"
}

// probe returns the reason why the chat-service takes no streams, or nil.
func (p *peer) probe(ctx context.Context) *streamerr.Error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return p.problem(ctx)
}

// ready returns the reason why the chat-service takes no streams as an error, or nil.
func (p *peer) ready(ctx context.Context) error {
	if problem := p.problem(ctx); problem != nil {
		return problem
	}
	return nil
}

// problem returns the reason why the chat-service takes no streams, without addresses, or nil.
func (p *peer) problem(ctx context.Context) *streamerr.Error {
	resp, err := p.health.Check(ctx, &healthpb.HealthCheckRequest{Service: chatv1.Chat_ServiceDesc.ServiceName})
	if err != nil {
		e := streamerr.New(streamerr.PeerLost, "%s", problem.OfProbe(Hop, p.dialError(ctx, err), probeTimeout))
		e.Cause = err
		return e
	}
	if resp.GetStatus() == healthpb.HealthCheckResponse_SERVING {
		link.Await(ctx, p.conn)
		return nil
	}
	return streamerr.New(streamerr.Unavailable, "%s takes no streams: %s", Hop, p.problemBelow(ctx))
}

// closedByPeer is a part of Kitex's error for a connection that could not be made.
const closedByPeer = "connection has been closed by peer"

// dialError returns why no connection can be made, or err if one can, or if the time of ctx is over.
// Kitex does not say: for a refused connection, for one, it reports that the peer has closed it.
func (p *peer) dialError(ctx context.Context, err error) error {
	if ctx.Err() != nil || !strings.Contains(err.Error(), closedByPeer) {
		return err
	}
	var d net.Dialer
	conn, dialErr := d.DialContext(ctx, "tcp", p.addr)
	switch {
	case dialErr == nil:
		_ = conn.Close()
		return err
	case ctx.Err() != nil:
		return err
	default:
		return status.Error(codes.Unavailable, dialErr.Error())
	}
}

// shownModels bounds the models that problemBelow names.
const shownModels = 3

// problemBelow returns the reason why no model of the chat-service has a worker.
func (p *peer) problemBelow(ctx context.Context) string {
	resp, err := p.chat.Models(ctx, &chatv1.ModelsRequest{})
	switch {
	case streamerr.FromHop(err):
		return streamerr.FromGRPC(Hop, err).Message
	case err != nil:
		return "the chat-service gave no reason"
	}
	var all []string
	for _, m := range resp.GetModels() {
		if m.GetProblem() != "" && len(all) < shownModels {
			all = append(all, fmt.Sprintf("no healthy worker for %q: %s", m.GetId(), m.GetProblem()))
		}
	}
	if len(all) == 0 {
		return "it is shutting down, or has just started"
	}
	return strings.Join(all, "; ")
}

// run runs a stream that choose has counted. It returns the failure of the stream on this
// chat-service, or nil if the stream has ended or the reader has left the loop.
func run[Req, Item any](ctx context.Context, p *peer, engine stream.Sequence[Req, Item], req Req, yield func(Item) bool) error {
	defer p.done()
	for out, err := range engine(ctx, req) {
		if err != nil {
			p.note(ctx, err)
			return err
		}
		if !yield(out) {
			return nil
		}
	}
	return nil
}

// note records the failure of a stream on the chat-service.
func (p *peer) note(ctx context.Context, err error) {
	if stream.Cause(ctx) == nil && away(streamerr.As(err)) {
		p.ill.Store(true) // until a probe succeeds
	}
}

// away reports whether an ending means that the chat-service itself takes no streams.
func away(e *streamerr.Error) bool {
	switch e.Reason {
	case streamerr.PeerLost, streamerr.PeerReset, streamerr.Draining:
		return len(e.Path) <= 1 // otherwise it is the ending of a worker
	default:
		return false
	}
}

func (p *peer) done() {
	if p.live.Add(-1) == 0 && p.leaving.Load() {
		p.close()
	}
}

// leave takes the chat-service out of use for new streams. The fleet's mu is held.
func (p *peer) leave() {
	if p.unwatch != nil {
		p.unwatch()
	}
	p.leaving.Store(true)
	if p.live.Load() == 0 {
		p.close()
	}
}

func (p *peer) close() {
	p.closing.Do(func() { _ = p.conn.Close() }) // Close fails only for streams, and there are none
}
