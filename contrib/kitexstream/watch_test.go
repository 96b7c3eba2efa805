package kitexstream_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/bytedance/gopkg/cloud/metainfo"
	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/metadata"

	"github.com/whence-dev/whence/contrib/kitexstream"
	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// readAll reads a stream to its end, and returns its error.
func readAll(ctx context.Context, st watch, err error) error {
	for err == nil {
		_, err = st.recv(ctx)
	}
	return err
}

// TestACallAbandonedByItsHandler: the caller of the handler got its whole answer.
func TestACallAbandonedByItsHandler(t *testing.T) {
	for _, b := range canceling() {
		t.Run(b.system, func(t *testing.T) {
			leaf, middle := newHop(t, "leaf", nil), newHop(t, "middle", func(c *monitor.Config) { c.Ratio = 1 })
			leafAt, _ := b.serveAt(t, leaf, func(ctx context.Context, send func(int64) error) error {
				if err := send(1); err != nil {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			})
			below := b.dial(t, leafAt, named("middle"), watching(middle))
			left := make(chan watch, 1)
			middleAt, _ := b.serveAt(t, middle, func(ctx context.Context, send func(int64) error) error {
				ctx, cancel := context.WithTimeout(ctx, time.Hour)
				_ = cancel // the end of the handler's context ends ctx
				st, err := below(ctx)
				if err == nil {
					_, err = st.recv(ctx)
				}
				left <- st
				return errors.Join(err, send(1))
			})
			st, err := b.dial(t, middleAt)(kitextest.Context(t))
			if err := readAll(kitextest.Context(t), st, err); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			call := <-left
			spans := middle.ended(t)
			_, _ = call.recv(kitextest.Context(t)) // Kitex resets the call when the call is read, or after seconds
			check(t, "middle", only(t, spans, "server"), streamerr.Completed, "middle")
			check(t, "middle's call", only(t, spans, "client"), streamerr.PeerReset, "middle")
			check(t, "leaf", only(t, leaf.ended(t), "server"), streamerr.PeerReset, "middle > leaf")
		})
	}
}

// TestTheHeadersOfTheSuiteAreForTheNextHop: a handler calls with a client without a suite.
func TestTheHeadersOfTheSuiteAreForTheNextHop(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			headers := make(chan []string, 1)
			leafAt, _ := b.servePlain(t, func(ctx context.Context, send func(int64) error) error {
				md, _ := metadata.FromIncomingContext(ctx)
				var got []string
				for key := range md {
					got = append(got, key)
				}
				for key := range metainfo.GetAllValues(ctx) {
					got = append(got, key)
				}
				for key := range metainfo.GetAllPersistentValues(ctx) {
					got = append(got, key)
				}
				headers <- got
				return send(1)
			})
			root, middle := newHop(t, "root", nil), newHop(t, "middle", func(c *monitor.Config) { c.Ratio = 1 })
			below := b.dial(t, leafAt)
			middleAt, _ := b.serveAt(t, middle, func(ctx context.Context, send func(int64) error) error {
				if value, _ := metainfo.GetValue(ctx, "application"); value != "stays" && b.system == monitor.TTStream { // gRPC carries no metainfo by default
					t.Errorf("the application's metainfo is %q", value)
				}
				st, err := below(ctx)
				if err = readAll(ctx, st, err); !errors.Is(err, io.EOF) {
					return err
				}
				return send(1)
			})
			ctx := metainfo.WithValue(kitextest.Context(t), "application", "stays")
			st, err := b.dial(t, middleAt, watching(root))(ctx)
			if err := readAll(ctx, st, err); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			for _, key := range <-headers {
				if strings.Contains(key, "whence") {
					t.Errorf("the header %s has reached the leaf", key)
				}
			}
			if got := only(t, middle.ended(t), "server").Peer; got != "root" {
				t.Errorf("the middle's caller is %s", got)
			}
		})
	}
}

// TestErrorsOfCanceledCallsAreKitexsOwn compares the errors of clients with and without the suite.
func TestErrorsOfCanceledCallsAreKitexsOwn(t *testing.T) {
	secret := errors.New("the password is 1234")
	for name, cancel := range map[string]func(context.Context) (context.Context, func()){
		"canceled": func(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) },
		"canceled with an untyped cause": func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(secret) }
		},
		"canceled with a typed cause": func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(streamerr.New(streamerr.UserStop, "enough")) }
		},
		"timed out": func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancel(ctx)
			return timedOut{ctx}, cancel
		},
	} {
		for _, b := range canceling() {
			t.Run(name+" over "+b.system, func(t *testing.T) {
				told := make(chan string, 1)
				addr, _ := b.servePlain(t, func(ctx context.Context, send func(int64) error) error {
					err := send(1)
					<-ctx.Done()
					told <- ctx.Err().Error()
					return err
				})
				end := func(options ...client.Option) (local, remote string) {
					ctx, cancel := cancel(kitextest.Context(t))
					st, err := b.dial(t, addr, append(options, named("root"))...)(ctx)
					if err == nil {
						_, err = st.recv(ctx)
					}
					if err != nil {
						t.Fatal(err)
					}
					cancel()
					return readAll(ctx, st, nil).Error(), <-told
				}
				local, remote := end()
				caller := newHop(t, "root", nil)
				watched, sent := end(watching(caller))
				if watched != local || sent != remote {
					t.Errorf("with the suite the caller got %q and the callee %q; without it %q and %q", watched, sent, local, remote)
				}
				forwarding := newHop(t, "root", nil)
				_, sent = end(watching(forwarding, kitexstream.ForwardCauses()))
				if typed := strings.Contains(sent, "enough"); strings.Contains(sent, secret.Error()) || typed != (b.system == monitor.TTStream && strings.Contains(name, " typed")) {
					t.Errorf("a client that forwards causes sent %q", sent)
				}
				if span := only(t, caller.ended(t), "client"); span.Path.String() != "root" {
					t.Errorf("the path is %s", span.Path.String())
				}
			})
		}
	}
}

// timedOut is a context that ends with a passed deadline when it is canceled. Kitex compares the
// error alone.
type timedOut struct {
	context.Context //nolint:containedctx // it is a context
}

// Err implements context.Context.
func (c timedOut) Err() error {
	if c.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

// TestTheGuideOnCancelsAtServers: docs/explanation/streaming-guide.md says what a handler of a plain
// server sees over gRPC.
func TestTheGuideOnCancelsAtServers(t *testing.T) {
	seen := make(chan string, 1)
	addr, _ := bindings[0].servePlain(t, func(ctx context.Context, send func(int64) error) error {
		err := send(1)
		<-ctx.Done()
		seen <- errors.Join(ctx.Err(), context.Cause(ctx)).Error()
		return err
	})
	ctx, cancel := context.WithCancel(kitextest.Context(t))
	defer cancel()
	st, err := bindings[0].dial(t, addr)(ctx)
	if err == nil {
		_, err = st.recv(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, _ = st.recv(ctx)
	if got := <-seen; !strings.Contains(got, "RSTStream Frame received with error code: CANCEL") || !strings.HasSuffix(got, "\ncontext canceled") {
		t.Errorf("the handler sees %q", got)
	}
}
