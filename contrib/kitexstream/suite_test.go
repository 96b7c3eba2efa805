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

	"github.com/cloudwego/kitex"

	"github.com/whence-dev/whence/contrib/kitexstream"
	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// only returns the only record of a side.
func only(t *testing.T, records []*monitor.Record, side monitor.Side) *monitor.Record {
	t.Helper()
	var found []*monitor.Record
	for _, r := range records {
		if r.Side == side {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d records of a %s, not 1", len(found), side)
	}
	return found[0]
}

// check compares reason and path of a record.
func check(t *testing.T, who string, r *monitor.Record, reason streamerr.Reason, path string) {
	t.Helper()
	if r.Reason != reason || r.Path.String() != path {
		t.Errorf("%s: %s [%s] (%s), not %s [%s]", who, r.Reason.String(), r.Path, r.Message, reason.String(), path)
	}
}

// kinds returns the events of a record that are not messages, in order.
func kinds(r *monitor.Record) (names []string) {
	for i := range r.Events {
		if e := &r.Events[i]; !e.IsMessage() {
			names = append(names, string(e.Kind))
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
	below := b.dial(t, leafAt, named("middle"), watching(c.middle, kitexstream.ForwardCauses()))
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
	c.watch = b.dial(t, middleAt, named("root"), watching(c.root, kitexstream.ForwardCauses()))
	return c
}

func TestAFailureBelowHasItsWholePathOnAllHops(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			c := newChain(t, b, func(_ context.Context, send func(int64) error) error {
				for n := int64(0); n < 20; n++ {
					if err := send(n); err != nil {
						return err
					}
				}
				return streamerr.New(streamerr.Overloaded, "the feed is full")
			})
			st, err := c.watch(kitextest.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = st.recv(kitextest.Context(t))
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
			if leaf.Parent.Span != caller.Self.Span || caller.Parent.Span != server.Self.Span ||
				server.Parent.Span != root.Self.Span || leaf.Self.Trace != root.Self.Trace {
				t.Error("the records are not one trace")
			}
			if got := leaf.Sent.Messages; got != 20 {
				t.Errorf("the leaf has sent %d messages, not 20", got)
			}
			if got := root.Received; got.Messages != 20 || got.Bytes == 0 || got.First == 0 || got.LongestGap == 0 {
				t.Errorf("the root has received %+v, not 20 messages with their figures", got)
			}
			messages := slices.DeleteFunc(slices.Clone(leaf.Events), func(e monitor.Event) bool { return e.Kind != monitor.Send })
			if len(messages) != 8 || messages[7].Index != 19 {
				t.Errorf("the leaf's record has %d of the messages, not the first 4 and the last 4", len(messages))
			}
			for who, want := range map[*monitor.Record]string{
				leaf: "recv_header send_header send_trailer", // this handler does not read the half-close of its caller
				root: "send_header send_trailer recv_header recv_trailer",
			} {
				if got := strings.Join(sorted(kinds(who)), " "); got != strings.Join(sorted(strings.Fields(want)), " ") {
					t.Errorf("%s has the events %s, not %s", who.Hop, got, want)
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
	for _, b := range canceling() {
		t.Run(b.system, func(t *testing.T) {
			leafDone := make(chan *streamerr.Error, 1)
			c := newChain(t, b, func(ctx context.Context, send func(int64) error) error {
				wrapped, cancel := context.WithCancel(ctx)
				defer cancel()
				if err := send(1); err != nil {
					return err
				}
				<-wrapped.Done()
				leafDone <- monitor.Cause(wrapped)
				return wrapped.Err()
			})
			ctx, cancel := context.WithCancelCause(kitextest.Context(t))
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
			if b.system == monitor.TTStream {
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
	for _, b := range canceling() {
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
			dial := b.dial(t, addr, watching(caller))
			ctx, cancel := context.WithTimeout(kitextest.Context(t), time.Second)
			defer cancel()
			st, err := dial(ctx)
			for err == nil {
				_, err = st.recv(ctx)
			}
			close(heard)
			check(t, "root", only(t, caller.ended(t), "client"), streamerr.Deadline, "root")
			want := streamerr.Deadline
			if b.system == monitor.TTStream && kitex.Version < "v0.16" { // which sends neither a deadline nor why it resets
				want = streamerr.PeerReset
			}
			if leaf := only(t, at.ended(t), "server"); leaf.Reason != want {
				t.Errorf("the leaf reports %s [%s], not %s", leaf.Reason.String(), leaf.Path, want.String())
			}
		})
	}
}

func TestAPanicIsTheHandlersEnding(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			at, caller := newHop(t, "leaf", nil), newHop(t, "root", nil)
			addr, _ := b.serveAt(t, at, func(context.Context, func(int64) error) error { panic("no") })
			ctx, cancel := context.WithCancel(kitextest.Context(t))
			defer cancel()
			st, err := b.dial(t, addr, watching(caller))(ctx)
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
		change func(*monitor.Config)
		want   int
	}{
		"none":       {nil, 0},
		"all":        {func(c *monitor.Config) { c.Ratio = 1 }, 1},
		"slow first": {func(c *monitor.Config) { c.SlowFirst = time.Nanosecond }, 1},
		"slow gap":   {func(c *monitor.Config) { c.SlowGap = time.Nanosecond }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			at := newHop(t, "leaf", test.change)
			addr, _ := bindings[0].serveAt(t, at, func(_ context.Context, send func(int64) error) error {
				return errors.Join(send(1), send(2))
			})
			st, err := bindings[0].dial(t, addr)(kitextest.Context(t))
			for err == nil {
				_, err = st.recv(kitextest.Context(t))
			}
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if records := at.ended(t); len(records) != test.want {
				t.Errorf("%d records are exported, not %d", len(records), test.want)
			}
		})
	}
}

// TestAServerThatVanishes: the caller reports which hop was lost.
func TestAServerThatVanishes(t *testing.T) {
	for _, b := range canceling() {
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
			ctx, cancel := context.WithCancel(kitextest.Context(t))
			defer cancel()
			st, err := b.dial(t, proxy.addr(), watching(caller))(ctx)
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
