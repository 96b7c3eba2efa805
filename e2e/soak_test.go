package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/ledger"
)

var (
	soakFor  = flag.Duration("soak", 12*time.Second, "`duration` of the load in TestSoak, after a warm-up of a third of it")
	soakSeed = flag.Uint64("soak-seed", 1, "`seed` of the requests in TestSoak")
)

const (
	soakClients    = 16
	soakGoroutines = 20       // more than after the warm-up, in each process
	soakFiles      = 10       // likewise
	soakMemory     = 24 << 20 // likewise, in bytes: the heap after bursts
)

// A footprint is what a process holds while no stream runs.
type footprint struct {
	memory            int64
	goroutines, files float64
}

// footprints waits until the gauges of streams and calls are zero, and returns what each process
// holds soakSettle later.
func (w *whence) footprints(t *testing.T) map[*process]footprint {
	t.Helper()
	w.http.Transport.(*http.Transport).CloseIdleConnections()
	all := map[*process]footprint{}
	for _, p := range w.all() {
		for _, gauge := range []string{"whence_streams_live", "whence_streams_running", "whence_streams_queued", "whence_calls_waiting", "whence_kv_used"} {
			polltest.Eventually(t, p.Name+": "+gauge+" is 0", func() bool { return p.scrape(t).Sum(gauge) == 0 })
		}
	}
	lab.Pause(t.Context(), soakSettle)
	for _, p := range w.all() {
		s := p.scrape(t)
		all[p] = footprint{p.memory(t), s.Sum("go_goroutines"), s.Sum("process_open_fds")}
	}
	return all
}

// soakSettle is the time in which the goroutines and descriptors of ended requests must go.
const soakSettle = 5 * time.Second

// TestSoak runs a mixed load whose clients read, leave, stop and make mistakes. Afterwards the
// processes hold as much memory, and as many goroutines and descriptors, as after the warm-up, and
// the gauges are zero. scripts/soak runs it for longer.
func TestSoak(t *testing.T) {
	tier.Full(t)
	asShipped(t)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells the memory of other processes")
	}
	w := run(t, separate, flags{all: measured, api: []string{"--replay-bytes", strconv.Itoa(8 << 20)}, worker: []string{"--pace", "100"}})
	want := w.answer(t, greedy(short))
	w.soak(t, *soakFor/3, *soakSeed, want)
	w.fillLedgers(t)
	before := w.footprints(t)
	outcomes := w.soak(t, *soakFor, *soakSeed+1, want)
	after := w.footprints(t)
	t.Logf("requests: %v", outcomes)
	for p, b := range before {
		a := after[p]
		t.Logf("%s: memory %d -> %d MiB, goroutines %v -> %v, descriptors %v -> %v", p.Name, b.memory>>20, a.memory>>20, b.goroutines, a.goroutines, b.files, a.files)
		if b.goroutines == 0 || b.files == 0 {
			t.Errorf("%s: its metrics have no goroutines or descriptors", p.Name)
		}
		if a.goroutines > b.goroutines+soakGoroutines || a.files > b.files+soakFiles || a.memory > b.memory+soakMemory {
			t.Errorf("%s held %+v before, and holds %+v after the load", p.Name, b, a)
		}
	}
}

// fillLedgers makes as many short streams as the services keep records of, so that the records take no
// more memory afterwards.
func (w *whence) fillLedgers(t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	for range soakClients {
		wg.Go(func() {
			for range ledger.DefaultMax / soakClients {
				resp, err := w.do(t.Context(), http.MethodPost, w.url("/v1/chat/completions"), greedy(short, "max_tokens", 1))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
}

// soak sends requests for a time, and returns how many of each kind there were.
func (w *whence) soak(t *testing.T, during time.Duration, seed uint64, want string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), during+patience)
	defer cancel()
	until := time.Now().Add(during)
	var wg sync.WaitGroup
	var mu sync.Mutex
	counts := map[string]int{}
	var failed atomic.Bool
	for client := range soakClients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(client)))
			for n := 0; time.Now().Before(until) && !failed.Load(); n++ {
				kind, err := w.soakRequest(ctx, random, fmt.Sprintf("soak-%d-%d-%d", seed, client, n), want)
				if err != nil {
					failed.Store(true)
					t.Errorf("seed %d, client %d, request %d: %s: %v", seed, client, n, kind, err)
				}
				mu.Lock()
				counts[kind]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return counts
}

// soakRequest sends one request of a random kind. An error is an answer that this kind must not get.
func (w *whence) soakRequest(ctx context.Context, random *rand.Rand, id, want string) (kind string, err error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	kinds := []string{"whole", "streamed", "streamed", "left", "left", "left at once", "stopped", "invalid", "tokens", "kept"}
	kind = kinds[random.IntN(len(kinds))]
	path, a := "/v1/chat/completions", greedy(short, "stream", true)
	switch kind {
	case "whole":
		a = greedy(short)
	case "left at once":
		time.AfterFunc(time.Duration(random.IntN(20))*time.Millisecond, leave)
	case "invalid":
		a = greedy(short, "temperature", "warm")
	case "tokens":
		path, a = "/tokenize", ask{"model": model, "prompt": long}
	case "kept":
		path = "/v1/streams"
	}
	resp, err := w.do(ctx, http.MethodPost, w.url(path), a, idName, id)
	if kind == "left at once" && err != nil {
		return kind, nil // the client has left
	}
	if err != nil {
		return kind, err
	}
	defer resp.Body.Close()
	status := map[string]int{"invalid": http.StatusBadRequest, "kept": http.StatusCreated}[kind]
	if status == 0 {
		status = http.StatusOK
	}
	if resp.StatusCode != status {
		return kind, fmt.Errorf("status %d, want %d", resp.StatusCode, status)
	}
	switch kind {
	case "whole", "invalid", "tokens", "kept":
		_, err = io.Copy(io.Discard, resp.Body)
		return kind, err
	}
	return kind, w.soakRead(ctx, newLive(resp), kind, 1+random.IntN(20), want)
}

// soakRead reads a stream. After some events, the client leaves, or stops the stream.
func (w *whence) soakRead(ctx context.Context, l *live, kind string, after int, want string) error {
	for n := 0; ; n++ {
		if n == after && kind == "left" {
			return nil // the caller closes the connection
		}
		if n == after && kind == "stopped" {
			resp, err := w.do(ctx, http.MethodDelete, w.url("/v1/streams/"+l.id), "")
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
		}
		if _, err := l.next(); err != nil {
			break
		}
	}
	switch {
	case kind == "left at once":
		return nil
	case kind == "stopped" && l.err.reason() == "user_stop", l.done && l.text.String() == want:
		return nil
	default:
		return fmt.Errorf("the stream ended with %q, [DONE] %t, error %+v", l.text.String(), l.done, l.err)
	}
}
