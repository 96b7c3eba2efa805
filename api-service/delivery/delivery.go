// Package delivery detects whether clients get tokens as they are sent, or in bursts because a
// proxy buffers them.
//
// The edge counts the pauses between the events that it writes. A client counts the pauses between
// the events that it reads, and reports them when the stream has ended. If events arrived in bursts
// but were not sent in bursts, a proxy has buffered them. The edge itself may send an answer in few
// events, because the engine produces several tokens at once or the reader is slow: Judge
// recognizes that by the number of tokens from below.
package delivery

import (
	"sync"
	"time"

	"github.com/whence-dev/whence/api-service/replay"
)

// A Delivery measures the delivery of one answer to one reader. A nil Delivery ignores all calls.
type Delivery struct {
	ID    string // of the stream
	Owner string // of the stream; "" if it has none
	// Kept is the head of a stream that can be read again, or nil. Its readers need the owner's
	// credentials or a token. It has no memo, which may be large: the log does not charge for a copy.
	Kept *replay.Head
	// Part reports that the reader already had some events. It is set before the first event.
	Part bool

	mu     sync.Mutex // guards the following fields
	events uint32
	last   time.Duration // when the last event was sent
	gaps   Gaps
	ended  time.Time // zero until Close
	told   bool
}

// Of returns the Delivery of a stream that can be read again.
func Of(h replay.Head) *Delivery {
	h.Memo = ""
	return &Delivery{ID: h.ID, Owner: h.Owner, Kept: &h}
}

// Head returns the head of the stream, as far as the Delivery has it.
func (d *Delivery) Head() replay.Head {
	if d.Kept != nil {
		return *d.Kept
	}
	return replay.Head{ID: d.ID, Owner: d.Owner}
}

// Sent records n text events that were written together. at is a time since any fixed start.
func (d *Delivery) Sent(at time.Duration, n int) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for range n {
		if d.events++; d.events > 1 {
			d.gaps.add(at - d.last)
		}
		d.last = at
	}
}

// Tell records the report of the reader. It returns the gaps and the number of the sent events.
// first is false if the reader has reported before.
func (d *Delivery) Tell() (sent Gaps, events uint32, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first = !d.told
	d.told = true
	return d.gaps, d.events, first
}

// Keep is how long after its end a delivery accepts a report.
const Keep = time.Minute

// maxEnded bounds the ended deliveries that are kept; beyond it the oldest are dropped.
const maxEnded = 10000

// A Book holds the deliveries of an edge: for each stream that of the latest reader. The zero value
// is ready to use, and all methods are safe for concurrent use.
type Book struct {
	mu    sync.Mutex // guards the following fields
	byID  map[string]*Delivery
	ended []*Delivery // in the order of their ends
}

// Open adds a delivery. The caller calls Close when the last event is written.
func (b *Book) Open(d *Delivery) *Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID == nil {
		b.byID = map[string]*Delivery{}
	}
	b.byID[d.ID] = d
	return d
}

// Rename gives the stream of a delivery another id, and its replay log, if there is one, another epoch.
func (b *Book) Rename(d *Delivery, id, epoch string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID[d.ID] == d {
		delete(b.byID, d.ID)
	}
	if d.ID = id; d.Kept != nil {
		d.Kept.ID, d.Kept.Epoch = id, epoch
	}
	b.byID[id] = d
}

// Close records the end of a delivery.
func (b *Book) Close(d *Delivery) {
	now := time.Now()
	d.mu.Lock()
	d.ended = now
	d.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = append(b.ended, d)
	b.forget(now)
}

// forget drops ended deliveries that are too old or too many. mu is held.
func (b *Book) forget(now time.Time) {
	n := 0
	for ; n < len(b.ended) && (len(b.ended)-n > maxEnded || now.Sub(b.ended[n].ended) > Keep); n++ {
		if old := b.ended[n]; b.byID[old.ID] == old { // otherwise the delivery of a later reader has replaced it
			delete(b.byID, old.ID)
		}
		b.ended[n] = nil
	}
	b.ended = b.ended[n:]
}

// Find returns the delivery of a stream to its latest reader, or nil.
func (b *Book) Find(id string) *Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(time.Now())
	return b.byID[id]
}
