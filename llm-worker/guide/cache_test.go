package guide

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

var errPanic = errors.New("panicked")

// slowCache returns a cache whose compilations wait until release is closed, and their number.
func slowCache(v *Vocabulary) (c *Cache, compiled *atomic.Int32, release chan struct{}) {
	c = NewCache(v, func(any) error { return errPanic })
	c.slots = make(chan struct{}, 1)
	compiled, release = new(atomic.Int32), make(chan struct{})
	c.compile = func(g *llmv1.Guide) (*Guide, error) {
		compiled.Add(1)
		<-release
		return New(v, g)
	}
	return c, compiled, release
}

func TestConcurrentRequestsCompileAGuideOnce(t *testing.T) {
	v, _ := vocabulary(t)
	synctest.Test(t, func(t *testing.T) {
		c, compiled, release := slowCache(v)
		var all sync.WaitGroup
		var first atomic.Pointer[Guide]
		for i := range 8 {
			all.Go(func() {
				g, err := c.Guide(t.Context(), forms([]string{person, "\n " + person}[i%2]))
				if err != nil || !first.CompareAndSwap(nil, g) && first.Load() != g {
					t.Error("another guide:", err)
				}
			})
		}
		synctest.Wait()
		close(release)
		all.Wait()
		if _, err := c.Guide(t.Context(), forms(person)); err != nil || compiled.Load() != 1 {
			t.Errorf("compiled %d times: %v", compiled.Load(), err)
		}
		if _, err := c.Guide(t.Context(), forms(`{"type":"null"}`)); err != nil || compiled.Load() != 2 {
			t.Errorf("compiled %d times: %v", compiled.Load(), err)
		}
		c.Close()
	})
}

func TestStoppedRequestDoesNotWaitForItsGuide(t *testing.T) {
	v, _ := vocabulary(t)
	synctest.Test(t, func(t *testing.T) {
		c, compiled, release := slowCache(v)
		ask := func(ctx context.Context, schema string) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := c.Guide(ctx, forms(schema))
				done <- err
			}()
			synctest.Wait()
			return done
		}
		busy := ask(t.Context(), `{"type":"null"}`) // has the only slot
		var stopped, alone chan error
		ctx, ctl := stream.WithControl(t.Context(), time.Minute)
		stopped = ask(ctx, person)
		same := ask(t.Context(), person)
		only, onlyCtl := stream.WithControl(t.Context(), time.Minute)
		alone = ask(only, `{"type":"boolean"}`)
		gone := streamerr.New(streamerr.ClientGone, "left")
		ctl.Stop(gone)
		onlyCtl.Stop(gone)
		for name, done := range map[string]chan error{"one of two": stopped, "alone": alone} {
			if err := <-done; !errors.Is(err, streamerr.ClientGone) {
				t.Errorf("%s: %v", name, err)
			}
		}
		close(release)
		if err := errors.Join(<-busy, <-same); err != nil {
			t.Error(err)
		}
		c.running.Wait()
		if n := compiled.Load(); n != 2 {
			t.Errorf("%d guides were compiled, although nobody waits for the third", n)
		}
		if len(c.entries) != 2 || c.recent.Len() != 2 {
			t.Errorf("%d entries, %d in the list", len(c.entries), c.recent.Len())
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	v, _ := vocabulary(t)
	c := NewCache(v, func(any) error { return errPanic })
	c.most = 20
	const kept = `{"type":"null"}`
	fill := func() {
		for i := range 30 {
			for _, schema := range []string{fmt.Sprintf(`{"const":"the guide of number %d"}`, i), kept} {
				if _, err := c.Guide(t.Context(), forms(schema)); err != nil {
					t.Fatal(err)
				}
			}
		}
		c.running.Wait()
	}
	fill()
	key, err := keyOf(forms(kept))
	if err != nil {
		t.Fatal(err)
	}
	if c.recent.Len() != 20 || len(c.entries) != 20 || c.entries[key] == nil {
		t.Errorf("%d entries; the one that is used is kept: %v", c.recent.Len(), c.entries[key] != nil)
	}
	c.most, c.mostSize = 1000, c.size/2
	fill()
	sum := 0
	for at := c.recent.Front(); at != nil; at = at.Next() {
		sum += entryOf(at).size
	}
	if n := c.recent.Len(); c.size != sum || sum > c.mostSize || n < 5 || n > 15 || c.entries[key] == nil {
		t.Errorf("%d entries with %d bytes; %d are counted, and %d allowed", n, sum, c.size, c.mostSize)
	}
}

func TestErrorsAndPanicsOfCompilationsReachTheRequest(t *testing.T) {
	v, _ := vocabulary(t)
	c := NewCache(v, func(any) error { return errPanic })
	for range 2 {
		if _, err := c.Guide(t.Context(), forms(`{"not":{}}`)); streamerr.As(err).Param != param {
			t.Error(err)
		}
	}
	c.compile = func(*llmv1.Guide) (*Guide, error) { panic("a fault") }
	if _, err := c.Guide(t.Context(), forms(`{}`)); !errors.Is(err, errPanic) {
		t.Error(err)
	}
	if c.Close(); len(c.entries) != 1 {
		t.Errorf("%d entries, not only the invalid guide", len(c.entries))
	}
	if _, err := c.Guide(t.Context(), forms(`true`)); !errors.Is(err, streamerr.Draining) {
		t.Error(err)
	}
}
