package rpc_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A brittle Observer, and Flow, panics at what happens to a stream when it ends.
type brittle struct {
	observer.Nobody
	begin bool // panic at the beginning, too
}

func (b brittle) Begin(context.Context, observer.Beginning) observer.Flow {
	if b.begin {
		panic("an observer that cannot begin")
	}
	return b
}

func (brittle) Note(e observer.Event) {
	if e.Kind == observer.Ended || e.Kind == observer.CallerTold {
		panic("an observer that cannot end")
	}
}

func (brittle) Generated() int { panic("an observer that cannot count") }
func (brittle) Close()         { panic("an observer that cannot close") }

// A brittleLog is a log handler that panics.
type brittleLog struct{ slog.Handler }

func (brittleLog) Enabled(context.Context, slog.Level) bool  { return true }
func (brittleLog) Handle(context.Context, slog.Record) error { panic("a log that cannot write") }

// A sharedBuffer is a buffer for several writers.
type sharedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *sharedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *sharedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestPanicOfAnObserverEndsNothingElse checks that callers get their answers, that the panic is logged, and that no stream stays
// among the live ones.
func TestPanicOfAnObserverEndsNothingElse(t *testing.T) {
	for name, test := range map[string]struct {
		observer observer.Observer
		log      slog.Handler // nil is one that writes
		logged   []string
	}{
		"an observer that cannot end":   {brittle{}, nil, []string{"an observer that cannot end", "an observer that cannot close", `msg="stream ended"`}},
		"an observer that cannot begin": {brittle{begin: true}, nil, []string{"an observer that cannot begin", `msg="stream ended"`}},
		"a log":                         {nil, brittleLog{}, nil},
		"both":                          {brittle{}, brittleLog{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			svc := newEmbedder("worker", stream.Unary(newCounter().vectors))
			svc.engine = newCounter().generate
			var logs sharedBuffer
			if test.log == nil {
				test.log = slog.NewTextHandler(&logs, nil)
			}
			svc.hop = &rpc.Hop{Name: "worker", Log: slog.New(test.log), Observer: test.observer}
			cc := dialGRPC(t, serveGRPC(t, svc))
			if items, err := run(t, engineAt(cc, "caller", "worker"), 5, 0); items != 6 || err != nil {
				t.Errorf("bidi: %d items, %v", items, err)
			}
			if err := ended(t.Context(), embedAt(cc, "caller", "worker"), text(1)()); err != nil {
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
					t.Errorf("the log does not say %q:\n%s", want, logs.String())
				}
			}
		})
	}
}
