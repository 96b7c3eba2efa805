package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// A Conn is a gRPC connection that can be closed.
type Conn interface {
	grpc.ClientConnInterface
	io.Closer
}

// An UpgradedConn is a gRPC connection whose bidi streams use links while the callee serves links.
// All other calls, and all streams while there is no link, use gRPC.
//
// A stream keeps its transport to its end. If it is not known yet whether the callee serves links,
// NewStream therefore asks the callee, and waits a moment for the link.
type UpgradedConn struct {
	Conn
	host string
	opts Options
	log  *slog.Logger
	over atomic.Pointer[ClientConn] // nil if there is no link

	failed bool          // the last attempt to make a link failed; owned by follow
	wanted chan struct{} // capacity 1: a stream waits for an attempt

	mu       sync.Mutex
	answered bool          // the callee has answered since the last loss of a link: streams need not wait
	tried    chan struct{} // closed when the next attempt is over

	stop  context.CancelFunc
	owned sync.WaitGroup
}

// askEvery is the interval at which a callee without links is asked for the port of its links.
const askEvery = time.Second

// patience bounds the time for which NewStream waits for a link.
const patience = 100 * time.Millisecond

// askTimeout bounds the request for the port of links.
const askTimeout = time.Second

// Upgrade returns cc, a connection to target, a host:port, with links if the callee serves links.
// Until Close, it asks a callee without links repeatedly. It logs when streams begin to use links,
// when streams use gRPC again, and when a link cannot be made.
func Upgrade(cc Conn, target string, o Options, log *slog.Logger) *UpgradedConn {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		host = target
	}
	ctx, stop := context.WithCancel(context.Background())
	u := &UpgradedConn{
		Conn: cc, host: host, opts: o, log: log.With("target", target), stop: stop,
		wanted: make(chan struct{}, 1), tried: make(chan struct{}),
	}
	u.owned.Go(func() { u.follow(ctx) })
	return u
}

// Close closes the links and the gRPC connection.
func (u *UpgradedConn) Close() error {
	u.stop()
	u.owned.Wait()
	return u.Conn.Close()
}

// NewStream implements grpc.ClientConnInterface.
func (u *UpgradedConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if desc.ClientStreams && desc.ServerStreams {
		u.await(ctx, patience)
		if cc := u.over.Load(); cc != nil {
			if c, _, _ := cc.choose(false); c != nil {
				if st, ok, err := cc.begin(ctx, c, method); ok {
					u.opened(true)
					return st, err
				}
			}
		}
		u.opened(false)
	}
	return u.Conn.NewStream(ctx, desc, method, opts...)
}

func (u *UpgradedConn) opened(linked bool) {
	if u.opts.Opened != nil {
		u.opts.Opened(linked)
	}
}

// Await waits until it is known whether the streams of cc, a connection that answers, use links: for a
// second at most, and not after ctx is done. A hop that is ready only after that opens its first
// streams over links, however busy they make it. Await does nothing if cc is not an UpgradedConn.
func Await(ctx context.Context, cc any) {
	if u, ok := cc.(*UpgradedConn); ok {
		u.await(ctx, askTimeout)
	}
}

// await waits for the end of an attempt to make a link, unless the callee has answered.
func (u *UpgradedConn) await(ctx context.Context, atMost time.Duration) {
	u.mu.Lock()
	answered, tried := u.answered, u.tried
	u.mu.Unlock()
	if answered {
		return
	}
	select {
	case u.wanted <- struct{}{}:
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case <-tried:
	case <-ctx.Done():
	}
}

// settle ends the wait of all streams for an attempt.
func (u *UpgradedConn) settle(answered bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answered = answered
	close(u.tried)
	u.tried = make(chan struct{})
}

// unsettle makes the next stream ask the callee again.
func (u *UpgradedConn) unsettle() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answered = false
}

// follow makes links to the callee, and makes new links when they are lost, until ctx is done.
func (u *UpgradedConn) follow(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		cc, answered := u.link(ctx)
		if cc != nil {
			u.failed = false
			u.over.Store(cc)
		}
		u.settle(answered)
		if cc != nil {
			u.log.Info("streams go over links")
			u.hold(ctx, cc)
			u.over.Store(nil)
			u.unsettle()
			if ctx.Err() == nil {
				u.log.Info("streams go over grpc: the links are lost")
			}
			u.owned.Go(func() { _ = cc.Close() }) // Close may wait for readers that wait for slow clients
		}
		select {
		case <-ctx.Done():
			return
		case <-u.wanted:
		case <-tick.C:
		}
	}
}

// hold returns when cc has no connection left, or when ctx is done.
func (u *UpgradedConn) hold(ctx context.Context, cc *ClientConn) {
	for {
		select {
		case <-cc.gone:
		case <-ctx.Done():
			return
		}
		if c, _, _ := cc.choose(false); c == nil {
			return
		}
	}
}

// link asks the callee for the port of its links, and makes the first link. It returns nil if it
// made no link, and whether the callee has answered. It logs only the first of consecutive failures.
func (u *UpgradedConn) link(ctx context.Context) (cc *ClientConn, answered bool) {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	where, err := streamv1.NewLinksClient(u.Conn).Where(asking, &streamv1.WhereRequest{})
	if err != nil || where.GetPort() == 0 {
		return nil, !unreached(err)
	}
	if where.GetIdentity() == "" { // then the port may belong to another process
		u.fail(ctx, errNameless)
		return nil, true
	}
	cc = NewClient(net.JoinHostPort(u.host, strconv.FormatUint(uint64(where.GetPort()), 10)), u.opts)
	cc.expects = where.GetIdentity()
	if _, err := cc.connected(asking); err != nil {
		u.fail(ctx, err)
		_ = cc.Close()
		return nil, true
	}
	return cc, true
}

// unreached reports whether a call has failed before the callee answered.
func unreached(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled
}

// fail logs that a link could not be made, unless the previous attempt failed, too.
func (u *UpgradedConn) fail(ctx context.Context, err error) {
	if !u.failed && ctx.Err() == nil {
		u.failed = true
		u.log.Warn("a link could not be made; streams go over grpc", "err", err)
	}
}

// errNameless is the error for a callee that names a port of links without its identity.
var errNameless = errors.New("link: the callee names a port without an identity")

// errStranger is the error for a link to another process than the process that named the port.
func errStranger(got, want string) error {
	return fmt.Errorf("link: the process behind the port is %q, not %q", got, want)
}

// newIdentity returns a random identity for this process.
func newIdentity() string { return rand.Text() }
