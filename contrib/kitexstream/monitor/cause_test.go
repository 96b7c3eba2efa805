package monitor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// handle begins the stream of a handler whose caller leaves when leave is called.
func handle(t *testing.T) (s *monitor.Stream, ctx context.Context, leave func()) {
	t.Helper()
	base, leave := context.WithCancel(kitextest.Context(t))
	s = monitor.New(monitor.Config{Name: "exchange"}).Begin(base, monitor.Call{Method: served, Peer: "shop", Stopped: func() *streamerr.Error {
		if base.Err() == nil {
			return nil
		}
		return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("user", "shop")}
	}})
	return s, monitor.With(base, s), leave
}

func TestTheCauseOfACallOfAHandler(t *testing.T) {
	mine := streamerr.New(streamerr.UserStop, "enough")
	for name, test := range map[string]struct {
		derive func(context.Context) (context.Context, func())
		end    func(s *monitor.Stream, leave, cancel func())
		want   string
	}{
		"the caller left": {
			cancelable, func(_ *monitor.Stream, leave, _ func()) { leave() }, "client_gone [user > shop > exchange]",
		},
		"the handler returned": {
			cancelable, func(s *monitor.Stream, leave, _ func()) { s.End(monitor.Completed()); leave() }, "peer_reset []",
		},
		"the handler canceled the call": {
			cancelable, func(_ *monitor.Stream, _, cancel func()) { cancel() }, "peer_reset []",
		},
		"the handler canceled the call with a cause, and then its caller left": {
			func(ctx context.Context) (context.Context, func()) {
				ctx, cancel := context.WithCancelCause(ctx)
				return ctx, func() { cancel(mine) }
			},
			func(_ *monitor.Stream, leave, cancel func()) { cancel(); leave() }, "user_stop []",
		},
		"the caller left, and then the handler canceled a detached call": {
			func(ctx context.Context) (context.Context, func()) { return cancelable(context.WithoutCancel(ctx)) },
			func(_ *monitor.Stream, leave, cancel func()) { leave(); cancel() }, "peer_reset []",
		},
		"the caller left, and then a detached call timed out": {
			func(ctx context.Context) (context.Context, func()) {
				return pastDeadline(context.WithoutCancel(ctx))
			},
			func(_ *monitor.Stream, leave, cancel func()) { leave(); cancel() }, "deadline []",
		},
		"the handler returned, and then a detached call timed out": {
			func(ctx context.Context) (context.Context, func()) {
				return pastDeadline(context.WithoutCancel(ctx))
			},
			func(s *monitor.Stream, leave, cancel func()) {
				s.End(monitor.Completed())
				leave()
				cancel()
			}, "deadline []",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx, leave := handle(t)
			defer leave()
			ctx, cancel := test.derive(ctx)
			defer cancel()
			ctx, release := monitor.Link(ctx)
			defer release()
			test.end(s, func() {
				leave()
				if ctx.Err() == nil { // a detached call
					kitextest.Eventually(t, "the link has noticed that the call outlives the handler", func() bool { return monitor.Detached(ctx) })
				}
			}, cancel)
			if e := monitor.Cause(ctx); e == nil || fmt.Sprintf("%s [%s]", e.Reason.String(), e.Path) != test.want {
				t.Errorf("the cause is %v, not %s", e, test.want)
			}
		})
	}
}

func cancelable(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) }

// pastDeadline returns a context whose deadline passes when cancel is called.
func pastDeadline(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	return timedOut{ctx}, func() { cancel(context.DeadlineExceeded) }
}

// timedOut is a context that ends with a passed deadline when it is canceled.
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

// TestTextsOfErrorsAreOptIn: an error may quote a request.
func TestTextsOfErrorsAreOptIn(t *testing.T) {
	for _, on := range []bool{false, true} {
		var log bytes.Buffer
		records := new(kitextest.Records)
		r := monitor.New(monitor.Config{Name: "exchange", ErrorTexts: on, Log: slog.New(slog.NewTextHandler(&log, nil)), Exporter: records})
		r.Begin(kitextest.Context(t), monitor.Call{Method: served}).End(&streamerr.Error{Reason: streamerr.Internal, Cause: errors.New("secret")})
		if err := r.Close(kitextest.Context(t)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "secret"); got != on || !strings.Contains(log.String(), "ending.reason=internal ending.origin=exchange ending.path=exchange") {
			t.Errorf("ErrorTexts is %v, and the log says %s", on, log.String())
		}
		if got := records.All(); len(got) != 1 || (got[0].Message == "secret") != on {
			t.Errorf("ErrorTexts is %v, and the records are %v", on, got)
		}
	}
}

// TestADiscardedStreamIsNotCounted: Close does not wait for it either.
func TestADiscardedStreamIsNotCounted(t *testing.T) {
	records := new(kitextest.Records)
	r := monitor.New(monitor.Config{Name: "exchange", Ratio: 1, Exporter: records})
	s := r.Begin(kitextest.Context(t), monitor.Call{Method: served})
	s.Sent(5)
	s.Discard()
	s.Discard()
	s.End(monitor.Completed())
	if err := r.Close(kitextest.Context(t)); err != nil {
		t.Fatal(err)
	}
	if got := r.Figures(); len(got) != 1 || len(got[0].Endings) != 0 || got[0].Live != 0 || len(records.All()) != 0 {
		t.Errorf("a discarded stream is counted: %+v", got)
	}
}

// TestSeriesAreCreatedOnce: streams of many new methods begin at the same time, while another one
// reads the figures.
func TestSeriesAreCreatedOnce(t *testing.T) {
	const goroutines, methods, each = 8, 220, 2
	r := monitor.New(monitor.Config{Name: "exchange"})
	var wg sync.WaitGroup
	for g := 0; g < goroutines; g++ {
		wg.Add(1)
		go func(g int) {
			defer wg.Done()
			for n := 0; n < methods; n++ {
				m := served
				m.Name = fmt.Sprint("method ", (n+g)%methods)
				for i := 0; i < each; i++ {
					s := r.Begin(context.Background(), monitor.Call{Method: m})
					s.Sent(1)
					s.End(monitor.Completed())
				}
			}
			r.Figures()
		}(g)
	}
	wg.Wait()
	figures, total := r.Figures(), uint64(0)
	for _, f := range figures {
		for _, e := range f.Endings {
			total += e.N
		}
		if f.Sent.Messages != f.Sent.Bytes {
			t.Errorf("%s has %d messages of 1 byte, and %d bytes", f.Name, f.Sent.Messages, f.Sent.Bytes)
		}
	}
	if len(figures) != 201 || total != goroutines*methods*each {
		t.Errorf("%d series have %d streams, not 201 and %d", len(figures), total, goroutines*methods*each)
	}
}
