package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Set makes the workers at targets (host:port) the members of the fleet. Workers that were members
// before stay as they are. Workers that are no longer listed get no new streams, finish their
// streams, and are then closed. Targets beyond MaxWorkers, and targets that cannot be dialed, are
// left out and named in the error.
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
		errs = append(errs, fmt.Errorf("%d workers are left out: a model can have at most %d", beyond, MaxWorkers))
	}
	f.workers.Store(&after)
	f.notify()
	f.mu.Unlock()

	for _, w := range gone {
		if w.ours.Load() == 0 {
			w.close()
		}
	}
	return errors.Join(errs...)
}

// join connects to a worker and gives it a free slot. The fleet's mu is held.
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

// leave removes a worker from the members, and frees its name and slot. The fleet's mu is held.
func (f *Fleet) leave(w *Worker) {
	w.leaving.Store(true)
	if w.unwatch != nil {
		w.unwatch()
	}
	delete(f.names, w)
	f.slots[w.slot] = nil
	f.leaving = append(f.leaving, w)
}

// forget drops a former member whose last stream has ended.
func (f *Fleet) forget(w *Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaving = slices.DeleteFunc(f.leaving, func(other *Worker) bool { return other == w })
}

// Watch probes the workers until ctx is done. changed is told whether any healthy worker takes
// whole streams. Calls of changed are not concurrent.
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
				f.notify()
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

// notify calls changed. The fleet's mu is held.
func (f *Fleet) notify() {
	if f.changed == nil {
		return
	}
	f.changed(slices.ContainsFunc(f.Members(), func(w *Worker) bool { return Answers(w.info.Load()) }))
}

// Count returns the number of healthy workers and the number of members.
func (f *Fleet) Count() (healthy, known int) {
	members := f.Members()
	for _, w := range members {
		if w.info.Load() != nil {
			healthy++
		}
	}
	return healthy, len(members)
}

// Healthy reports whether the worker at target is a healthy member.
func (f *Fleet) Healthy(target string) bool {
	w := at(f.Members(), target)
	return w != nil && w.info.Load() != nil
}

// Context returns the longest context of a healthy worker in tokens, or 0 if no worker is healthy.
func (f *Fleet) Context() int {
	longest := 0
	for _, w := range f.Members() {
		if info := w.info.Load(); Answers(info) {
			longest = max(longest, int(info.GetContextLength()))
		}
	}
	return longest
}

// Members returns the workers that may get streams, in the order of the configuration. The slice
// must not be modified.
func (f *Fleet) Members() []*Worker { return *f.workers.Load() }

// everybody returns the members, followed by the workers that are leaving.
func (f *Fleet) everybody() []*Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Concat(f.Members(), f.leaving)
}

// at returns the worker at target, or nil.
func at(workers []*Worker, target string) *Worker {
	for _, w := range workers {
		if w.target == target {
			return w
		}
	}
	return nil
}
