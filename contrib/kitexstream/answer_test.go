package kitexstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc"
	"github.com/cloudwego/kitex/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/whence-dev/whence/contrib/kitexstream"
	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc/kitexerr"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// endings returns the lines of the metric of endings from a scrape of the hop.
func (h hop) endings(t *testing.T) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := h.Register(registry); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "stream_endings_total{") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// TestABizStatusErrorIsTheApplicationsOwnAnswer: both hops on its way count it under its own
// reason.
func TestABizStatusErrorIsTheApplicationsOwnAnswer(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			all := func(c *telemetry.Config) { c.Ratio = 1 }
			leaf, middle := newHop(t, "leaf", all), newHop(t, "middle", all)
			leafAt, _ := b.serveAt(t, leaf, func(context.Context, func(int64) error) error {
				return kerrors.NewGRPCBizStatusError(404, "no such symbol")
			})
			below := b.dial(t, leafAt, client.WithSuite(kitexstream.Client(middle.Monitor)))
			middleAt, _ := b.serveAt(t, middle, func(ctx context.Context, _ func(int64) error) error {
				st, err := below(ctx)
				return readAll(ctx, st, err)
			})
			st, err := b.dial(t, middleAt)(t.Context())
			err = readAll(t.Context(), st, err)
			if biz, ok := kerrors.FromBizStatusError(err); !ok || biz.BizStatusCode() != 404 || biz.BizMessage() != "no such symbol" {
				t.Errorf("the caller got %v", err)
			}
			for side, want := range map[string]struct {
				hop
				kind, path, origin string
			}{
				"leaf":          {leaf, "server", "leaf", "self"},
				"middle's call": {middle, "client", "leaf > middle", "peer"},
				"middle":        {middle, "server", "leaf > middle", "peer"},
			} {
				span := only(t, want.ended(t), want.kind)
				check(t, side, span, streamerr.Completed, want.path)
				if got := attr(span, "whence.biz_status"); got != "404" {
					t.Errorf("%s: the span has the status %q", side, got)
				}
				lines := strings.Join(want.endings(t), "\n")
				if !strings.Contains(lines, fmt.Sprintf(`origin=%q,reason="biz_status",side=%q`, want.origin, want.kind)) || strings.Contains(lines, "internal") {
					t.Errorf("%s: the endings are %s", side, lines)
				}
			}
		})
	}
}

// TestAStatusOfAWhenceServiceIsAnEnding: Whence's Kitex servers send their endings as
// BizStatusErrors.
func TestAStatusOfAWhenceServiceIsAnEnding(t *testing.T) {
	caller := newHop(t, "root", nil)
	addr, _ := bindings[0].servePlain(t, func(context.Context, func(int64) error) error {
		return kitexerr.ToKitex(&streamerr.Error{Reason: streamerr.Overloaded, Path: streamerr.NewPath("worker", "chat"), Message: "the queue is full"})
	})
	st, err := bindings[0].dial(t, addr, client.WithSuite(kitexstream.Client(caller.Monitor)))(t.Context())
	_ = readAll(t.Context(), st, err)
	check(t, "root", only(t, caller.ended(t), "client"), streamerr.Overloaded, "worker > chat > root")
}

// TestAShutdownIsTheServersEnding: a server stops while a handler runs. Over TTHeader Streaming
// Kitex lets the handler continue.
func TestAShutdownIsTheServersEnding(t *testing.T) {
	for _, b := range bindings[:2] {
		t.Run(b.system, func(t *testing.T) {
			at, caller := newHop(t, "leaf", nil), newHop(t, "root", nil)
			addr, stop := b.serveAt(t, at, func(ctx context.Context, send func(int64) error) error {
				err := send(1)
				<-ctx.Done()
				return errors.Join(err, ctx.Err())
			})
			st, err := b.dial(t, addr, client.WithSuite(kitexstream.Client(caller.Monitor)))(t.Context())
			if err == nil {
				_, err = st.recv(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			stop()
			if err := readAll(t.Context(), st, nil); errors.Is(err, io.EOF) {
				t.Error("the stream completed")
			}
			check(t, "leaf", only(t, at.ended(t), "server"), streamerr.Draining, "leaf")
			check(t, "root", only(t, caller.ended(t), "client"), streamerr.Draining, "next > root")
		})
	}
}

// TestAConnectionPastItsMaximumAgeIsTheServersEnding: the server's keepalive options bound the age
// of a connection. On a busy machine a connection can reach its maximum age before its stream
// reaches the handler; then the test tries again with a higher age.
func TestAConnectionPastItsMaximumAgeIsTheServersEnding(t *testing.T) {
	for age := 250 * time.Millisecond; age < time.Minute; age *= 4 {
		at, caller := newHop(t, "leaf", nil), newHop(t, "root", nil)
		var handled atomic.Bool
		addr, _ := bindings[0].serveAt(t, at, func(ctx context.Context, _ func(int64) error) error {
			handled.Store(ctx.Err() == nil)
			<-ctx.Done()
			return ctx.Err()
		}, server.WithGRPCKeepaliveParams(grpc.ServerKeepalive{MaxConnectionAge: age, MaxConnectionAgeGrace: age}))
		st, err := bindings[0].dial(t, addr, client.WithSuite(kitexstream.Client(caller.Monitor)))(t.Context())
		_ = readAll(t.Context(), st, err)
		if !handled.Load() {
			t.Logf("after %v the stream has not reached the handler", age)
			continue
		}
		check(t, "leaf", only(t, at.ended(t), "server"), streamerr.Draining, "leaf")
		check(t, "root", only(t, caller.ended(t), "client"), streamerr.PeerLost, "next > root")
		return
	}
	t.Error("no stream reached its handler")
}

// TestCallersWithoutASuite: the server names such a caller "client".
func TestCallersWithoutASuite(t *testing.T) {
	for _, b := range bindings {
		for name, test := range map[string]struct {
			end    func(cut, cancel func())
			reason streamerr.Reason
			path   string
		}{
			"reads to the end": {func(func(), func()) {}, streamerr.Completed, "leaf"},
			"cancels":          {func(_, cancel func()) { cancel() }, streamerr.PeerReset, "client > leaf"},
			"vanishes":         {func(cut, _ func()) { cut() }, streamerr.PeerLost, "client > leaf"},
		} {
			t.Run(b.system+" "+name, func(t *testing.T) {
				at := newHop(t, "leaf", func(c *telemetry.Config) { c.Ratio = 1 })
				completes := test.reason == streamerr.Completed
				addr, _ := b.serveAt(t, at, func(ctx context.Context, send func(int64) error) error {
					if err := send(1); err != nil || completes {
						return err
					}
					<-ctx.Done()
					return ctx.Err()
				})
				proxy := newProxy(t)
				proxy.to(addr)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				st, err := b.dial(t, proxy.addr())(ctx)
				if err == nil {
					_, err = st.recv(ctx)
				}
				if err != nil {
					t.Fatal(err)
				}
				test.end(proxy.cut, cancel)
				_ = readAll(ctx, st, nil)
				check(t, "leaf", only(t, at.ended(t), "server"), test.reason, test.path)
			})
		}
	}
}
