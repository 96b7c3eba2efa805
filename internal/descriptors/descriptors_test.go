package descriptors

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// limited returns a budget with a limit that can be changed. This process has few descriptors.
func limited(t *testing.T, limit int64) (*budget, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	n.Store(limit)
	b := newBudget(func() int { return int(n.Load()) })
	t.Cleanup(func() { _ = syscall.Close(b.spare) })
	return b, &n
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

func dial(t *testing.T, ln net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestReserveBeginsBelowTheLimit(t *testing.T) {
	for limit, want := range map[int64]int{100: 75, 256: 192, 1024: 960, math.MaxInt32: math.MaxInt32 - 64} {
		b, _ := limited(t, limit)
		if b.late(want - 1) {
			t.Errorf("limit %d: descriptor %d is late", limit, want-1)
		}
		if !b.late(want) {
			t.Errorf("limit %d: descriptor %d is not late", limit, want)
		}
	}
}

// TestNewLateConnectionsOfHTTPCloseTheOldest: connections that send nothing must not lock out a probe.
func TestNewLateConnectionsOfHTTPCloseTheOldest(t *testing.T) {
	b, _ := limited(t, 0) // every descriptor is late
	ln := listen(t)
	l := &listener{ln, b, new(Brief)}
	var clients []net.Conn
	var accepted []net.Conn
	for range maxBrief + 2 {
		clients = append(clients, dial(t, ln))
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		accepted = append(accepted, nc)
	}
	for _, c := range clients[:2] {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the oldest connections are not closed: %v", err)
		}
	}
	for _, nc := range accepted[2:] {
		if _, err := nc.Write([]byte("x")); err != nil {
			t.Errorf("a newer connection is closed: %v", err)
		}
		_ = nc.Close()
		_ = nc.Close() // servers close twice
	}
	if n := len(l.brief.open); n != 0 {
		t.Errorf("%d closed connections are remembered", n)
	}
}

// TestLastingConnectionsTakeHalfOfTheReserve: the other half is for probes and for this process's own
// connections.
func TestLastingConnectionsTakeHalfOfTheReserve(t *testing.T) {
	b, limit := limited(t, 0)
	ln := listen(t)
	l := &listener{ln, b, nil}
	refused := dial(t, ln)
	got := make(chan net.Conn)
	go func() {
		nc, _ := l.Accept()
		got <- nc
	}()
	if _, err := refused.Read(make([]byte, 1)); err == nil || b.refused.Load() != 1 {
		t.Errorf("a connection in the second half of the reserve is open: %v, %d refused", err, b.refused.Load())
	}
	limit.Store(math.MaxInt32)
	served := dial(t, ln)
	nc := <-got
	if nc == nil || nc.RemoteAddr().String() != served.LocalAddr().String() {
		t.Fatal("a connection below the reserve is not accepted")
	}
	if _, ok := nc.(*net.TCPConn); !ok {
		t.Errorf("a connection that is not late is a %T", nc)
	}
	_ = nc.Close()
}

// exhaustion is a listener of a process without descriptors.
type exhaustion struct{ *net.TCPListener }

func (exhaustion) Accept() (net.Conn, error) { return nil, syscall.EMFILE }

func TestWithoutDescriptorsCallersAreRefusedAtOnce(t *testing.T) {
	b, _ := limited(t, math.MaxInt32)
	ln := listen(t)
	l := &listener{exhaustion{ln.(*net.TCPListener)}, b, nil}
	var clients []net.Conn
	for range 3 {
		clients = append(clients, dial(t, ln))
	}
	if _, err := l.Accept(); !IsExhausted(err) { // once no caller waits
		t.Errorf("Accept returns %v", err)
	}
	for _, c := range clients {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a caller is not refused")
		}
	}
	if n := b.refused.Load(); n != 3 || b.spare < 0 {
		t.Errorf("%d callers are counted, and the spare descriptor is %d", n, b.spare)
	}
}

func TestAnEpisodeIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, limit := limited(t, math.MaxInt32)
		var log bytes.Buffer
		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { b.watch(ctx, slog.New(slog.NewTextHandler(&log, nil))) })
		for range 2 {
			limit.Store(0)
			for range 10 {
				b.late(0)
				b.refused.Add(1)
			}
			synctest.Wait()
			limit.Store(math.MaxInt32)
			time.Sleep(2 * recheck) // virtual
			synctest.Wait()
		}
		stop()
		watching.Wait()
		if n, m := strings.Count(log.String(), "out of file descriptors"), strings.Count(log.String(), "are free again"); n != 2 || m != 2 {
			t.Errorf("two episodes began %d times and ended %d times:\n%s", n, m, &log)
		}
	})
}
