package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Serve answers one call of a bidi method with engine, and returns what the handler must return. The stream ends once:
// with an End message and status OK, or with a status that carries reason and path. A caller that half-closes after its
// request is served to the end; one that sends a Stop hears the ending in the trailers; one that resets or vanishes stops
// the engine with PEER_RESET.
func Serve[Req, In, Out any](h *Hop, st grpc.BidiStreamingServer[In, Out], m *Method[Req, In, Out], engine stream.Engine[Req, *Out]) error {
	incoming := withIncomingVia(st.Context())
	first, err := st.Recv()
	if err != nil {
		return streamerr.Via(h.Name, streamerr.New(streamerr.Invalid, "the call ended before its request: %v", err))
	}
	req, ok := m.Opened(first)
	if !ok {
		return streamerr.Via(h.Name, streamerr.New(streamerr.Invalid, "the first message must be the request"))
	}
	ctx, ctl, end, err := h.begin(incoming, m.ID(req))
	if err != nil {
		return streamerr.Via(h.Name, err)
	}
	defer end()
	go hear(ctx, ctl, st, m) // ends when st does, which is when this handler has returned
	o := drive(ctx, h, ctl, m, engine, req, st.Send)
	st.SetTrailer(endTrailer(o))
	return o.status()
}

// ServeUnary runs engine for a unary method, and hands each item to collect.
func ServeUnary[Req, In, Out any](ctx context.Context, h *Hop, m *Method[Req, In, Out], engine stream.Engine[Req, *Out], req Req, collect func(*Out)) error {
	ctx, ctl, end, err := h.begin(withIncomingVia(ctx), m.ID(req))
	if err != nil {
		return streamerr.Via(h.Name, err)
	}
	defer end()
	o := drive(ctx, h, ctl, m, engine, req, func(out *Out) error { collect(out); return nil })
	_ = grpc.SetTrailer(ctx, endTrailer(o)) // fails only where there is no call to answer
	return o.status()
}

func endTrailer(o outcome) metadata.MD {
	return metadata.Pairs(streamerr.ReasonTrailer, o.reason().String(), streamerr.PathTrailer, o.path().String())
}

// hear receives control messages until the call ends.
func hear[Req, In, Out any](ctx context.Context, ctl *stream.Control, st grpc.BidiStreamingServer[In, Out], m *Method[Req, In, Out]) {
	for {
		in, err := st.Recv()
		if err != nil {
			return // half-close, which is no cancel; a reset ends st.Context and is heard there
		}
		stop, ok := m.Stopped(in)
		if !ok {
			ctl.Stop(streamerr.New(streamerr.Invalid, "only the first message may be a request"))
			continue
		}
		ctl.Stop(fromStop(ctx, stop, streamerr.UserStop))
	}
}

// drive ranges over the engine, passes its items on, and says how it ended.
func drive[Req, In, Out any](ctx context.Context, h *Hop, ctl *stream.Control, m *Method[Req, In, Out], engine stream.Engine[Req, *Out], req Req, send func(*Out) error) (o outcome) {
	begun := time.Now()
	defer func() {
		if v := recover(); v != nil {
			o = outcome{err: streamerr.Via(h.Name, h.panicked(ctx, v))}
		}
		h.log(ctx, o, begun)
	}()
	for out, err := range engine(ctx, req) {
		if err != nil {
			return outcome{err: streamerr.Via(h.Name, err)}
		}
		end := m.End(out)
		if end != nil {
			end.Path = streamerr.NewPath(end.GetPath()...).Append(h.Name)
		}
		if err := send(out); err != nil {
			ctl.Stop(&streamerr.Error{Reason: streamerr.PeerReset, Path: streamerr.NewPath(caller(ctx)), Message: "the caller no longer reads", Cause: err})
			return outcome{err: streamerr.Via(h.Name, stream.Cause(ctx))}
		}
		if end != nil {
			return outcome{end: end}
		}
	}
	return outcome{err: streamerr.Via(h.Name, streamerr.New(streamerr.Internal, "the engine ended without an ending"))}
}
