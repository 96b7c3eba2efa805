package beside_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A muteServer accepts requests and lists its model, but answers no request while mute is set. While talks is
// set, it answers requests for more than one token even then: with a token every 20 seconds.
type muteServer struct {
	server
	mute, talks atomic.Bool
}

type muteCall struct {
	*call
	of *muteServer
}

func (c *muteCall) Next() ([]uint32, *llmv1.End, error) {
	if c.of.talks.Load() && c.left > 1 {
		if err := c.wait(20 * time.Second); err != nil {
			return nil, nil, err
		}
		return c.call.Next()
	}
	for c.of.mute.Load() {
		if err := c.wait(time.Second); err != nil {
			return nil, nil, err
		}
	}
	return c.call.Next()
}

// look returns a Look at the server, which tries it as engines do.
func (m *muteServer) look() beside.Look {
	up := m.upstream()
	ask := up.Ask
	up.Ask = func(ctx context.Context, req *workerv1.TokenRequest) (beside.Call, error) {
		c, err := ask(ctx, req)
		if err != nil {
			return nil, err
		}
		return &muteCall{c.(*call), m}, nil
	}
	trials := &beside.Trials[int]{Same: func(a, b *int) bool { return *a == *b }, Plain: request(1), Alive: func(context.Context) error { return nil }}
	return func(ctx context.Context, was *beside.Upstream, doubt bool) (*beside.Upstream, error) {
		return trials.Look(ctx, new(int), was, doubt, func(ctx context.Context) (*beside.Upstream, error) {
			return up, beside.TryPlain(ctx, up.Ask, trials.Plain)
		})
	}
}

// askFor starts a stream, which its caller stops after d. done is closed when the stream has ended.
func askFor(e *beside.Engine, d time.Duration) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		ctx, ctl := stream.WithControl(context.Background(), time.Second)
		defer ctl.Release()
		time.AfterFunc(d, func() { ctl.Stop(streamerr.New(streamerr.ClientGone, "gone")) })
		for range e.Generate(ctx, request(1000)) {
		}
	}()
	return done
}

// TestServerThatFallsSilentIsUnhealthy: the server accepts requests and answers probes, like an Ollama with a
// blocked runner. Streams that end early are enough to notice.
func TestServerThatFallsSilentIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(muteServer)
		e, health, end := watched(m.look(), beside.Options{})
		defer end()
		if !<-health {
			t.Fatal("the server is unhealthy at the start")
		}
		time.Sleep(time.Hour) // without requests, nothing is silent
		m.mute.Store(true)
		begun := time.Now()
		<-askFor(e, 10*time.Second)
		if <-health {
			t.Fatal("healthy twice")
		}
		if took := time.Since(begun); took < 2*time.Minute || took > 3*time.Minute {
			t.Errorf("it is unhealthy after %v", took)
		}
		synctest.Wait()
		if text := e.Problem(); !strings.Contains(text, "accepts requests, but has answered none of them for 2m") {
			t.Error(text)
		}
		time.Sleep(20 * time.Minute)
		if len(health) > 0 || !strings.Contains(e.Problem(), "has answered none of them for") {
			t.Error(len(health), e.Problem())
		}
		m.mute.Store(false)
		if !<-health {
			t.Error("unhealthy twice")
		}
		synctest.Wait()
		if e.Problem() != "" {
			t.Error(e.Problem())
		}
	})
}

// TestBusyServerStaysHealthy: the server delays trials and a stream of this engine, and answers other requests.
func TestBusyServerStaysHealthy(t *testing.T) {
	for name, busy := range map[string]func(m *muteServer, e *beside.Engine) (done chan struct{}){
		"with a stream of this engine": func(m *muteServer, e *beside.Engine) chan struct{} {
			m.talks.Store(true)
			return askFor(e, 10*time.Minute)
		},
		"with requests of other clients": func(_ *muteServer, e *beside.Engine) chan struct{} {
			return askFor(e, 10*time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := new(muteServer)
				e := beside.New(beside.Options{}, m.look())
				begun := time.Now()
				e.ReadLoad(func(context.Context) (*beside.ServerLoad, error) {
					if m.talks.Load() {
						return &beside.ServerLoad{}, nil
					}
					return &beside.ServerLoad{Running: 1, Done: time.Since(begun).Seconds()}, nil
				})
				health := make(chan bool, 10)
				ctx, cancel := context.WithCancel(t.Context())
				watching := make(chan struct{})
				go func() {
					defer close(watching)
					e.Watch(ctx, func(healthy bool) { health <- healthy })
				}()
				<-health
				m.mute.Store(true)
				<-busy(m, e)
				if len(health) > 0 {
					t.Error("it is unhealthy:", e.Problem())
				}
				cancel()
				<-watching
			})
		})
	}
}

// TestLongFirstTrialIsTold: while a server compiles for its first request, the problem says so.
func TestLongFirstTrialIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		m := new(muteServer)
		m.mute.Store(true)
		e, health, end := watched(m.look(), beside.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(6 * time.Minute)
		if text := e.Problem(); !strings.Contains(text, "is tried with a short request") || len(health) > 0 {
			t.Error(text)
		}
		m.mute.Store(false)
		if !<-health {
			t.Error("unhealthy")
		}
		end()
		if text := log.String(); e.Problem() != "" || strings.Count(text, "upstream is being tried") != 1 || strings.Contains(text, "WARN") {
			t.Error(e.Problem(), text)
		}
	})
}
