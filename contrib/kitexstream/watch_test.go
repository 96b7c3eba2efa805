package kitexstream_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bytedance/gopkg/cloud/metainfo"
	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/metadata"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/server"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/whence-dev/whence/contrib/kitexstream"
	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// readAll reads a stream to its end, and returns its error.
func readAll(ctx context.Context, st watch, err error) error {
	for err == nil {
		_, err = st.recv(ctx)
	}
	return err
}

// TestTheSpansOfTheApplicationAreUnaffected: a sampler that follows the parent sees no parent of
// the suite, in the handler or in the headers, although the suite exports nothing.
func TestTheSpansOfTheApplicationAreUnaffected(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			spans := tracetest.NewInMemoryExporter()
			provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())), sdktrace.WithSyncer(spans))
			headers := make(chan string, 1)
			at, caller := newHop(t, "leaf", nil), newHop(t, "root", nil)
			addr, _ := b.serveAt(t, at, func(ctx context.Context, send func(int64) error) error {
				_, span := provider.Tracer("application").Start(ctx, "work")
				defer span.End()
				md, _ := metadata.FromIncomingContext(ctx)
				transient, _ := metainfo.GetValue(ctx, "traceparent")
				headers <- strings.Join(md.Get("traceparent"), "") + transient
				return send(1)
			})
			st, err := b.dial(t, addr, client.WithSuite(kitexstream.Client(caller.Monitor)))(t.Context())
			if err := readAll(t.Context(), st, err); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			at.ended(t)
			if got := spans.GetSpans(); len(got) != 1 || got[0].Parent.IsValid() {
				t.Errorf("the application's spans are %v", got)
			}
			if got := <-headers; got != "" {
				t.Errorf("the suite sent the traceparent %s", got)
			}
		})
	}
}

// TestACallAbandonedByItsHandler: the caller of the handler got its whole answer.
func TestACallAbandonedByItsHandler(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			leaf, middle := newHop(t, "leaf", nil), newHop(t, "middle", func(c *telemetry.Config) { c.Ratio = 1 })
			leafAt, _ := b.serveAt(t, leaf, func(ctx context.Context, send func(int64) error) error {
				if err := send(1); err != nil {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			})
			below := b.dial(t, leafAt, named("middle"), client.WithSuite(kitexstream.Client(middle.Monitor)))
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
			st, err := b.dial(t, middleAt)(t.Context())
			if err := readAll(t.Context(), st, err); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			call := <-left
			spans := middle.ended(t)
			_, _ = call.recv(t.Context()) // Kitex resets the call when the call is read, or after seconds
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
			root, middle := newHop(t, "root", nil), newHop(t, "middle", func(c *telemetry.Config) { c.Ratio = 1 })
			below := b.dial(t, leafAt)
			middleAt, _ := b.serveAt(t, middle, func(ctx context.Context, send func(int64) error) error {
				if value, _ := metainfo.GetValue(ctx, "application"); value != "stays" && b.system == telemetry.TTStream { // gRPC carries no metainfo by default
					t.Errorf("the application's metainfo is %q", value)
				}
				st, err := below(ctx)
				if err = readAll(ctx, st, err); !errors.Is(err, io.EOF) {
					return err
				}
				return send(1)
			})
			ctx := metainfo.WithValue(t.Context(), "application", "stays")
			st, err := b.dial(t, middleAt, client.WithSuite(kitexstream.Client(root.Monitor)))(ctx)
			if err := readAll(ctx, st, err); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			for _, key := range <-headers {
				if strings.Contains(key, "whence") {
					t.Errorf("the header %s has reached the leaf", key)
				}
			}
			if got := attr(only(t, middle.ended(t), "server"), "whence.peer"); got != "root" {
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
		for _, b := range bindings {
			t.Run(name+" over "+b.system, func(t *testing.T) {
				told := make(chan string, 1)
				addr, _ := b.servePlain(t, func(ctx context.Context, send func(int64) error) error {
					err := send(1)
					<-ctx.Done()
					told <- ctx.Err().Error()
					return err
				})
				end := func(options ...client.Option) (local, remote string) {
					ctx, cancel := cancel(t.Context())
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
				watched, sent := end(client.WithSuite(kitexstream.Client(caller.Monitor)))
				if watched != local || sent != remote {
					t.Errorf("with the suite the caller got %q and the callee %q; without it %q and %q", watched, sent, local, remote)
				}
				forwarding := newHop(t, "root", nil)
				_, sent = end(client.WithSuite(kitexstream.Client(forwarding.Monitor, kitexstream.ForwardCauses())))
				if typed := strings.Contains(sent, "enough"); strings.Contains(sent, secret.Error()) || typed != (b.system == telemetry.TTStream && strings.Contains(name, " typed")) {
					t.Errorf("a client that forwards causes sent %q", sent)
				}
				if span := only(t, caller.ended(t), "client"); attr(span, "whence.path") != "root" {
					t.Errorf("the path is %s", attr(span, "whence.path"))
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

// TestACallerThatLeavesBeforeItReadsTheEnd: the trailer of a server without a suite does not say
// whether the call failed.
func TestACallerThatLeavesBeforeItReadsTheEnd(t *testing.T) {
	failed := streamerr.New(streamerr.Overloaded, "the feed is full")
	for _, b := range bindings {
		for _, plain := range []bool{true, false} {
			name, reason, path := b.system+" with a suite", streamerr.Overloaded, "leaf > root"
			if plain {
				name, reason, path = b.system+" without a suite", streamerr.PeerReset, "root"
			}
			t.Run(name, func(t *testing.T) {
				h := func(_ context.Context, send func(int64) error) error { return errors.Join(send(1), failed) }
				at, caller := newHop(t, "leaf", nil), newHop(t, "root", nil)
				options := []server.Option{server.WithSuite(kitexstream.Server(at.Monitor))}
				if plain {
					options = nil
				}
				addr, _ := b.servePlain(t, h, options...)
				finished := make(chan struct{}, 1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				st, err := b.dial(t, addr, client.WithSuite(kitexstream.Client(caller.Monitor)), client.WithStreamOptions(
					client.WithStreamEventHandler(rpcinfo.ClientStreamEventHandler{
						HandleStreamFinishEvent: func(context.Context, rpcinfo.RPCInfo, rpcinfo.StreamFinishEvent) { finished <- struct{}{} },
					})))(ctx)
				if err == nil {
					_, err = st.recv(ctx)
				}
				if err != nil {
					t.Fatal(err)
				}
				<-finished
				cancel()
				span := only(t, caller.ended(t), "client")
				check(t, "root", span, reason, path)
				if got := kinds(span); slices.Contains(got, "send_rst") && !plain {
					t.Errorf("the root has the events %v", got)
				}
			})
		}
	}
}
