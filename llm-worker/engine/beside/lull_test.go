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

// A mutable is a server that accepts requests and lists its model, and answers only while it is not mute. A
// request for more than one token is answered also then, if talks is set: with a token each 20 seconds.
type mutable struct {
	server
	mute, talks atomic.Bool
}

type mutableCall struct {
	*call
	of *mutable
}

func (c *mutableCall) Next() ([]uint32, *llmv1.End, error) {
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
func (m *mutable) look() beside.Look {
	up := m.upstream()
	ask := up.Ask
	up.Ask = func(ctx context.Context, req *workerv1.TokenRequest) (beside.Call, error) {
		c, err := ask(ctx, req)
		if err != nil {
			return nil, err
		}
		return &mutableCall{c.(*call), m}, nil
	}
	trials := &beside.Trials[int]{Same: func(a, b *int) bool { return *a == *b }, Plain: request(1), Alive: func(context.Context) error { return nil }}
	return func(ctx context.Context, was *beside.Upstream, doubt bool) (*beside.Upstream, error) {
		return trials.Look(ctx, new(int), was, doubt, func(ctx context.Context) (*beside.Upstream, error) {
			return up, beside.TryPlain(ctx, up.Ask, trials.Plain)
		})
	}
}

// askFor starts a stream that its caller stops after d, and that is over when done is closed.
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

// TestServerThatFallsSilentIsUnhealthy: it accepts requests and answers probes, as an Ollama whose runner
// is blocked. Streams that leave it early are enough to notice.
func TestServerThatFallsSilentIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(mutable)
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
		if text := e.Problem(); !strings.Contains(text, "accepts requests, and has answered none for 2m") {
			t.Error(text)
		}
		time.Sleep(20 * time.Minute)
		if len(health) > 0 || !strings.Contains(e.Problem(), "has answered none for") {
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

// TestBusyServerStaysHealthy: it leaves trials and streams of this engine unanswered for long, and answers others.
func TestBusyServerStaysHealthy(t *testing.T) {
	for name, busy := range map[string]func(m *mutable, e *beside.Engine) (done chan struct{}){
		"with a stream of this engine": func(m *mutable, e *beside.Engine) chan struct{} {
			m.talks.Store(true)
			return askFor(e, 10*time.Minute)
		},
		"with requests of other clients": func(_ *mutable, e *beside.Engine) chan struct{} {
			return askFor(e, 10*time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := new(mutable)
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

// TestLongFirstTrialIsTold: a server that compiles at its first request is no mystery meanwhile.
func TestLongFirstTrialIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		m := new(mutable)
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
