package ledger

import "slices"

// maxWorkers bounds the workers of a record; further workers are not recorded. The code that moves
// streams allows fewer moves.
const maxWorkers = 16

// AnsweredBy records that a worker answers the stream from now on. It ignores an empty name, which
// means that the worker is not known.
func (r *Record) AnsweredBy(worker string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answeredBy(worker)
}

// answeredBy is AnsweredBy with r.mu held.
func (r *Record) answeredBy(worker string) {
	if worker == "" {
		return
	}
	if r.account != nil {
		r.account.worker = worker
	}
	if len(r.workers) < maxWorkers && !slices.Contains(r.workers, worker) {
		r.workers = append(r.workers, worker)
	}
}

// allWorkers returns the workers of the stream. The path of an ending that began at the engine names
// the last one. r.mu is held.
func (r *Record) allWorkers() []string {
	all := slices.Clone(r.workers)
	if len(r.path) > 1 && r.path[0] == engine && !slices.Contains(all, r.path[1]) {
		all = append(all, r.path[1])
	}
	return all
}
