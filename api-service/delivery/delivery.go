// Package delivery tells whether clients get tokens as they are sent, or in the bursts of a proxy that collects them.
//
// The edge counts the pauses between the events that it writes, a client those between the events that it reads, and says so
// when the stream is over. What came in bursts and was not sent in bursts was collected between. An answer that the edge itself
// sent in few events, because the engine makes several tokens at once or the reader is slow, is told apart by the tokens that
// came from below.
package delivery

import (
	"sync"
	"time"

	"github.com/whence-dev/whence/api-service/replay"
)

// A Delivery is one answer to one reader, as it is written. A nil Delivery takes everything.
type Delivery struct {
	// Head is the stream's, with the credentials that made it. Open removes the memo.
	Head replay.Head
	// Kept says that readers need those, or a token.
	Kept bool
	// Part is set before the first event if the reader had some already.
	Part bool

	mu     sync.Mutex // guards the following fields
	events uint32
	last   time.Duration // when an event was sent
	gaps   Gaps
	ended  time.Time // zero while it is being written
	told   bool
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

// Tell notes that the reader has told what it saw, and returns what was sent; first is false if it has done so before.
func (d *Delivery) Tell() (sent Gaps, events uint32, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first = !d.told
	d.told = true
	return d.gaps, d.events, first
}

// Keep is how long after its end a delivery can be told about.
const Keep = time.Minute

// maxEnded is how many ended deliveries are kept at most; with more, the oldest are forgotten.
const maxEnded = 10000

// A Book holds the deliveries of an edge, for each stream that of the reader who came last. The zero value is ready for use, and all
// methods are safe for concurrent use.
type Book struct {
	mu    sync.Mutex // guards the following fields
	byID  map[string]*Delivery
	ended []*Delivery // in the order in which they ended
}

// Open takes a delivery in. The caller closes it when nothing more is written.
func (b *Book) Open(d *Delivery) *Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID == nil {
		b.byID = map[string]*Delivery{}
	}
	d.Head.Memo = "" // it may be large, and the log does not charge for it here
	b.byID[d.Head.ID] = d
	return d
}

// Close notes that nothing more is written.
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

// forget drops what ended too long ago, or is too much. mu is held.
func (b *Book) forget(now time.Time) {
	n := 0
	for ; n < len(b.ended) && (len(b.ended)-n > maxEnded || now.Sub(b.ended[n].ended) > Keep); n++ {
		if old := b.ended[n]; b.byID[old.Head.ID] == old { // else a later reader's stands there
			delete(b.byID, old.Head.ID)
		}
		b.ended[n] = nil
	}
	b.ended = b.ended[n:]
}

// Find returns the delivery of a stream to the reader who came last, or nil.
func (b *Book) Find(id string) *Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(time.Now())
	return b.byID[id]
}
