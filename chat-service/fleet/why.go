package fleet

import (
	"context"
	"slices"
	"sync"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// Why returns the workers' records of a stream: first those of the workers that known, this hop's
// record, names, in the order in which they ran the stream. Workers that another chat-service called
// may have a record, too, so Why asks all workers at once. It waits for the named and for the healthy
// ones. A worker that does not answer is left out. known may be nil.
func (f *Fleet) Why(ctx context.Context, id string, known *streamv1.Record) []*streamv1.Record {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	workers, named := f.had(known)
	records := make([][]*streamv1.Record, len(workers))
	var all, awaited sync.WaitGroup
	for i, w := range workers {
		ask := func() {
			if resp, err := w.streams.Why(ctx, &streamv1.WhyRequest{StreamId: id}); err == nil {
				records[i] = resp.GetHops()
			}
		}
		if i < named || w.info.Load() != nil {
			awaited.Go(ask)
		} else {
			all.Go(ask)
		}
	}
	awaited.Wait()
	cancel()
	all.Wait() // after cancel, so that no call outlives Why
	return slices.Concat(records...)
}

// had returns all workers: first the named ones that a record names, in order, with prefill workers
// before their decode workers, and then the others.
func (f *Fleet) had(known *streamv1.Record) (workers []*Worker, named int) {
	everybody := f.everybody()
	add := func(names ...string) {
		for _, name := range names {
			for _, w := range everybody {
				if name != "" && w.Name() == name && !slices.Contains(workers, w) {
					workers = append(workers, w)
				}
			}
		}
	}
	for _, h := range known.GetHandovers() {
		add(h.GetFrom(), h.GetTo())
	}
	for _, m := range known.GetMoves() {
		add(m.GetFrom(), m.GetTo())
	}
	add(known.GetWorkers()...)
	named = len(workers)
	for _, w := range everybody {
		if !slices.Contains(workers, w) {
			workers = append(workers, w)
		}
	}
	return workers, named
}
