package connection_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/route"

	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) {
	hlog.SetSilentMode(true)
	leaktest.Main(m)
}

// start runs a server whose handler returns while answer answers. It returns the address.
func start(t *testing.T, s *connection.Server, answer func(client *clientconn.Conn)) string {
	t.Helper()
	return startWith(t, s, func(context.Context) {}, answer)
}

// startWith is start, and calls handled with the context of each request.
func startWith(t *testing.T, s *connection.Server, handled func(context.Context), answer func(client *clientconn.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	options := config.NewOptions(nil)
	options.DisablePrintRoute = true
	s.Engine, s.Clock = route.NewEngine(options), new(coarse.Clock)
	s.Engine.GET("/", func(ctx context.Context, c *app.RequestContext) {
		handled(ctx)
		client := clientconn.Take(c)
		client.Bound(clientconn.Bounds{}, func(*streamerr.Error) {})
		client.Detach(c)
		go func() { // TestMain waits for this goroutine
			answer(client)
			client.GiveBack()
		}()
	})
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Run(ctx, ln, func() time.Duration { return connection.StopWait }); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		serving.Wait()
	})
	return ln.Addr().String()
}

// connect opens a connection on which every wait is bounded.
func connect(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(polltest.Patience))
	return conn, bufio.NewReader(conn)
}

func say(client *clientconn.Conn) {
	client.Begin(clientconn.Events{First: time.Hour})
	_ = client.Send([]byte("2\r\nhi\r\n0\r\n\r\n"), 0)
}

// ask sends a request, and reads the answer.
func ask(t *testing.T, conn net.Conn, r *bufio.Reader) {
	t.Helper()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "hi" {
		t.Fatalf("the answer is %q, %v", body, err)
	}
}

func TestSilentConnectionIsClosed(t *testing.T) {
	addr := start(t, &connection.Server{Arrival: 10 * time.Millisecond, Idle: time.Hour}, say)
	_, r := connect(t, addr)
	if _, err := r.ReadByte(); err != io.EOF {
		t.Error(err)
	}
}

// TestIdleConnectionIsClosed: the idle timeout begins after an answer. During the answer, the
// connection may be silent.
func TestIdleConnectionIsClosed(t *testing.T) {
	var answers atomic.Int64
	begun, release := make(chan struct{}), make(chan struct{})
	addr := start(t, &connection.Server{Arrival: time.Hour, Idle: 10 * time.Millisecond}, func(client *clientconn.Conn) {
		if answers.Add(1) == 1 {
			close(begun)
			<-release
		}
		say(client)
	})
	conn, r := connect(t, addr)
	answered := make(chan struct{})
	go func() { // TestMain waits for this goroutine
		defer close(answered)
		<-begun
		later, r := connect(t, addr)
		ask(t, later, r)
		if _, err := r.ReadByte(); err != io.EOF { // an idle timeout is over
			t.Error(err)
		}
		close(release)
	}()
	ask(t, conn, r)
	<-answered
	if _, err := r.ReadByte(); err != io.EOF {
		t.Error(err)
	}
}

func TestConnectionServesManyAnswers(t *testing.T) {
	addr := start(t, &connection.Server{Arrival: time.Hour, Idle: time.Hour}, say)
	conn, r := connect(t, addr)
	for range 100 {
		ask(t, conn, r)
	}
}

// TestClientLeavesWhileItIsAnswered: writes fail, although the descriptor may already belong to
// another connection.
func TestClientLeavesWhileItIsAnswered(t *testing.T) {
	failed, closed := make(chan error, 1), make(chan struct{})
	addr := start(t, &connection.Server{Arrival: time.Hour, Idle: time.Hour}, func(client *clientconn.Conn) {
		client.Begin(clientconn.Events{First: time.Hour})
		err := client.Send([]byte("2\r\nhi\r\n"), 0)
		for <-closed; err == nil; runtime.Gosched() {
			err = client.Send([]byte("2\r\nhi\r\n"), 0)
		}
		failed <- err
	})
	conn, r := connect(t, addr)
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := http.ReadResponse(r, nil); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	close(closed)
	if err := <-failed; streamerr.As(err).Reason != streamerr.ClientGone {
		t.Error(err)
	}
}
