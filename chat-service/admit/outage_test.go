package admit

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const outage = 30 * time.Second

// during runs a test with a queue whose Run runs meanwhile.
func during(t *testing.T, room int, test func(t *testing.T, p *place)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(room, Options{Outage: outage})
		ctx, cancel := context.WithCancel(t.Context())
		p.all.Go(func() { p.queue.Run(ctx) })
		test(t, p)
		cancel()
		p.all.Wait()
		if running, waiting := p.queue.Load(); running != 0 || waiting != 0 || p.queue.tokens != 0 || len(p.queue.tenants) != 0 {
			t.Errorf("%d run, %d wait, %d tokens, %d tenants are left", running, waiting, p.queue.tokens, len(p.queue.tenants))
		}
	})
}

// health sets whether a worker is healthy, as probes would find.
func (p *place) health(healthy bool) {
	p.queue.mu.Lock() // Room is called under this lock
	p.ill = !healthy
	p.queue.mu.Unlock()
}

// reach sets whether the worker can be reached.
func (p *place) reach(reachable bool) { p.count(func() { p.dead = !reachable }) }

func TestStreamsWaitWhileNoWorkerIsHealthy(t *testing.T) {
	during(t, 1, func(t *testing.T, p *place) {
		first := p.ask(t.Context(), nil, 3, 5) // runs, and has its tokens before the worker becomes unhealthy
		waiting := []<-chan error{p.ask(t.Context(), nil, 3, 1), p.ask(t.Context(), nil, 3, 1)}
		p.health(false)
		if err := <-first; err != nil {
			t.Error(err)
		}
		waiting = append(waiting, p.ask(t.Context(), nil, 3, 1)) // a new stream waits as well
		time.Sleep(outage / 2)
		synctest.Wait()
		if running, n := p.queue.Load(); running != 0 || n != 3 {
			t.Fatalf("%d run and %d wait while no worker is healthy; want 0 and 3", running, n)
		}
		p.health(true)
		began := time.Now()
		for i, ended := range waiting {
			if err := <-ended; err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		}
		if took := time.Since(began); took > lookEvery+3*time.Second {
			t.Errorf("three streams of a second each took %v behind the outage", took)
		}
		if want := []string{"1", "2", "3", "4"}; !slices.Equal(p.order, want) {
			t.Errorf("they were answered in the order %q, want %q", p.order, want)
		}
	})
}

func TestLongOutageEndsWaitingStreams(t *testing.T) {
	during(t, 1, func(t *testing.T, p *place) {
		p.health(false)
		time.Sleep(outage / 3)
		ended := p.ask(t.Context(), nil, 3, 1)
		began := time.Now()
		check := func(err error, wants time.Duration) {
			t.Helper()
			e := streamerr.As(err)
			if waited := time.Since(began); e.Reason != streamerr.Unavailable || e.RetryAfter <= 0 || waited < wants-lookEvery || waited > wants+lookEvery {
				t.Errorf("after %v: %v, retry after %v; want UNAVAILABLE after %v", waited, err, e.RetryAfter, wants)
			}
		}
		check(<-ended, outage-outage/3) // counted from when the worker became unhealthy
		began = time.Now()
		check(<-p.ask(t.Context(), nil, 3, 1), 0) // no stream waits for a worker that may never come back
		p.health(true)
		time.Sleep(lookEvery)
		if err := <-p.ask(t.Context(), nil, 3, 1); err != nil {
			t.Error(err)
		}
	})
}

