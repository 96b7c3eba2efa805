package fleet

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestWorkerThatLostAStreamIsSuspect(t *testing.T) {
	f := New(Options{})
	w := &Worker{target: "h:1", probeNow: make(chan struct{}, 1)}
	f.workers.Store(&[]*Worker{w})
	if got := f.Workers()[0]; got.GetState() != chatv1.WorkerState_WORKER_STATE_DOWN || got.GetMessage() == "" || got.GetInfo() != nil {
		t.Errorf("before it was asked: %v", got)
	}
	w.report(time.Now(), info("worker/1"), nil)
	w.ours.Store(3)
	if got := f.Workers()[0]; got.GetState() != chatv1.WorkerState_WORKER_STATE_HEALTHY || got.GetStreams() != 3 {
		t.Error(got)
	}
	w.Fail(streamerr.PeerLost)
	if got := f.Workers()[0]; got.GetState() != chatv1.WorkerState_WORKER_STATE_SUSPECT || got.GetMessage() == "" {
		t.Error(got)
	}
	w.breaker.answered()
	if got := f.Workers()[0]; got.GetState() != chatv1.WorkerState_WORKER_STATE_HEALTHY {
		t.Error(got)
	}
}

// A servingStatus answers health checks.
type servingStatus struct {
	healthpb.HealthClient
	serving bool
}

func (s *servingStatus) Check(context.Context, *healthpb.HealthCheckRequest, ...grpc.CallOption) (*healthpb.HealthCheckResponse, error) {
	if s.serving {
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}, nil
}

func TestProblemNamesWhyNoWorkerIsHealthy(t *testing.T) {
	var log strings.Builder
	f := New(Options{})
	if got := f.Problem(); got != "no worker is listed" {
		t.Error(got)
	}
	probe := func(info *llmv1.WorkerInfo, serving bool, err error, check error) *Worker {
		answer := prober(func(context.Context) (*llmv1.WorkerInfo, error) { return info, err })
		w := &Worker{
			target: "10.0.0.1:8082", client: infoOnly{answer: &answer}, health: &servingStatus{serving: serving},
			check: func(*Worker, *llmv1.WorkerInfo) error { return check },
			log:   slog.New(slog.NewTextHandler(&log, nil)), probeNow: make(chan struct{}, 1),
		}
		for range maxLate {
			w.probe(t.Context(), func() {})
		}
		return w
	}
	loading := info("llm-worker/0")
	loading.Problem = "the server that generates answered with status 503: the model loads"
	gone := status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:8082: connect: connection refused"`)
	members := []*Worker{
		probe(loading, false, nil, nil),
		probe(nil, false, gone, nil),
		probe(nil, false, gone, nil), // the same problem appears once
		probe(info("llm-worker/2"), true, nil, sameName{"llm-worker/2", "10.0.0.1:8082", "10.0.0.2:8082"}),
		probe(nil, false, status.FromContextError(context.DeadlineExceeded).Err(), nil),
	}
	f.workers.Store(&members)
	if got, want := f.Problem(), "llm-worker/0: the server that generates answered with status 503: the model loads; a worker: it cannot be reached: connection refused; "+
		"llm-worker/2: another worker is called llm-worker/2, too: give each its own --name; and 1 more"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for i, want := range []string{"status 503", "connection refused", "connection refused", "another worker is called llm-worker/2", "did not answer within 1s"} {
		if got := f.Workers()[i]; got.GetState() != chatv1.WorkerState_WORKER_STATE_DOWN || !strings.Contains(got.GetMessage(), want) {
			t.Errorf("worker %d: %v, want %q", i, got, want)
		}
	}
	if n := strings.Count(log.String(), "msg="); n != len(members) { // one line for each worker
		t.Errorf("%d lines: %s", n, &log)
	}
	members = append(members, probe(info("llm-worker/5"), true, nil, nil))
	f.workers.Store(&members)
	if got := f.Problem(); got != "" {
		t.Error(got)
	}
}

// A healthCheck calls f when the health is asked for.
type healthCheck struct {
	healthpb.HealthClient
	f func()
}

func (c healthCheck) Check(context.Context, *healthpb.HealthCheckRequest, ...grpc.CallOption) (*healthpb.HealthCheckResponse, error) {
	c.f()
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// TestInfoIsNotOlderThanTheHealth: a worker that becomes healthy during a probe has said what it can do before.
func TestInfoIsNotOlderThanTheHealth(t *testing.T) {
	tried := false
	answer := prober(func(context.Context) (*llmv1.WorkerInfo, error) {
		info := info("llm-worker/0")
		if tried {
			info.ContextLength = 4096
		}
		return info, nil
	})
	w := &Worker{client: infoOnly{answer: &answer}, health: healthCheck{f: func() { tried = true }}, check: func(*Worker, *llmv1.WorkerInfo) error { return nil }}
	if got, err := w.ask(t.Context()); err != nil || got.GetContextLength() != 4096 {
		t.Error(got, err)
	}
}
