// Package fleet tracks the workers of one model: membership, health and load.
//
// A Fleet probes each worker every second. A worker that answers, and that Options.Check accepts, is healthy. Its
// Snapshot has its capabilities, its number of streams, and its Standing, which rates its latest streams. Package
// route chooses the worker of a stream.
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

// MaxWorkers bounds a fleet, because all of them may be asked at once what they know of a stream. A Worker's Slot is below it.
const MaxWorkers = 64

// Options say how a Fleet works.
type Options struct {
	// Self is this hop's name.
	Self string
	// Connect connects to a worker; nil means grpc-go.
	Connect Connect
	// Check says why a worker that answers cannot be used.
	Check func(*llmv1.WorkerInfo) error
	// Follow is called for each member while Watch runs, in a goroutine of its own, and returns when ctx is done; nil is nobody.
	Follow func(ctx context.Context, w *Worker)
	// Cooled is called when a worker is ejected for a cool-down, with the reason. It may be nil.
	Cooled func(why streamerr.Reason)
	// Log gets a line for each change of a worker's health, and for each cool-down.
	Log *slog.Logger
}

// A Fleet is the workers of one model.
type Fleet struct {
	// Static.
	opts Options

	workers atomic.Pointer[[]*Worker] // replaced by Set, never changed

	mu      sync.Mutex          // guards the following fields, and is held while workers is replaced
	names   map[*Worker]string  // of those that are healthy, and no two alike
	slots   [MaxWorkers]*Worker // whose each is
	leaving []*Worker           // no members any more, but they have streams
	probe   func(*Worker)       // has a worker watched; nil while Watch does not run
	changed func(healthy bool)  // what Watch was given
}

// New returns a fleet without workers. Set gives it some, and Watch asks them how they are.
func New(opts Options) *Fleet {
	f := &Fleet{opts: opts, names: make(map[*Worker]string)}
	f.workers.Store(new([]*Worker))
	return f
}

// check says why a worker that answers cannot be used: it does not fit, or its name is another one's. Names stand in paths,
// so two workers of one name could not be told apart; the first that is healthy keeps it until it no longer is.
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

// sameName refuses a worker that has the name of another worker.
type sameName struct{ name, first, second string }

func (s sameName) Error() string {
	return fmt.Sprintf("the workers at %s and %s are both called %s: give each its own --name", s.first, s.second, s.name)
}
