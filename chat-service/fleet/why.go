package fleet

import (
	"context"
	"slices"
	"sync"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// Why returns the workers' records of a stream, in the order in which they ran it. known is this
// hop's record, or nil. Why asks all workers of the record at once, or all workers if there is no
// record. A worker that does not answer is left out.
func (f *Fleet) Why(ctx context.Context, id string, known *streamv1.Record) []*streamv1.Record {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	workers := f.had(known)
	lone := known != nil && len(known.GetMoves())+len(known.GetHandovers()) == 0
	records := make([][]*streamv1.Record, len(workers))
	var asked sync.WaitGroup
	for i, w := range workers {
		asked.Go(func() {
			resp, err := w.streams.Why(ctx, &streamv1.WhyRequest{StreamId: id})
			if err != nil {
				return // other hops may still answer
			}
			records[i] = resp.GetHops()
			if lone {
				cancel() // the stream was on one worker only, so do not wait for the others
			}
		})
	}
	asked.Wait()
	return slices.Concat(records...)
}

// had returns the workers that a record names, in order: prefill workers before their decode
// workers, then the workers that the stream moved to. If the record names no worker, had returns
// all workers.
func (f *Fleet) had(known *streamv1.Record) (workers []*Worker) {
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
	if len(workers) == 0 {
		return everybody
	}
	return workers
}
