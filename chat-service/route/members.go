package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Set makes the workers at targets, each a host:port, the members of the pool, whoever they were before. One that was a member
// stays as it is. One that is none any more gets no new streams, finishes those that it has, and is closed then. Targets
// beyond MaxWorkers, and those that cannot be dialed, are left out; the error names them.
func (p *Pool) Set(targets ...string) error {
	p.mu.Lock()
	before := p.members()
	var gone []*Worker
	for _, w := range before {
		if !slices.Contains(targets, w.target) {
			p.leave(w)
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
		slot := slices.Index(p.slots[:], nil)
		switch {
		case w != nil:
		case slot < 0:
			beyond++
			continue
		default:
			var err error
			if w, err = p.join(target, slot); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		after = append(after, w)
	}
	if beyond > 0 {
		errs = append(errs, fmt.Errorf("%d workers are left out: there are %d already, the most there may be", beyond, MaxWorkers))
	}
	p.workers.Store(&after)
	p.tell()
	p.mu.Unlock()

	for _, w := range gone {
		if w.ours.Load() == 0 {
			w.close()
		}
	}
	return errors.Join(errs...)
}

// join makes a worker, with a slot that is free. The pool's mu is held.
func (p *Pool) join(target string, slot int) (*Worker, error) {
	w, err := dial(p.opts.Self, target, p.check, p.opts.Log)
	if err != nil {
		return nil, err
	}
	w.slot, w.closed = slot, func() { p.forget(w) }
	p.slots[slot] = w
	if p.probe != nil {
		p.probe(w)
	}
	return w, nil
}

// leave takes a worker's place, name and slot. The pool's mu is held.
func (p *Pool) leave(w *Worker) {
	w.leaving.Store(true)
	if w.unwatch != nil {
		w.unwatch()
	}
	delete(p.names, w)
	p.slots[w.slot] = nil
	p.leaving = append(p.leaving, w)
}

// forget drops a worker that has left.
func (p *Pool) forget(w *Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving = slices.DeleteFunc(p.leaving, func(other *Worker) bool { return other == w })
}

// Watch asks the workers how they are, again and again, until ctx is done. changed is told whether any is healthy, by one
// goroutine at a time.
func (p *Pool) Watch(ctx context.Context, changed func(healthy bool)) {
	var all sync.WaitGroup
	p.mu.Lock()
	p.changed = changed
	p.probe = func(w *Worker) {
		watching, unwatch := context.WithCancel(ctx)
		w.unwatch = unwatch
		if p.opts.KV != nil {
			all.Go(func() { p.opts.KV.follow(watching, w) })
		}
		all.Go(func() {
			defer unwatch()
			w.watch(watching, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				if w.info.Load() == nil {
					delete(p.names, w)
				}
				select {
				case w.turned <- struct{}{}:
				default:
				}
				p.tell()
			})
		})
	}
	for _, w := range p.members() {
		p.probe(w)
	}
	p.mu.Unlock()

	<-ctx.Done()
	p.mu.Lock()
	p.probe, p.changed = nil, nil
	p.mu.Unlock()
	all.Wait()
}

// tell says whether any worker is healthy. The pool's mu is held.
func (p *Pool) tell() {
	if p.changed == nil {
		return
	}
	healthy, _ := p.Count()
	p.changed(healthy > 0)
}

// Count returns how many workers are healthy, of how many.
func (p *Pool) Count() (healthy, known int) {
	members := p.members()
	for _, w := range members {
		if w.info.Load() != nil {
			healthy++
		}
	}
	return healthy, len(members)
}

// Context returns the longest context that a healthy worker has, in tokens; 0 if none is healthy.
func (p *Pool) Context() int {
	longest := 0
	for _, w := range p.members() {
		longest = max(longest, int(w.info.Load().GetContextLength()))
	}
	return longest
}

// members returns the workers that may get streams, in the order of the configuration. It must not be changed.
func (p *Pool) members() []*Worker { return *p.workers.Load() }

// everybody returns the members, and behind them those that are leaving.
func (p *Pool) everybody() []*Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Concat(p.members(), p.leaving)
}

// alone reports whether a stream on w could go nowhere else.
func (p *Pool) alone(w *Worker) bool {
	members := p.members()
	return len(members) == 0 || len(members) == 1 && members[0] == w
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
