package rpc_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A panickingObserver is an Observer and Flow that panics at the events with which a stream ends.
type panickingObserver struct {
	observer.Nobody
	begin bool // panic at the beginning, too
}

func (b panickingObserver) Begin(context.Context, observer.Beginning) observer.Flow {
	if b.begin {
		panic(bug("the observer panics at Begin"))
	}
	return b
}

func (panickingObserver) Note(e observer.Event) {
	if e.Kind == observer.Ended || e.Kind == observer.EndingSent {
		panic(bug("the observer panics at an ending"))
	}
}

func (panickingObserver) Generated() int { panic(bug("the observer panics at Generated")) }
func (panickingObserver) Close()         { panic(bug("the observer panics at Close")) }

// A bug is the value of a panic that the log may have.
type bug string

// DescribePanic implements panicvalue.Describer.
func (b bug) DescribePanic() string { return string(b) }

// A panickingLog is a log handler that panics.
type panickingLog struct{ slog.Handler }

func (panickingLog) Enabled(context.Context, slog.Level) bool  { return true }
func (panickingLog) Handle(context.Context, slog.Record) error { panic("the log handler panics") }

// TestPanicOfAnObserverEndsNothingElse checks that callers get their answers, that the panic is
// logged, and that no stream remains in the set of live streams.
func TestPanicOfAnObserverEndsNothingElse(t *testing.T) {
	for name, test := range map[string]struct {
		observer observer.Observer
		log      slog.Handler // nil for a handler that writes
		logged   []string
	}{
		"the observer panics at an ending": {panickingObserver{}, nil, []string{"the observer panics at an ending", "the observer panics at Close", `msg="stream ended"`}},
		"the observer panics at Begin":     {panickingObserver{begin: true}, nil, []string{"the observer panics at Begin", `msg="stream ended"`}},
		"a log":                            {nil, panickingLog{}, nil},
		"both":                             {panickingObserver{}, panickingLog{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			svc := newEmbedder("worker", stream.Unary(newCounter().vectors))
			svc.engine = newCounter().generate
			var logs logtest.Log
			if test.log == nil {
				test.log = slog.NewTextHandler(&logs, nil)
			}
			svc.hop = &rpc.Hop{Name: "worker", Log: slog.New(test.log), Observer: test.observer}
			cc := dialGRPC(t, serveGRPC(t, svc))
			if items, err := run(t, engineAt(cc, "caller", "worker"), 5, 0); items != 6 || err != nil {
				t.Errorf("bidi: %d items, %v", items, err)
			}
			if err := lastError(t.Context(), embedAt(cc, "caller", "worker"), text(1)()); err != nil {
				t.Errorf("unary: %v", err)
			}
			if _, err := run(t, engineAt(cc, "caller", "worker"), 13, 0); streamerr.As(err).Reason != streamerr.Internal {
				t.Errorf("an engine that panics: %v", err)
			}
			id := "driven"
			ctx, end, err := svc.hop.Begin(t.Context(), &id, "", "", func() *streamerr.Error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			o := rpc.Drive(ctx, svc.hop, methods.Worker, svc.engine, ask(5)(), func(*workerv1.GenerateResponse) error { return nil })
			if end(); o.Reason() != streamerr.Completed {
				t.Errorf("driven: %v", o)
			}
			awaitNoLive(t, svc.hop)
			for _, want := range test.logged {
				if !strings.Contains(logs.String(), want) {
					t.Errorf("the log lacks %q:\n%s", want, logs.String())
				}
			}
		})
	}
}
