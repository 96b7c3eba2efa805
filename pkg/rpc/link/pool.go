package link

import (
	"context"
	"crypto/tls"
	"net"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/rpc/link/hello"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
)

// dial opens a network connection to target.
func (cc *ClientConn) dial(ctx context.Context) (net.Conn, error) {
	dial := cc.opts.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	nc, err := dial(ctx, "tcp", cc.target)
	if err != nil || cc.opts.TLS == nil {
		return nc, err
	}
	config := cc.opts.TLS
	if config.ServerName == "" && !config.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(cc.target)
		if err != nil {
			_ = nc.Close()
			return nil, err
		}
		config = config.Clone()
		config.ServerName = host
	}
	tc := tls.Client(nc, config)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return tc, nil
}

// connected returns the connection for the next stream. If there is none, connected waits for one.
func (cc *ClientConn) connected(ctx context.Context) (*mux.Conn, error) {
	for {
		c, dialing, err := cc.choose(true)
		if c != nil || err != nil {
			return c, err
		}
		select {
		case <-dialing:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		if err := cc.lastError(); err != nil {
			return nil, status.Errorf(codes.Unavailable, "no connection: %v", err)
		}
	}
}

// lastError returns the error of the last attempt to open a connection.
func (cc *ClientConn) lastError() error {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	if cc.closed { // Close has canceled the attempt
		return nil
	}
	return cc.failed
}

// choose returns the connection with the fewest streams, or nil if there is no connection. If each
// connection has streamsPerLink streams, or if there is none and wanted is true, choose begins to
// open another connection; dialing is closed when that has succeeded or failed.
func (cc *ClientConn) choose(wanted bool) (best *mux.Conn, dialing <-chan struct{}, err error) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	if cc.closed {
		return nil, nil, status.Error(codes.Canceled, mux.ErrClosed.Error())
	}
	least := 0
	for _, c := range cc.conns {
		if n, open := c.Load(); open && (best == nil || n < least) {
			best, least = c, n
		}
	}
	if cc.dialing == nil && (best == nil && wanted || best != nil && least >= streamsPerLink && len(cc.conns) < cc.opts.Links) {
		cc.connect()
	}
	return best, cc.dialing, nil
}

// connect begins to open a connection. The caller holds mu.
func (cc *ClientConn) connect() {
	over := make(chan struct{})
	cc.dialing = over
	cc.owned.Go(func() {
		c, buffered, err := cc.make()
		cc.mu.Lock()
		defer close(over)
		defer cc.mu.Unlock()
		cc.dialing, cc.failed = nil, err
		if err != nil {
			return
		}
		if cc.closed {
			c.Fail(mux.ErrClosed)
			return
		}
		cc.conns = append(cc.conns, c)
		c.OnIdle(func() { c.Fail(mux.ErrClosed) })
		c.Start(buffered)
		cc.owned.Go(func() {
			<-c.Done()
			cc.mu.Lock()
			cc.conns = slices.DeleteFunc(cc.conns, func(other *mux.Conn) bool { return other == c })
			if len(cc.conns) == 0 && !cc.closed {
				select {
				case cc.gone <- struct{}{}:
				default:
				}
			}
			cc.mu.Unlock()
			c.Close(mux.ErrClosed)
		})
	})
}

// make opens a connection. Close cancels it.
func (cc *ClientConn) make() (*mux.Conn, []byte, error) {
	ctx, cancel := context.WithTimeout(cc.alive, dialTimeout)
	defer cancel()
	nc, err := cc.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	peer, buffered, err := hello.Exchange(ctx, nc, cc.opts.Mux.Greeting())
	if err != nil {
		_ = nc.Close()
		return nil, nil, err
	}
	if cc.expects != "" && peer.Identity != cc.expects {
		_ = nc.Close()
		return nil, nil, errStranger(peer.Identity, cc.expects)
	}
	return mux.New(nc, peer, nil, cc.opts.Mux), buffered, nil
}
