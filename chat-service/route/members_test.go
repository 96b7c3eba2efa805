package route

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestWorkerThatIsTakenAwayFinishesItsStreams(t *testing.T) {
	a, b := serve(t, &fake{name: "w/0"}, ""), serve(t, &fake{name: "w/1"}, "")
	p, _ := dialAll(t, Options{Policy: inOrder}, new(journal), a)
	want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w"}), ask(40), nil)
	removed := p.members()[0]
	got := read(t.Context(), p, ask(40), func(tokens int) {
		if tokens != 10 {
			return
		}
		if err := p.Set(b.addr); err != nil {
			t.Error(err)
		}
		all := p.Workers()
		if len(all) != 2 || all[0].GetTarget() != b.addr || !all[1].GetLeaving() || all[1].GetStreams() != 1 {
			t.Error(all)
		}
		if p.alone(removed) {
			t.Error("its stream has nowhere to go")
		}
	})
	got.same(t, want)
	if len(b.fake.asked) != 0 {
		t.Error("the stream has moved")
	}
	eventually(t, "it is gone", func() bool { return len(p.Workers()) == 1 })
	eventually(t, "the new one is healthy", func() bool { return usable(p) == 1 })
	if got := read(t.Context(), p, ask(3), nil); got.err != nil || len(b.fake.asked) != 1 {
		t.Error(got.err)
	}
}

func TestStreamOfAWorkerThatWasTakenAwayAndDiesMoves(t *testing.T) {
	a, b := serve(t, &fake{name: "w/0"}, ""), serve(t, &fake{name: "w/1"}, "")
	p, _ := dialAll(t, Options{Policy: inOrder, Migrations: 1}, new(journal), a, b)
	eventually(t, "both are healthy", func() bool { return usable(p) == 2 })
	want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w"}), ask(40), nil)
	read(t.Context(), p, ask(40), func(tokens int) {
		if tokens == 10 {
			if err := p.Set(b.addr); err != nil {
				t.Error(err)
			}
			a.grpc.Stop()
		}
	}).same(t, want)
}

func TestMembersComeAndGoUnderStreams(t *testing.T) {
	services := []*service{serve(t, &fake{name: "w/0"}, ""), serve(t, &fake{name: "w/1"}, ""), serve(t, &fake{name: "w/2"}, "")}
	p, _ := dialAll(t, Options{Policy: RoundRobin()}, new(journal), services...)
	want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w"}), ask(40), nil)
	over := make(chan struct{})
	var changing sync.WaitGroup
	changing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
			}
			always, other := services[0], services[1+i%2]
			if err := p.Set(always.addr, other.addr); err != nil {
				t.Error(err)
			}
		}
	})
	var reading sync.WaitGroup
	for i := range 20 {
		reading.Go(func() {
			for j := range 3 {
				req := ask(40)
				req.StreamId = fmt.Sprint(i, "-", j)
				if got := read(t.Context(), p, req, nil); got.err != nil || !slices.Equal(got.tokens, want.tokens) {
					t.Error(got.err, len(got.tokens))
				}
			}
		})
	}
	reading.Wait()
	close(over)
	changing.Wait()
	eventually(t, "who has left is gone", func() bool { return len(p.Workers()) == 2 })
}

func TestSlotsAreSmallAndFreedWithTheirWorker(t *testing.T) {
	p := New(Options{})
	defer p.Close()
	target := func(i int) string { return fmt.Sprint("127.0.0.1:", 10000+i) }
	var all []string
	for i := range MaxWorkers {
		all = append(all, target(i))
	}
	if err := p.Set(all...); err != nil {
		t.Fatal(err)
	}
	slots := map[int]bool{}
	for _, w := range p.members() {
		slots[w.Slot()] = true
	}
	if len(slots) != MaxWorkers || !slots[0] || !slots[MaxWorkers-1] {
		t.Error(slots)
	}
	if err := p.Set(append(all, target(MaxWorkers))...); err == nil || !strings.Contains(err.Error(), "64") || len(p.members()) != MaxWorkers {
		t.Error(err, len(p.members()))
	}
	kept := p.members()[9]
	all[5] = target(99)
	if err := p.Set(all...); err != nil || p.members()[5].Slot() != 5 || p.members()[9] != kept || len(p.Workers()) != MaxWorkers {
		t.Error(err, p.members()[5].Slot(), len(p.Workers()))
	}
	if err := p.Set(all[3], all[3]); err != nil || len(p.members()) != 1 {
		t.Error(err, len(p.members()))
	}
}

func TestStreamsGoWhereTheContextHoldsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, long := &fake{name: "w/0"}, &fake{name: "w/1"}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 1}, short, long)
		defer p.Close()
		small := info("w/0")
		small.ContextLength = 3 + 10
		p.members()[0].info.Store(small)
		if p.Context() != contextLength {
			t.Error(p.Context())
		}
		if got := read(t.Context(), p, ask(11), nil); got.err != nil || len(short.asked) != 0 || len(long.asked) != 1 {
			t.Errorf("one more token than the first has room for: %v, %d", got.err, len(short.asked))
		}
		if got := read(t.Context(), p, ask(10), nil); got.err != nil || len(short.asked) != 1 {
			t.Errorf("as many as it has room for: %v, %d", got.err, len(short.asked))
		}
		p.policy = func(_ *workerv1.TokenRequest, all []*Worker) *Worker { return all[len(all)-1] }
		long.fault = func(tokens int) error {
			if tokens == 5 {
				return lostBy(long)
			}
			return nil
		}
		read(t.Context(), p, ask(11), nil).failed(t, streamerr.PeerLost, "w/1") // it would end too early elsewhere
	})
}

// A prober answers a worker's probes as a test says.
type prober func(context.Context) (*workerv1.InfoResponse, error)

type (
	infoOnly struct {
		workerv1.WorkerClient
		answer *prober
	}
	alwaysServing struct{ healthpb.HealthClient }
)

func (c infoOnly) Info(ctx context.Context, _ *workerv1.InfoRequest, _ ...grpc.CallOption) (*workerv1.InfoResponse, error) {
	return (*c.answer)(ctx)
}

func (alwaysServing) Check(context.Context, *healthpb.HealthCheckRequest, ...grpc.CallOption) (*healthpb.HealthCheckResponse, error) {
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

func TestWorkerMayBeLateForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poolOf(t, Options{}, &fake{name: "w/0"})
		w := p.members()[0]
		answers := true
		p.opts.Check = func(*workerv1.InfoResponse) error { return nil }
		answer := prober(func(ctx context.Context) (*workerv1.InfoResponse, error) {
			if !answers {
				<-ctx.Done()
				return nil, status.FromContextError(ctx.Err()).Err()
			}
			return info("w/0"), nil
		})
		w.check, w.client, w.health = p.check, infoOnly{answer: &answer}, alwaysServing{}
		changes := 0
		probe := func() { w.probe(t.Context(), func() { changes++ }) }
		answers = false
		for range maxLate - 1 {
			probe()
		}
		if w.info.Load() == nil || w.trust.holds() || changes != 0 {
			t.Error("late, but not ill: it is only chosen where there is no other one")
		}
		answers = true
		if probe(); !w.trust.holds() {
			t.Error("it has answered")
		}
		answers = false
		for range maxLate {
			probe()
		}
		if w.info.Load() != nil || changes != 1 {
			t.Error("it has not answered three times, and still gets streams")
		}
		answers = true
		if probe(); w.info.Load() == nil || !w.trust.holds() || changes != 2 {
			t.Error("it is back")
		}
		answer = func(context.Context) (*workerv1.InfoResponse, error) {
			return nil, status.Error(codes.Unavailable, "refused")
		}
		if probe(); w.info.Load() != nil {
			t.Error("a refused connection is no lateness")
		}
	})
}

func TestWorkerThatIsDeadAtFirstIsUsedWhenItComes(t *testing.T) {
	a, dead := serve(t, &fake{name: "w/0"}, ""), serve(t, &fake{name: "w/1"}, "")
	dead.grpc.Stop()
	p, healthy := dialAll(t, Options{Policy: inOrder}, new(journal), dead, a)
	if got := read(t.Context(), p, ask(3), nil); got.err != nil || len(a.fake.asked) != 1 || !healthy() {
		t.Error(got.err)
	}
	late := serve(t, &fake{name: "w/1"}, dead.addr)
	eventually(t, "it gets streams", func() bool { return usable(p) == 2 })
	if got := read(t.Context(), p, ask(3), nil); got.err != nil || len(late.fake.asked) != 1 {
		t.Error(got.err)
	}
}

func TestWorkerThatComesBackUnderAnotherNameIsANewOne(t *testing.T) {
	a := serve(t, &fake{name: "w/0"}, "")
	var log journal
	p, _ := dialAll(t, Options{}, &log, a)
	w := p.members()[0]
	for range ejectAfter {
		w.trust.failed()
		w.trust.doubted = false
	}
	a.other.Store(info("w/7"))
	w.suspect()
	eventually(t, "it is known by its new name", func() bool { return w.Name() == "w/7" && w.trust.holds() })
	if log.count("worker is healthy") != 2 || log.count(`"worker is healthy" worker=w/7`) != 1 {
		t.Error(log.text.String())
	}
	b := serve(t, &fake{name: "w/0"}, "")
	if err := p.Set(a.addr, b.addr); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old name is free", func() bool { return usable(p) == 2 })
}
