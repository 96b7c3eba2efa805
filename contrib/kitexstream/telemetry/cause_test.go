package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// handle begins the stream of a handler whose caller leaves when leave is called.
func handle(t *testing.T) (s *telemetry.Stream, ctx context.Context, leave func()) {
	t.Helper()
	base, leave := context.WithCancel(t.Context())
	s = telemetry.New(telemetry.Config{Name: "exchange"}).Begin(base, telemetry.Call{Method: served, Peer: "shop", Stopped: func() *streamerr.Error {
		if base.Err() == nil {
			return nil
		}
		return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("user", "shop")}
	}})
	return s, telemetry.With(base, s), leave
}

func TestTheCauseOfACallOfAHandler(t *testing.T) {
	mine := streamerr.New(streamerr.UserStop, "enough")
	for name, test := range map[string]struct {
		derive func(context.Context) (context.Context, func())
		end    func(s *telemetry.Stream, leave, cancel func())
		want   string
	}{
		"the caller left": {
			cancelable, func(_ *telemetry.Stream, leave, _ func()) { leave() }, "client_gone [user > shop > exchange]",
		},
		"the handler returned": {
			cancelable, func(s *telemetry.Stream, leave, _ func()) { s.End(telemetry.Completed()); leave() }, "peer_reset []",
		},
		"the handler canceled the call": {
			cancelable, func(_ *telemetry.Stream, _, cancel func()) { cancel() }, "peer_reset []",
		},
		"the handler canceled the call with a cause, and then its caller left": {
			func(ctx context.Context) (context.Context, func()) {
				ctx, cancel := context.WithCancelCause(ctx)
				return ctx, func() { cancel(mine) }
			},
			func(_ *telemetry.Stream, leave, cancel func()) { cancel(); leave() }, "user_stop []",
		},
		"the caller left, and then the handler canceled a detached call": {
			func(ctx context.Context) (context.Context, func()) { return cancelable(context.WithoutCancel(ctx)) },
			func(_ *telemetry.Stream, leave, cancel func()) { leave(); synctest.Wait(); cancel() }, "peer_reset []",
		},
		"the caller left, and then a detached call timed out": {
			func(ctx context.Context) (context.Context, func()) {
				return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			},
			func(_ *telemetry.Stream, leave, _ func()) { leave(); time.Sleep(time.Hour) }, "deadline []",
		},
		"the handler returned, and then a detached call timed out": {
			func(ctx context.Context) (context.Context, func()) {
				return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			},
			func(s *telemetry.Stream, leave, _ func()) {
				s.End(telemetry.Completed())
				leave()
				time.Sleep(time.Hour)
			}, "deadline []",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ctx, leave := handle(t)
				defer leave()
				ctx, cancel := test.derive(ctx)
				defer cancel()
				ctx, release := telemetry.Link(ctx)
				defer release()
				test.end(s, leave, cancel)
				if e := telemetry.Cause(ctx); e == nil || fmt.Sprintf("%s [%s]", e.Reason.String(), e.Path) != test.want {
					t.Errorf("the cause is %v, not %s", e, test.want)
				}
			})
		})
	}
}

func cancelable(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) }

// TestTextsOfErrorsAreOptIn: an error may quote a request.
func TestTextsOfErrorsAreOptIn(t *testing.T) {
	for _, on := range []bool{false, true} {
		var log bytes.Buffer
		spans := tracetest.NewInMemoryExporter()
		r := telemetry.New(telemetry.Config{
			Name: "exchange", ErrorTexts: on, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Exporters: []sdktrace.SpanExporter{retainingExporter{spans}},
		})
		r.Begin(t.Context(), telemetry.Call{Method: served}).End(&streamerr.Error{Reason: streamerr.Internal, Cause: errors.New("secret")})
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "secret"); got != on || !strings.Contains(log.String(), "ending.reason=internal ending.origin=exchange ending.path=exchange") {
			t.Errorf("ErrorTexts is %v, and the log says %s", on, log.String())
		}
		if got := spans.GetSpans(); len(got) != 1 || (got[0].Status.Description == "secret") != on {
			t.Errorf("ErrorTexts is %v, and the spans are %v", on, got)
		}
	}
}

// A retainingExporter retains its spans when the monitor closes.
type retainingExporter struct{ *tracetest.InMemoryExporter }

// Shutdown implements the SDK's SpanExporter.
func (retainingExporter) Shutdown(context.Context) error { return nil }

// TestADiscardedStreamIsNotCounted: Close does not wait for it either.
func TestADiscardedStreamIsNotCounted(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	r := telemetry.New(telemetry.Config{Name: "exchange", Ratio: 1, Exporters: []sdktrace.SpanExporter{retainingExporter{spans}}})
	registry := prometheus.NewPedanticRegistry()
	if err := r.Register(registry); err != nil {
		t.Fatal(err)
	}
	s := r.Begin(t.Context(), telemetry.Call{Method: served})
	s.Sent(5)
	s.Discard()
	s.Discard()
	s.End(telemetry.Completed())
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := scrape(registry); strings.Contains(got, "stream_endings_total{") || !strings.Contains(got, `side="server",system="grpc"} 0`) || len(spans.GetSpans()) != 0 {
		t.Errorf("a discarded stream is counted: %s", got)
	}
}

// TestSeriesAreCreatedOnce: streams of many new methods begin at the same time, while a scrape
// runs.
func TestSeriesAreCreatedOnce(t *testing.T) {
	const goroutines, methods, each = 8, 220, 2
	r := telemetry.New(telemetry.Config{Name: "exchange"})
	registry := prometheus.NewPedanticRegistry()
	if err := r.Register(registry); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for n := range methods {
				m := served
				m.Name = fmt.Sprint("method ", (n+g)%methods)
				for range each {
					s := r.Begin(t.Context(), telemetry.Call{Method: m})
					s.Sent(1)
					s.End(telemetry.Completed())
				}
			}
			if _, err := r.Produce(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	series, total := 0, 0
	for line := range strings.Lines(scrape(registry)) {
		var n int
		if at := strings.LastIndexByte(line, ' '); strings.HasPrefix(line, "stream_endings_total{") {
			series++
			if _, err := fmt.Sscan(line[at+1:], &n); err != nil {
				t.Fatal(err)
			}
			total += n
		}
	}
	if series != 201 || total != goroutines*methods*each {
		t.Errorf("%d series have %d streams, not 201 and %d", series, total, goroutines*methods*each)
	}
}