// A worker that is gone has places until a probe finds that it is gone.
func TestStreamThatReachesNoWorkerWaits(t *testing.T) {
	during(t, 1, func(t *testing.T, p *place) {
		p.reach(false)
		var all []<-chan error
		for range 20 {
			all = append(all, p.ask(t.Context(), nil, 3, 1))
		}
		time.Sleep(lookEvery / 2)
		p.health(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if running, waiting := p.queue.Load(); running != 0 || waiting != 20 {
			t.Fatalf("%d run, %d wait; want 0 and 20", running, waiting)
		}
		if n := len(p.order); n > 20 {
			t.Errorf("20 streams were sent %d times to a worker that is gone: %q", n, p.order)
		}
		p.order = nil
		p.reach(true)
		p.health(true)
		for i, ended := range all {
			if err := <-ended; err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		}
		if p.order[0] != "1" || len(p.order) != 20 {
			t.Errorf("they were answered in the order %q: a stream keeps its place", p.order)
		}
	})
}

// A stream tries only a few times to reach a worker whose probes succeed but whose calls fail.
func TestRetriesOfAHealthyWorkerThatFailsCallsAreBounded(t *testing.T) {
	during(t, 1, func(t *testing.T, p *place) {
		p.reach(false)
		err := <-p.ask(t.Context(), of("a", 1), 3, 1)
		if e := streamerr.As(err); e.Reason != streamerr.Unavailable || e.Message != "the worker refuses connections" {
			t.Errorf("%v; want the error of the last attempt", err)
		}
		if n := len(p.order); n != maxReturns+1 {
			t.Errorf("the stream was sent %d times, want %d", n, maxReturns+1)
		}
	})
}

// The healthy worker takes other streams meanwhile.
func TestStreamThatFitsNoWorkerDoesNotBlockOthers(t *testing.T) {
	during(t, 1, func(t *testing.T, p *place) {
		first := p.ask(t.Context(), nil, 3, 1) // occupies the place, so the others wait
		began := time.Now()
		large := p.askOf(t.Context(), "large", nil, 3, 1)
		small := p.ask(t.Context(), nil, 3, 1)
		if err := <-first; err != nil {
			t.Error(err)
		}
		err := <-large
		if e := streamerr.As(err); e.Reason != streamerr.Unavailable || e.Message != "no healthy worker for this request" {
			t.Errorf("%v; want the error of the pool", err)
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("the stream that fits no worker ended after %v, want one second: the answer before it", waited)
		}
		if err := <-small; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the stream behind it ended after %v, want two answers of a second each", took)
		}
		if want := []string{"1", "2", "3"}; !slices.Equal(p.order, want) {
			t.Errorf("the streams were sent in the order %q, want %q: each once", p.order, want)
		}
	})
}

// A stream that lost its worker waits for the probes, while the streams behind it are sent.
func TestStreamOnHoldDoesNotBlockOthers(t *testing.T) {
	during(t, 1, func(t *testing.T, p *place) {
		p.reach(false)
		lost := p.ask(t.Context(), nil, 3, 1)
		if running, waiting := p.queue.Load(); running != 0 || waiting != 1 {
			t.Fatalf("%d run, %d wait; want 0 and 1", running, waiting)
		}
		p.reach(true)
		began := time.Now()
		if err := <-p.ask(t.Context(), nil, 3, 1); err != nil || time.Since(began) != time.Second {
			t.Errorf("the next stream took %v, want one second: %v", time.Since(began), err)
		}
		if err := <-lost; err != nil {
			t.Error(err)
		}
	})
}

// If a returned stream finds the queue full, it ends with the failure that it had.
func TestReturnedStreamsCountAgainstTheBound(t *testing.T) {
	during(t, -1, func(t *testing.T, p *place) {
		p.queue.opts.MaxStreams = 2
		p.reach(false)
		ctx, cancel := context.WithCancel(t.Context())
		held := []<-chan error{p.ask(ctx, nil, 3, 1), p.ask(ctx, nil, 3, 1)}
		e := streamerr.As(<-p.ask(ctx, nil, 3, 1))
		if e.Reason != streamerr.Unavailable || e.Message != "the worker refuses connections" {
			t.Errorf("%v; want the error of the worker's ending", e)
		}
		if _, waiting := p.queue.Load(); waiting != 2 {
			t.Errorf("%d wait, want 2", waiting)
		}
		cancel()
		for _, ended := range held {
			<-ended
		}
	})
}

func TestStopEndsWaitingForAWorker(t *testing.T) {
	during(t, 1, func(t *testing.T, p *place) {
		p.reach(false)
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		defer ctl.Release()
		ended := p.ask(ctx, nil, 3, 1)
		cause := errors.New("stop")
		ctl.Stop(cause)
		if err := <-ended; !errors.Is(err, cause) {
			t.Error(err)
		}
	})
}
