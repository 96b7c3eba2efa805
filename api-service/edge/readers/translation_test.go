package readers_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/route"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/delivery"
	"github.com/whence-dev/whence/api-service/edge/readers"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serve serves a translation of the stream "s" of a log, in which each event is its data, and
// returns the URL.
func serve(t *testing.T, l replay.Log) (url string, r *readers.Readers) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	r = &readers.Readers{
		Name: "api-service", Log: log, Replay: l, Deliveries: &delivery.Book{}, Live: stream.Set{Max: 10}, WriteTimeout: time.Minute,
		Enter: func(replay.Head) func(*streamerr.Error) { return func(*streamerr.Error) {} },
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	options := config.NewOptions(nil)
	options.DisablePrintRoute = true
	h := &connection.Server{Engine: route.NewEngine(options), Arrival: time.Minute, Idle: time.Minute, Clock: &coarse.Clock{}}
	h.Engine.GET("/", func(conn context.Context, c *app.RequestContext) {
		in, err := l.Open(conn, "s")
		if err != nil {
			t.Error(err)
			return
		}
		defer in.Close()
		r.Translate(conn, c, in, func(e replay.Event, lines call.Lines) error {
			lines.End(append(lines.BeginEvent(string(e.Kind)), e.Data...))
			return nil
		})
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, ln, func() time.Duration { return time.Second }) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String() + "/", r
}

// TestABodyEndsCleanlyOnlyWithItsEnding: clients of other APIs take a body with a clean end for the
// whole answer.
func TestABodyEndsCleanlyOnlyWithItsEnding(t *testing.T) {
	for name, c := range map[string]struct {
		last func(*testing.T, *replay.Memory, *readers.Readers)
		want error
	}{
		"a dismissed reader": {func(_ *testing.T, _ *replay.Memory, r *readers.Readers) {
			done, cancel := context.WithCancel(context.Background())
			cancel()
			r.Drain(done)
		}, io.ErrUnexpectedEOF},
		"an ending": {func(t *testing.T, l *replay.Memory, _ *readers.Readers) {
			t.Helper()
			if err := l.Append("s", "e", replay.Event{Kind: replay.Failure, Data: "{}"}); err != nil {
				t.Error(err)
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := replay.NewMemory(replay.Limits{})
			defer l.Close()
			if _, err := l.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e"}); err != nil {
				t.Fatal(err)
			}
			if err := l.Append("s", "e", replay.Event{Kind: replay.Delta, Data: "text"}); err != nil {
				t.Fatal(err)
			}
			url, r := serve(t, l)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.ReadFull(resp.Body, make([]byte, len("event: delta\n"))); err != nil {
				t.Fatal(err)
			}
			c.last(t, l, r)
			if rest, err := io.ReadAll(resp.Body); !errors.Is(err, c.want) {
				t.Errorf("the body ends with %q, %v; want %v", rest, err, c.want)
			}
		})
	}
}
