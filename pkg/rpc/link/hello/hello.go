// Package hello exchanges the first frames of a link, in which each end says what it accepts.
package hello

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/rpc/link/inbox"
)

// Timeout bounds the exchange of HELLOs.
const Timeout = 5 * time.Second

// Exchange sends own as the HELLO of a new connection. It returns the peer's HELLO, and the bytes
// read after it.
func Exchange(ctx context.Context, nc net.Conn, own frame.Greeting) (peer frame.Greeting, buffered []byte, err error) {
	until := time.Now().Add(Timeout)
	if at, ok := ctx.Deadline(); ok && at.Before(until) {
		until = at
	}
	if err := nc.SetDeadline(until); err != nil {
		return peer, nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	if _, err := nc.Write(frame.AppendHello(nil, own)); err != nil {
		return peer, nil, err
	}
	buf := make([]byte, 0, 4<<10)
	for {
		f, n, err := frame.Decode(buf)
		switch {
		case err != nil:
			return peer, nil, err
		case n > 0 && f.Kind != frame.Hello:
			return peer, nil, fmt.Errorf("%w: a connection that begins with %v", inbox.ErrProtocol, f.Kind)
		case n > 0:
			peer, err = frame.ParseHello(f.Payload)
			if err == nil {
				err = nc.SetDeadline(time.Time{})
			}
			return peer, buf[n:], err
		case len(buf) == cap(buf):
			return peer, nil, fmt.Errorf("%w: a HELLO of more than %d bytes", inbox.ErrProtocol, cap(buf))
		}
		m, err := nc.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+m]
		if err != nil && m == 0 {
			return peer, nil, err
		}
	}
}
