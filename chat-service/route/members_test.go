package route

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/chat-service/route/policy"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestRemovedWorkerFinishesItsStreams(t *testing.T) {
	a, b := serve(t, &fake{name: "w/0"}, ""), serve(t, &fake{name: "w/1"}, "")
	p, _ := dialAll(t, Options{Policy: inOrder}, new(logtest.Log), a)
	want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w"}), ask(40), nil)
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
	})
	got.same(t, want)
	if len(b.fake.asked) != 0 {
		t.Error("the stream has moved")
	}
	polltest.Eventually(t, "the removed worker is gone", func() bool { return len(p.Workers()) == 1 })
	polltest.Eventually(t, "the new worker is healthy", func() bool { return usable(p) == 1 })
	if got := read(t.Context(), p, ask(3), nil); got.err != nil || len(b.fake.asked) != 1 {
		t.Error(got.err)
	}
}

func TestStreamOfARemovedWorkerThatDiesMoves(t *testing.T) {
	a, b := serve(t, &fake{name: "w/0"}, ""), serve(t, &fake{name: "w/1"}, "")
	p, _ := dialAll(t, Options{Policy: inOrder, Migrations: 1}, new(logtest.Log), a, b)
	polltest.Eventually(t, "both are healthy", func() bool { return usable(p) == 2 })
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
	p, _ := dialAll(t, Options{Policy: named(policy.RoundRobin)}, new(logtest.Log), services...)
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
	polltest.Eventually(t, "the removed workers are gone", func() bool { return len(p.Workers()) == 2 })
}

func TestStreamsGoToWorkersWithEnoughContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, long := &fake{name: "w/0"}, &fake{name: "w/1"}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 1}, short, long)
		defer p.Close()
		small := info("w/0")
		small.ContextLength = 3 + 10
		p.Members()[0].Say(small)
		if p.Context() != contextLength {
			t.Error(p.Context())
		}
		if got := read(t.Context(), p, ask(11), nil); got.err != nil || len(short.asked) != 0 || len(long.asked) != 1 {
			t.Errorf("one more token than the first has room for: %v, %d", got.err, len(short.asked))
		}
		if got := read(t.Context(), p, ask(10), nil); got.err != nil || len(short.asked) != 1 {
			t.Errorf("as many as it has room for: %v, %d", got.err, len(short.asked))
		}
		p.policy = func(_ policy.Request, all []policy.Candidate) int { return len(all) - 1 }
		long.fault = func(tokens int) error {
			if tokens == 5 {
				return lostBy(long)
			}
			return nil
		}
		// another worker's context would end the answer too early
		read(t.Context(), p, ask(11), nil).failed(t, streamerr.PeerLost, "w/1")
	})
}

func TestWorkerThatStartsLateIsUsed(t *testing.T) {
	a, dead := serve(t, &fake{name: "w/0"}, ""), serve(t, &fake{name: "w/1"}, "")
	dead.grpc.Stop()
	p, healthy := dialAll(t, Options{Policy: inOrder}, new(logtest.Log), dead, a)
	if got := read(t.Context(), p, ask(3), nil); got.err != nil || len(a.fake.asked) != 1 || !healthy() {
		t.Error(got.err)
	}
	late := serve(t, &fake{name: "w/1"}, dead.addr)
	polltest.Eventually(t, "the worker gets streams", func() bool { return usable(p) == 2 })
	if got := read(t.Context(), p, ask(3), nil); got.err != nil || len(late.fake.asked) != 1 {
		t.Error(got.err)
	}
}

func TestWorkerWithANewNameStartsAfresh(t *testing.T) {
	a := serve(t, &fake{name: "w/0"}, "")
	var log logtest.Log
	p, _ := dialAll(t, Options{}, &log, a)
	w := p.Members()[0]
	a.other.Store(info("w/7"))
	w.Probe()
	polltest.Eventually(t, "the worker has its new name", func() bool { return w.Name() == "w/7" && good(w) })
	polltest.Eventually(t, "each name is logged once", func() bool {
		return log.Count("worker is healthy") == 2 && log.Count(`"worker is healthy" worker=w/7`) == 1
	})
	b := serve(t, &fake{name: "w/0"}, "")
	if err := p.Set(a.addr, b.addr); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the old name is free", func() bool { return usable(p) == 2 })
}
