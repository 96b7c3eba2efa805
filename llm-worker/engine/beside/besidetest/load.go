package besidetest

import (
	"sync"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/polltest"
)

// The load of other clients that a Server reports if it is Busy.
const (
	othersRunning = 5
	othersWaiting = 3
)

// Requests returns the running and the waiting requests, as the server reports them.
func (s *Server) Requests() (running, waiting int) {
	running, waiting = s.Others()
	return running + int(s.Live.Load()), waiting
}

// Others returns the requests of other clients, for a server that shows its requests one by one.
func (s *Server) Others() (running, waiting int) {
	s.LoadsAsked.Add(1)
	if s.Busy.Load() {
		running, waiting = othersRunning, othersWaiting
	}
	return running, waiting
}

// load tests that the engine's load has the requests of other clients, and its own streams once.
func (s *Subject) load(t *testing.T) {
	e, server := s.Start(t, func(a *Answer) error {
		a.Chunk(7)
		a.Wait()
		return a.Aborted()
	})
	server.Busy.Store(true)
	if !s.Dialect.Loads {
		if load := e.Load(); load.GetRunning()+load.GetQueued() > 0 {
			t.Error(load)
		}
		return
	}
	of := func(load *llmv1.Load) int { return int(load.GetRunning() + load.GetQueued()) }
	polltest.Eventually(t, "the server has reported its load", func() bool { return of(e.Load()) == othersRunning+othersWaiting })
	if load := e.Load(); load.GetKvTotalTokens() > 0 && load.GetQueued() != othersWaiting || load.GetMaxRunning() == 0 {
		t.Error(load)
	}
	var wg sync.WaitGroup
	begun := make(chan struct{}, 2)
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			Read(t.Context(), e, Ask(100), func(r *Result) {
				if len(r.Tokens) == 1 {
					begun <- struct{}{}
				}
			})
		})
	}
	go func() { wg.Wait(); close(done) }()
	<-begun
	<-begun
	// A report that the server made between the two beginnings holds until the next one.
	polltest.Eventually(t, "the load has two of ours", func() bool { return of(e.Load()) >= othersRunning+othersWaiting+2 })
	loads := server.LoadsAsked.Load()
	polltest.Eventually(t, "the load is asked for while ours run", func() bool { return server.LoadsAsked.Load() > loads+1 })
	polltest.Eventually(t, "the load has ours once", func() bool { return of(e.Load()) == othersRunning+othersWaiting+2 })
	server.Stop()
	<-done
	polltest.Eventually(t, "the load of a lost server is forgotten", func() bool { return of(e.Load()) == 0 })
}
