// Package kitextest helps the tests of these modules: it has a listener for servers of Kitex and
// Hertz, an exporter that keeps records, waits with a generous bound, and a check for leaked
// goroutines.
package kitextest

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloudwego/netpoll"

	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
)

// Patience bounds every wait. It is generous: only a failure takes this long, also on a machine that
// stops for a while.
const Patience = 2 * time.Minute

// Eventually waits until ok returns true, and fails the test if that takes longer than Patience.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for begun := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > Patience {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Context returns a context that is canceled when the test ends.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return ctx
}

// Listen returns a listener on a free loopback port for a server of Kitex or Hertz. It is closed after
// the test.
//
// netpoll's own listener closes its descriptor twice, and Kitex closes that listener twice more. In
// between, another goroutine may have opened a file or a connection with the same number.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tcp.Close() }) // the server has ended by then: its cleanup runs first
	inner, err := netpoll.ConvertListener(tcp)
	if err != nil {
		t.Fatal(err)
	}
	return &listener{inner}
}

// A listener is a netpoll.Listener whose descriptor the garbage collector closes.
type listener struct{ netpoll.Listener }

// Accept returns the next connection, or nil, nil without one, as netpoll expects.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if errors.Is(err, syscall.EINVAL) { // after Close
		return nil, nil
	}
	return conn, err
}

// Close makes l refuse connections.
func (l *listener) Close() error { return syscall.Shutdown(l.Fd(), syscall.SHUT_RDWR) }

// Records keeps the exported records of a monitor.
type Records struct {
	mu  sync.Mutex // guards all
	all []*monitor.Record
}

// Export implements monitor.Exporter.
func (k *Records) Export(r *monitor.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, r)
}

// Close implements monitor.Exporter.
func (*Records) Close(context.Context) error { return nil }

// All returns the records so far.
func (k *Records) All() []*monitor.Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*monitor.Record(nil), k.all...)
}

// lasting are functions of goroutines that a library starts once per process, or once per client,
// and never ends.
var lasting = []string{
	"testing.", "os/signal.", "runtime.", "internal/kitextest.",
	"github.com/cloudwego/netpoll.",
	"github.com/cloudwego/gopkg/concurrency/gopool.", "github.com/bytedance/gopkg/util/gopool.",
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc.preallocateForStream",
	"github.com/cloudwego/kitex/pkg/loadbalance/lbcache.",
	"github.com/cloudwego/kitex/pkg/utils.(*SharedTicker)",
	"github.com/cloudwego/kitex/client.(*timeoutPool)",
	"github.com/cloudwego/hertz/pkg/app/client.(*Client).cleaner",
	"github.com/cloudwego/hertz/pkg/protocol.UpdateServerDate.",
	"github.com/cloudwego/hertz/pkg/protocol/http1.(*HostClient).connsCleaner",
	"go.opencensus.io/",
}

// Main runs the tests of a package, and then fails if goroutines remain that no library keeps; call it
// from TestMain.
func Main(m *testing.M) {
	code := m.Run()
	var leaked string
	for begun := time.Now(); code == 0 && time.Since(begun) < Patience/4; time.Sleep(10 * time.Millisecond) {
		if leaked = leaks(); leaked == "" {
			break
		}
	}
	if code == 0 && leaked != "" {
		println("goroutines remain:\n" + leaked)
		code = 1
	}
	os.Exit(code)
}

// leaks returns the stacks of goroutines of this process that are not lasting.
func leaks() string {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	var leaked strings.Builder
next:
	for _, stack := range strings.Split(string(all), "\n\n") {
		for _, line := range strings.Split(stack, "\n")[1:] {
			for _, name := range lasting {
				if strings.HasPrefix(line, name) || strings.HasPrefix(line, "created by "+name) || strings.Contains(line, "internal/kitextest.") {
					continue next
				}
			}
		}
		leaked.WriteString(stack + "\n\n")
	}
	return leaked.String()
}
