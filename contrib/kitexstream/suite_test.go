package kitexstream_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/whence-dev/whence/contrib/kitexstream"
	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// attr returns an attribute of a span, as text.
func attr(s *tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// only returns the only span of a kind, such as "server".
func only(t *testing.T, spans tracetest.SpanStubs, kind string) *tracetest.SpanStub {
	t.Helper()
	var found []*tracetest.SpanStub
	for i := range spans {
		if spans[i].SpanKind.String() == kind {
			found = append(found, &spans[i])
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d %s spans, not 1", len(found), kind)
	}
	return found[0]
}

// check compares reason and path of a span.
func check(t *testing.T, who string, s *tracetest.SpanStub, reason streamerr.Reason, path string) {
	t.Helper()
	if attr(s, "whence.reason") != reason.String() || attr(s, "whence.path") != path {
		t.Errorf("%s: %s [%s] (%s), not %s [%s]", who, attr(s, "whence.reason"), attr(s, "whence.path"), s.Status.Description, reason, path)
	}
}

// kinds returns the events of a span that are not messages, in order.
func kinds(s *tracetest.SpanStub) (names []string) {
	for _, e := range s.Events {
		if e.Name != "send" && e.Name != "recv" {
			names = append(names, e.Name)
		}
	}
	return names
}

// A chain is a root, a middle and a leaf. The middle forwards the messages of the leaf, with a
// wrapped context.
type chain struct {
	root, middle, leaf hop
	watch              func(context.Context) (watch, error)
}

func newChain(t *testing.T, b binding, leaf handler) *chain {
	t.Helper()
	c := &chain{root: newHop(t, "root", nil), middle: newHop(t, "middle", nil), leaf: newHop(t, "leaf", nil)}
	leafAt, _ := b.serveAt(t, c.leaf, leaf)
	below := b.dial(t, leafAt, named("middle"), client.WithSuite(kitexstream.Client(c.middle.Monitor, kitexstream.ForwardCauses())))
	middleAt, _ := b.serveAt(t, c.middle, func(ctx context.Context, send func(int64) error) error {
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		st, err := below(ctx)
		if err != nil {
			return err
		}
		for {
			cents, err := st.recv(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := send(cents); err != nil {
				return err
			}
		}
	})
	c.watch = b.dial(t, middleAt, named("root"), client.WithSuite(kitexstream.Client(c.root.Monitor, kitexstream.ForwardCauses())))
	return c
}

func TestAFailureBelowHasItsWholePathOnAllHops(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			c := newChain(t, b, func(_ context.Context, send func(int64) error) error {
				for n := range int64(20) {
					if err := send(n); err != nil {
						return err
					}
				}
				return streamerr.New(streamerr.Overloaded, "the feed is full")
			})
			st, err := c.watch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = st.recv(t.Context())
			}
			if e := kitexstream.Ending(st.st); e == nil || e.Reason != streamerr.Overloaded || e.Path.String() != "leaf > middle > root" {
				t.Errorf("the root's ending is %v after %v", e, err)
			}
			root := only(t, c.root.ended(t), "client")
			middle := c.middle.ended(t)
			server, caller, leaf := only(t, middle, "server"), only(t, middle, "client"), only(t, c.leaf.ended(t), "server")
			check(t, "leaf", leaf, streamerr.Overloaded, "leaf")
			check(t, "middle's call", caller, streamerr.Overloaded, "leaf > middle")
			check(t, "middle", server, streamerr.Overloaded, "leaf > middle")
			check(t, "root", root, streamerr.Overloaded, "leaf > middle > root")
			if leaf.Parent.SpanID() != caller.SpanContext.SpanID() || caller.Parent.SpanID() != server.SpanContext.SpanID() ||
				server.Parent.SpanID() != root.SpanContext.SpanID() || leaf.SpanContext.TraceID() != root.SpanContext.TraceID() {
				t.Error("the spans are not one trace")
			}
			if got := attr(leaf, "whence.messages.sent"); got != "20" {
				t.Errorf("the leaf has sent %s messages, not 20", got)
			}
			if got := attr(root, "whence.messages.received"); got != "20" {
				t.Errorf("the root has received %s messages, not 20", got)
			}
			if attr(root, "whence.bytes.received") == "0" || attr(root, "whence.time_to_first_message") == "" || attr(root, "whence.longest_gap.received") == "" {
				t.Errorf("figures are missing: %v", root.Attributes)
			}
			messages := slices.DeleteFunc(slices.Clone(leaf.Events), func(e sdktrace.Event) bool { return e.Name != "send" })
			if len(messages) != 8 {
				t.Errorf("the leaf's span has %d of the messages, not the first 4 and the last 4", len(messages))
			}
			for who, want := range map[*tracetest.SpanStub]string{
				leaf: "recv_header send_header send_trailer", // this handler does not read the half-close of its caller
				root: "send_header send_trailer recv_header recv_trailer",
			} {
				if got := strings.Join(sorted(kinds(who)), " "); got != strings.Join(sorted(strings.Fields(want)), " ") {
					t.Errorf("%s has the events %s, not %s", attr(who, "whence.hop"), got, want)
				}
			}
		})
	}
}

func sorted(words []string) []string {
	slices.Sort(words)
	return words
}

