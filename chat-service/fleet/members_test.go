package fleet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// info returns the WorkerInfo of a healthy worker.
func info(name string) *llmv1.WorkerInfo {
	return &llmv1.WorkerInfo{Instance: name, Model: "m", ContextLength: 64, Continues: true}
}

func TestSlotsAreSmallAndFreedWithTheirWorker(t *testing.T) {
	f := New(Options{})
	defer f.Set()
	target := func(i int) string { return fmt.Sprint("127.0.0.1:", 10000+i) }
	var all []string
	for i := range MaxWorkers {
		all = append(all, target(i))
	}
	if err := f.Set(all...); err != nil {
		t.Fatal(err)
	}
	slots := map[int]bool{}
	for _, w := range f.Members() {
		slots[w.Slot()] = true
	}
	if len(slots) != MaxWorkers || !slots[0] || !slots[MaxWorkers-1] {
		t.Error(slots)
	}
	if err := f.Set(append(all, target(MaxWorkers))...); err == nil || !strings.Contains(err.Error(), "64") || len(f.Members()) != MaxWorkers {
		t.Error(err, len(f.Members()))
	}
	kept := f.Members()[9]
	all[5] = target(99)
	if err := f.Set(all...); err != nil || f.Members()[5].Slot() != 5 || f.Members()[9] != kept || len(f.Workers()) != MaxWorkers {
		t.Error(err, f.Members()[5].Slot(), len(f.Workers()))
	}
	if err := f.Set(all[3], all[3]); err != nil || len(f.Members()) != 1 {
		t.Error(err, len(f.Members()))
	}
}

func good(w *Worker) bool { return w.Snapshot(time.Now()).Standing == Good }

// A prober answers a worker's probes as the test wants.
type prober func(context.Context) (*llmv1.WorkerInfo, error)

type (
	infoOnly struct {
		workerv1.WorkerClient
		answer *prober
	}
	alwaysServing struct{ healthpb.HealthClient }
)

func (c infoOnly) Info(ctx context.Context, _ *workerv1.InfoRequest, _ ...grpc.CallOption) (*llmv1.WorkerInfo, error) {
	return (*c.answer)(ctx)
}

func (alwaysServing) Check(context.Context, *healthpb.HealthCheckRequest, ...grpc.CallOption) (*healthpb.HealthCheckResponse, error) {
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

func TestWorkerMayBeLateForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{Check: func(*llmv1.WorkerInfo) error { return nil }})
		w := Pretended("w/0", nil)
		w.Say(info("w/0"))
		f.Pretend(w)
		answers := true
		answer := prober(func(ctx context.Context) (*llmv1.WorkerInfo, error) {
			if !answers {
				<-ctx.Done()
				return nil, status.FromContextError(ctx.Err()).Err()
			}
			return info("w/0"), nil
		})
		w.check, w.client, w.health = f.check, infoOnly{answer: &answer}, alwaysServing{}
		changes := 0
		probe := func() { w.probe(t.Context(), func() { changes++ }) }
		answers = false
		for range maxLate - 1 {
			probe()
		}
		if w.Info() == nil || good(w) || changes != 0 {
			t.Error("a late worker is unhealthy, or still in good standing")
		}
		answers = true
		if probe(); !good(w) {
			t.Error("the worker has answered, and is not in good standing")
		}
		answers = false
		for range maxLate {
			probe()
		}
		if w.Info() != nil || changes != 1 {
			t.Error("after three late probes the worker still gets streams")
		}
		answers = true
		if probe(); w.Info() == nil || !good(w) || changes != 2 {
			t.Error("the worker answers again, and is not in good standing")
		}
		answer = func(context.Context) (*llmv1.WorkerInfo, error) {
			return nil, status.Error(codes.Unavailable, "refused")
		}
		if probe(); w.Info() != nil {
			t.Error("a worker that refuses connections is not unhealthy at once")
		}
	})
}

// Messages of its streams show that a busy worker is alive although its probes are late.
func TestBusyWorkerThatAnswersLateStaysHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{Check: func(*llmv1.WorkerInfo) error { return nil }})
		w := Pretended("w/0", nil)
		w.Say(info("w/0"))
		f.Pretend(w)
		stream, sends := w.Charge(1, 0), true
		defer stream.End()
		answer := prober(func(ctx context.Context) (*llmv1.WorkerInfo, error) {
			if sends {
				stream.Note(&workerv1.GenerateResponse{})
			}
			<-ctx.Done()
			return nil, status.FromContextError(ctx.Err()).Err()
		})
		w.check, w.client, w.health = f.check, infoOnly{answer: &answer}, alwaysServing{}
		for range 5 * maxLate {
			w.probe(t.Context(), func() {})
		}
		if w.Info() == nil || good(w) {
			t.Error("a worker that sends messages is not healthy, or in good standing")
		}
		sends = false
		for range maxLate {
			w.probe(t.Context(), func() {})
		}
		if w.Info() != nil {
			t.Error("a worker that sends no more messages is healthy")
		}
	})
}

func TestWorkerOfAnotherNameStartsInGoodStanding(t *testing.T) {
	f := New(Options{Check: func(*llmv1.WorkerInfo) error { return nil }})
	w := Pretended("w/0", nil)
	w.Say(info("w/0"))
	f.Pretend(w)
	name := "w/0"
	answer := prober(func(context.Context) (*llmv1.WorkerInfo, error) { return info(name), nil })
	w.check, w.client, w.health = f.check, infoOnly{answer: &answer}, alwaysServing{}
	for range ejectAfter {
		w.breaker.answered()
		w.Fail(streamerr.EngineFailed)
	}
	if w.probe(t.Context(), func() {}); good(w) {
		t.Error("an ejected worker is in good standing because it answers probes")
	}
	name = "w/7"
	if w.probe(t.Context(), func() {}); !good(w) || w.Name() != "w/7" {
		t.Error("a worker under a new name is not in good standing")
	}
}
