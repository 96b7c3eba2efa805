package ttrpc

import (
	"context"
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

// TestConnectionsStayUntilTheTrailersAreWritten: however long after the return of the handler that is.
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
			t.Error("the connection is closed before the trailers are written")
		}
		finishes{}.Finish(finishes{}.Start(ctx))
		<-stopped
		if !conn.closed {
			t.Error("the connection stays")
		}
	})
}

// TestStreamIDsAreUsedOnce checks ids that come in order but for some, the boundary of the window, and
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
	for id := int32(1_000_000); id < 2_000_000_000; id += 100_000 {
		if !s.add(id) || len(s.words) > maxWords+1 {
			t.Fatalf("the id %d: %d words", id, len(s.words))
		}
	}
}
