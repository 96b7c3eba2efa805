package mux

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// GreetTimeout bounds the exchange of HELLOs.
const GreetTimeout = 5 * time.Second

// Greet exchanges HELLOs on a new connection. It returns the peer's HELLO, and the bytes read after
// it.
func Greet(ctx context.Context, nc net.Conn, o Options) (peer frame.Greeting, buffered []byte, err error) {
	until := time.Now().Add(GreetTimeout)
	if at, ok := ctx.Deadline(); ok && at.Before(until) {
		until = at
	}
	if err := nc.SetDeadline(until); err != nil {
		return peer, nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	hello := frame.AppendHello(nil, frame.Greeting{Version: frame.Version, Window: o.Window, MaxMessage: o.MaxMessage, Identity: o.Identity})
	if _, err := nc.Write(hello); err != nil {
		return peer, nil, err
	}
	buf := make([]byte, 0, 4<<10)
	for {
		f, n, err := frame.Decode(buf)
		switch {
		case err != nil:
			return peer, nil, err
		case n > 0 && f.Kind != frame.Hello:
			return peer, nil, fmt.Errorf("%w: a connection that begins with %v", ErrProtocol, f.Kind)
		case n > 0:
			peer, err = frame.ParseHello(f.Payload)
			if err == nil {
				err = nc.SetDeadline(time.Time{})
			}
			return peer, buf[n:], err
		case len(buf) == cap(buf):
			return peer, nil, fmt.Errorf("%w: a HELLO of more than %d bytes", ErrProtocol, cap(buf))
		}
		m, err := nc.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+m]
		if err != nil && m == 0 {
			return peer, nil, err
		}
	}
}
