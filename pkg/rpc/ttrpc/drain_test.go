package ttrpc

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudwego/netpoll"
)

// A fakeConn is a connection that can only be closed.
type fakeConn struct {
	netpoll.Connection

	closed bool
}

func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}

// TestConnectionsStayUntilTheTrailersAreWritten: however late after the handler's return that is.
func TestConnectionsStayUntilTheTrailersAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{}
		h := &handler{conns: map[netpoll.Connection]struct{}{conn: {}}}
		ctx, err := headers{h}.OnReadStream(t.Context(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			_ = h.GracefulShutdown(context.Background())
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if conn.closed {
			t.Error("the connection was closed before the trailers were written")
		}
		finishes{}.Finish(finishes{}.Start(ctx))
		<-stopped
		if !conn.closed {
			t.Error("the connection is still open")
		}
	})
}

// TestStreamIDsAreUsedOnce checks ids in almost ascending order, the boundary of the window, and
// the memory.
func TestStreamIDsAreUsedOnce(t *testing.T) {
	var s streamIDs
	r := rand.New(rand.NewPCG(1, 2))
	used := map[int32]bool{}
	for base := int32(-70_000); base < 200_000; base += 1 + r.Int32N(5) {
		id := base - r.Int32N(100)
		if s.add(id) == used[id] {
			t.Fatalf("the id %d: used is %v", id, used[id])
		}
		used[id] = true
	}
	if s.add(s.highest - idsBehind - 1) {
		t.Error("an id far behind the others is new")
	}
	for id := int32(1_000_000); id < 2_000_000_000; id += 60_000 {
		if !s.add(id) || len(s.words) > maxWords+1 {
			t.Fatalf("the id %d: %d words", id, len(s.words))
		}
	}
}

// TestStreamIDsWrapAround: Kitex counts the streams of a process in an int32, and math.MinInt32
// follows math.MaxInt32.
func TestStreamIDsWrapAround(t *testing.T) {
	var s streamIDs
	const n = 10 * idsBehind
	first := int32(math.MaxInt32 - n/2)
	for i := range int32(n) {
		if id := first + i; !s.add(id) || s.add(id) {
			t.Fatalf("the id %d, which is %d after the first, is not new once", id, i)
		}
		if i == n/2+1 && (s.highest != math.MinInt32 || s.add(math.MaxInt32) || s.add(math.MaxInt32-idsBehind)) {
			t.Fatalf("the highest id is %d, or an id before the wrap is new again", s.highest)
		}
		if len(s.words) > maxWords+1 {
			t.Fatalf("%d words at the id %d", len(s.words), first+i)
		}
	}
	if last := s.highest; s.add(last-idsBehind-1) || s.add(first) || s.highest != last {
		t.Errorf("after %d an id far behind is new, or raised the highest to %d", last, s.highest)
	}

	s = streamIDs{} // the ids of one connection, while the process opens most streams on others
	for i := range int64(3 << 32 / 60_000) {
		if id := int32(i * 60_000); !s.add(id) || len(s.words) > maxWords+1 {
			t.Fatalf("stream %d: the id %d is not new; %d words", i, id, len(s.words))
		}
	}
}

// TestAFewStreamIDsInAnyOrder: streams that begin at the same time may be sent in another order.
func TestAFewStreamIDsInAnyOrder(t *testing.T) {
	for _, first := range []int32{0, 1, -1, 1 << 30, -1 << 30, math.MaxInt32, math.MinInt32, math.MaxInt32 - idsBehind} {
		var s streamIDs
		for _, step := range []struct {
			after int32 // the first id
			isNew bool
		}{
			{0, true}, {0, false}, {-1, true}, {-idsBehind, true}, {-idsBehind - 1, false}, {math.MinInt32, false},
			{2, true}, {1, true}, {1, false}, {2, false}, {2 - idsBehind, true}, {1 - idsBehind, false},
			{math.MaxInt32, true}, {2, false}, {math.MaxInt32, false}, {math.MaxInt32 - 1, true},
		} {
			if id := first + step.after; s.add(id) != step.isNew {
				t.Errorf("the first id is %d: is %d new? it should be %v", first, id, step.isNew)
			}
		}
	}
}
