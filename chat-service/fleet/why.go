package fleet

import (
	"context"
	"slices"
	"sync"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// Why returns what the workers know of a stream, in the order in which they had it. known is what this hop knows of it, nil
// if nothing. Workers are asked at once: those that the stream was on, or all of them where that is not known; one that
// cannot be asked tells nothing.
func (f *Fleet) Why(ctx context.Context, id string, known *streamv1.Record) []*streamv1.Record {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	workers := f.had(known)
	lone := known != nil && len(known.GetMoves())+len(known.GetHandovers()) == 0
	told := make([][]*streamv1.Record, len(workers))
	var asked sync.WaitGroup
	for i, w := range workers {
		asked.Go(func() {
			resp, err := w.streams.Why(ctx, &streamv1.WhyRequest{StreamId: id})
			if err != nil {
				return // the hops that can be asked tell what they know
			}
			told[i] = resp.GetHops()
			if lone {
				cancel() // it was on one worker: the others need not be waited for
			}
		})
	}
	asked.Wait()
	return slices.Concat(told...)
}

// had returns the workers that a record names: those that have read the prompt, each before the one it was read for, and those that
// the stream moved to, in that order. A record that names nobody is everybody's.
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
