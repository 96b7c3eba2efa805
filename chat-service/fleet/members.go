package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Set makes the workers at targets, each a host:port, the members of the fleet, whoever they were before. One that was a member
// stays as it is. One that is none any more gets no new streams, finishes those that it has, and is closed then. Targets
// beyond MaxWorkers, and those that cannot be dialed, are left out; the error names them.
func (f *Fleet) Set(targets ...string) error {
	f.mu.Lock()
	before := f.Members()
	var gone []*Worker
	for _, w := range before {
		if !slices.Contains(targets, w.target) {
			f.leave(w)
			gone = append(gone, w)
		}
	}
	var after []*Worker
	var errs []error
	beyond := 0
	for _, target := range targets {
		if at(after, target) != nil {
			continue
		}
		w := at(before, target)
		slot := slices.Index(f.slots[:], nil)
		switch {
		case w != nil:
		case slot < 0:
			beyond++
			continue
		default:
			var err error
			if w, err = f.join(target, slot); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		after = append(after, w)
	}
	if beyond > 0 {
		errs = append(errs, fmt.Errorf("%d workers are left out: there are %d already, the most there may be", beyond, MaxWorkers))
	}
	f.workers.Store(&after)
	f.tell()
	f.mu.Unlock()

	for _, w := range gone {
		if w.ours.Load() == 0 {
			w.close()
		}
	}
	return errors.Join(errs...)
}

// join makes a worker, with a slot that is free. The fleet's mu is held.
func (f *Fleet) join(target string, slot int) (*Worker, error) {
	w, err := dial(f.opts.Connect, f.opts.Self, target, f.check, f.opts.Log)
	if err != nil {
		return nil, err
	}
	w.slot, w.closed, w.cooled = slot, func() { f.forget(w) }, f.opts.Cooled
	f.slots[slot] = w
	if f.probe != nil {
		f.probe(w)
	}
	return w, nil
}

// leave takes a worker's place, name and slot. The fleet's mu is held.
func (f *Fleet) leave(w *Worker) {
	w.leaving.Store(true)
	if w.unwatch != nil {
		w.unwatch()
	}
	delete(f.names, w)
	f.slots[w.slot] = nil
	f.leaving = append(f.leaving, w)
}

// forget drops a worker that has left.
func (f *Fleet) forget(w *Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaving = slices.DeleteFunc(f.leaving, func(other *Worker) bool { return other == w })
}

// Watch asks the workers how they are, again and again, until ctx is done. changed is told whether any is healthy that takes whole
// streams, by one goroutine at a time.
func (f *Fleet) Watch(ctx context.Context, changed func(healthy bool)) {
	var all sync.WaitGroup
	f.mu.Lock()
	f.changed = changed
	f.probe = func(w *Worker) {
		watching, unwatch := context.WithCancel(ctx)
		w.unwatch = unwatch
		if f.opts.Follow != nil {
			all.Go(func() { f.opts.Follow(watching, w) })
		}
		all.Go(func() {
			defer unwatch()
			w.watch(watching, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				if w.info.Load() == nil {
					delete(f.names, w)
				}
				select {
				case w.turned <- struct{}{}:
				default:
				}
				f.tell()
			})
		})
	}
	for _, w := range f.Members() {
		f.probe(w)
	}
	f.mu.Unlock()

	<-ctx.Done()
	f.mu.Lock()
	f.probe, f.changed = nil, nil
	f.mu.Unlock()
	all.Wait()
}

// tell says whether any worker is healthy that takes whole streams. The fleet's mu is held.
func (f *Fleet) tell() {
	if f.changed == nil {
		return
	}
	f.changed(slices.ContainsFunc(f.Members(), func(w *Worker) bool { return Answers(w.info.Load()) }))
}

// Count returns how many workers are healthy, of how many.
func (f *Fleet) Count() (healthy, known int) {
	members := f.Members()
	for _, w := range members {
		if w.info.Load() != nil {
			healthy++
		}
	}
	return healthy, len(members)
}

// Context returns the longest context that a healthy worker has, in tokens; 0 if none is healthy.
func (f *Fleet) Context() int {
	longest := 0
	for _, w := range f.Members() {
		if info := w.info.Load(); Answers(info) {
			longest = max(longest, int(info.GetContextLength()))
		}
	}
	return longest
}

// Members returns the workers that may get streams, in the order of the configuration. It must not be changed.
func (f *Fleet) Members() []*Worker { return *f.workers.Load() }

// everybody returns the members, and behind them those that are leaving.
func (f *Fleet) everybody() []*Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Concat(f.Members(), f.leaving)
}

// at returns the worker at target; nil if there is none.
func at(workers []*Worker, target string) *Worker {
	for _, w := range workers {
		if w.target == target {
			return w
		}
	}
	return nil
}
