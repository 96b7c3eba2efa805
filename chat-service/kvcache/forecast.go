package kvcache

import (
	"sync"
	"time"
)

// A forecast is the set of blocks that workers are expected to hold because prompts were sent to
// them. Each block expires after a time since it was last sent. The forecast has at most as many
// blocks as its index; beyond that the oldest prompts expire early. It is safe for concurrent use.
type forecast struct {
	index *index
	ttl   time.Duration

	mu      sync.Mutex       // guards the following fields
	sent    []forecastPrompt // oldest first
	blocks  int              // in sent
	pending map[expectation]int
}

// A forecastPrompt is a prompt that was sent to a worker.
type forecastPrompt struct {
	worker workerNumber
	names  []uint64
	until  time.Time
}

// An expectation is a block that a worker is expected to hold. It is pending while sent has a
// prompt with the block.
type expectation struct {
	name   uint64
	worker workerNumber
}

// newForecast returns a forecast in the index x, whose blocks expire after ttl.
func newForecast(x *index, ttl time.Duration) *forecast {
	return &forecast{index: x, ttl: ttl, pending: make(map[expectation]int)}
}

// Sent records that a worker will soon hold blocks. The forecast retains names.
func (f *forecast) Sent(w workerNumber, names []uint64, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire(now)
	if len(names) == 0 || len(names) > f.index.limit {
		return
	}
	for f.blocks+len(names) > f.index.limit {
		f.drop()
	}
	f.sent = append(f.sent, forecastPrompt{w, names, now.Add(f.ttl)})
	f.blocks += len(names)
	for _, name := range names {
		f.pending[expectation{name, w}]++
	}
	f.index.each(names, func(name uint64) { f.index.store(w, name, true) })
}

// Expire removes prompts that were sent more than ttl ago.
func (f *forecast) Expire(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire(now)
}

func (f *forecast) expire(now time.Time) {
	for len(f.sent) > 0 && !now.Before(f.sent[0].until) {
		f.drop()
	}
}

// drop removes the oldest prompt.
func (f *forecast) drop() {
	s := f.sent[0]
	f.sent[0] = forecastPrompt{}
	f.sent = f.sent[1:]
	f.blocks -= len(s.names)
	f.index.each(s.names, func(name uint64) {
		h := expectation{name, s.worker}
		if f.pending[h]--; f.pending[h] == 0 {
			delete(f.pending, h)
			f.index.remove(s.worker, name, true)
		}
	})
}
