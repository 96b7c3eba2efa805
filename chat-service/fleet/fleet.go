// Package fleet tracks the workers of one model: membership, health and load.
//
// A Fleet probes each worker every second. A worker that answers, and that Options.Check accepts,
// is healthy. Its Snapshot has its capabilities, its number of streams, and its Standing, which
// rates its recent streams. Package route chooses the worker of a stream.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// MaxWorkers bounds a fleet, because Why may ask all workers at once. A Worker's Slot is below
// MaxWorkers.
const MaxWorkers = 64

// Options configure a Fleet.
type Options struct {
	// Self is this hop's name.
	Self string
	// Connect connects to a worker; nil means grpc-go.
	Connect Connect
	// Check returns why a worker that answers cannot be used, or nil.
	Check func(*llmv1.WorkerInfo) error
	// Follow is called on a goroutine of its own for each member while Watch runs, and returns when
	// ctx is done. It may be nil.
	Follow func(ctx context.Context, w *Worker)
	// Cooled is called when a worker is ejected for a cool-down, with the reason. It may be nil.
	Cooled func(why streamerr.Reason)
	// Log gets a line for each change of a worker's health, and for each cool-down.
	Log *slog.Logger
}

// A Fleet holds the workers of one model.
type Fleet struct {
	// Static.
	opts Options

	workers atomic.Pointer[[]*Worker] // replaced by Set, never modified

	mu      sync.Mutex          // guards the following fields, and replacements of workers
	names   map[*Worker]string  // names of the healthy workers; no two are the same
	slots   [MaxWorkers]*Worker // the worker of each slot
	leaving []*Worker           // former members that still have streams
	probe   func(*Worker)       // starts to watch a worker; nil while Watch does not run
	changed func(healthy bool)  // the argument of Watch
}

// New returns a fleet without workers. Set adds workers, and Watch probes them.
func New(opts Options) *Fleet {
	f := &Fleet{opts: opts, names: make(map[*Worker]string)}
	f.workers.Store(new([]*Worker))
	return f
}

// check returns why a worker that answers cannot be used: Options.Check refuses it, or another
// worker has its name. Paths contain names, so two workers with the same name could not be
// distinguished. The first one keeps the name while it is healthy.
func (f *Fleet) check(w *Worker, info *llmv1.WorkerInfo) error {
	if err := f.opts.Check(info); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.leaving.Load() {
		return errors.New("it is no longer listed")
	}
	for other, name := range f.names {
		if other != w && name == info.GetInstance() {
			return sameName{name, other.target, w.target}
		}
	}
	f.names[w] = info.GetInstance()
	return nil
}

// A sameName error refuses a worker that has the name of another worker.
type sameName struct{ name, first, second string }

func (s sameName) Error() string {
	return fmt.Sprintf("the workers at %s and %s are both called %s: give each its own --name", s.first, s.second, s.name)
}