// TestACallersCauseReachesAllHops: over TTHeader Streaming a reset carries the cause; over gRPC it
// carries a code.
func TestACallersCauseReachesAllHops(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			leafDone := make(chan *streamerr.Error, 1)
			c := newChain(t, b, func(ctx context.Context, send func(int64) error) error {
				wrapped, cancel := context.WithCancel(ctx)
				defer cancel()
				if err := send(1); err != nil {
					return err
				}
				<-wrapped.Done()
				leafDone <- telemetry.Cause(wrapped)
				return wrapped.Err()
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			st, err := c.watch(ctx)
			if err == nil {
				_, err = st.recv(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			cancel(&streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("user"), Message: "the user left"})
			for err == nil {
				_, err = st.recv(ctx)
			}
			told := <-leafDone
			root := only(t, c.root.ended(t), "client")
			check(t, "root", root, streamerr.ClientGone, "user > root")
			if got := kinds(root); !slices.Contains(got, "send_rst") {
				t.Errorf("the root has the events %v", got)
			}
			middle := c.middle.ended(t)
			leaf := only(t, c.leaf.ended(t), "server")
			if b.system == telemetry.TTStream {
				check(t, "middle", only(t, middle, "server"), streamerr.ClientGone, "user > root > middle")
				check(t, "middle's call", only(t, middle, "client"), streamerr.ClientGone, "user > root > middle")
				check(t, "leaf", leaf, streamerr.ClientGone, "user > root > middle > leaf")
				if told == nil || told.Text() != "the user left" {
					t.Errorf("the cause at the leaf's handler is %v", told)
				}
			} else {
				check(t, "middle", only(t, middle, "server"), streamerr.PeerReset, "root > middle")
				check(t, "middle's call", only(t, middle, "client"), streamerr.PeerReset, "root > middle")
				check(t, "leaf", leaf, streamerr.PeerReset, "middle > leaf")
			}
			if got := kinds(leaf); !slices.Contains(got, "recv_rst") || slices.Contains(got, "send_trailer") {
				t.Errorf("the leaf has the events %v", got)
			}
		})
	}
}

func TestAPlainCallersDeadlineAndReset(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			at := newHop(t, "leaf", nil)
			heard := make(chan struct{}) // closed when the caller's deadline has passed: the leaf's answer must not overtake it
			addr, _ := b.serveAt(t, at, func(ctx context.Context, send func(int64) error) error {
				_ = send(1)
				<-ctx.Done()
				<-heard
				return ctx.Err()
			})
			caller := newHop(t, "root", nil)
			dial := b.dial(t, addr, client.WithSuite(kitexstream.Client(caller.Monitor)))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			st, err := dial(ctx)
			for err == nil {
				_, err = st.recv(ctx)
			}
			close(heard)
			check(t, "root", only(t, caller.ended(t), "client"), streamerr.Deadline, "root")
			leaf := only(t, at.ended(t), "server")
			if got := attr(leaf, "whence.reason"); got != streamerr.Deadline.String() {
				t.Errorf("the leaf reports %s [%s]", got, attr(leaf, "whence.path"))
			}
		})
	}
}

func TestAPanicIsTheHandlersEnding(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			at, caller := newHop(t, "leaf", nil), newHop(t, "root", nil)
			addr, _ := b.serveAt(t, at, func(context.Context, func(int64) error) error { panic("no") })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			st, err := b.dial(t, addr, client.WithSuite(kitexstream.Client(caller.Monitor)))(ctx)
			for err == nil {
				_, err = st.recv(ctx)
			}
			check(t, "leaf", only(t, at.ended(t), "server"), streamerr.Internal, "leaf")
			check(t, "root", only(t, caller.ended(t), "client"), streamerr.Internal, "leaf > root")
		})
	}
}

func TestCompletedStreamsAreExportedByRatioOrIfTheyAreSlow(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*telemetry.Config)
		want   int
	}{
		"none":       {nil, 0},
		"all":        {func(c *telemetry.Config) { c.Ratio = 1 }, 1},
		"slow first": {func(c *telemetry.Config) { c.SlowFirst = time.Nanosecond }, 1},
		"slow gap":   {func(c *telemetry.Config) { c.SlowGap = time.Nanosecond }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			at := newHop(t, "leaf", test.change)
			addr, _ := bindings[0].serveAt(t, at, func(_ context.Context, send func(int64) error) error {
				return errors.Join(send(1), send(2))
			})
			st, err := bindings[0].dial(t, addr)(t.Context())
			for err == nil {
				_, err = st.recv(t.Context())
			}
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if spans := at.ended(t); len(spans) != test.want {
				t.Errorf("%d spans are exported, not %d", len(spans), test.want)
			}
		})
	}
}

// TestAServerThatVanishes: the caller reports which hop was lost.
func TestAServerThatVanishes(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			caller := newHop(t, "root", nil)
			proxy := newProxy(t)
			var once sync.Once
			release := make(chan struct{})
			addr, _ := b.serveAt(t, newHop(t, "leaf", nil), func(ctx context.Context, send func(int64) error) error {
				_ = send(1)
				<-ctx.Done()
				once.Do(func() { close(release) })
				return ctx.Err()
			})
			proxy.to(addr)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			st, err := b.dial(t, proxy.addr(), client.WithSuite(kitexstream.Client(caller.Monitor)))(ctx)
			if err == nil {
				_, err = st.recv(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			proxy.cut()
			for err == nil {
				_, err = st.recv(ctx)
			}
			<-release
			span := only(t, caller.ended(t), "client")
			check(t, "root", span, streamerr.PeerLost, "next > root")
			if got := kinds(span); !slices.Contains(got, "recv_rst") {
				t.Errorf("the root has the events %v", got)
			}
		})
	}
}
