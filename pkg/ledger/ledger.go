// Package ledger remembers what became of a hop's streams: those that run, and the last that ended, as many as its bound
// says. What it keeps of a stream is a whence.stream.v1.Record.
package ledger

import (
	"slices"
	"sync"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/tally"
	"github.com/whence-dev/whence/pkg/usage"
)

// DefaultMax is how many ended streams a ledger keeps; a record is about half a kilobyte, and
// its trace another one and a half.
const DefaultMax = 10000

// A Ledger holds records by stream id. It is an observer.Observer: what it is told of a stream goes into the record, and from
// there into the metrics and the trace, so that the three agree. The zero value keeps DefaultMax ended streams. All methods
// are safe for concurrent use. Its fields must not change while it is in use.
type Ledger struct {
	// Max is how many ended streams are kept; the oldest is forgotten for a new one.
	Max int
	// Metrics counts the streams; nil for none.
	Metrics *metrics.Hop
	// Traces keeps what happens to the streams; nil for none.
	Traces *streamtrace.Tracer
	// Usage gets a record for each ended stream that this hop has to account for; nil for none.
	Usage *usage.Log

	mu    sync.Mutex // guards the following fields
	byID  map[string]*Record
	ended []*Record            // a ring once it is full
	next  int                  // the place in ended that is written next
	total uint64               // streams that have ended
	owed  map[*Record]struct{} // ended streams whose usage record waits for the end of calls that they have left
}

// Open begins the record of a stream on hop that came from peer. A reused id refers to this stream from now on.
func (l *Ledger) Open(id, hop, peer string) *Record {
	r := l.record(id, hop, peer)
	l.add(r)
	return r
}

// record returns a record that nobody can find yet.
func (l *Ledger) record(id, hop, peer string) *Record {
	t := tally.New(time.Now())
	return &Record{id: id, hop: hop, peer: peer, tally: t, ledger: l, seen: l.Metrics.Begin(t)}
}

func (l *Ledger) add(r *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID = make(map[string]*Record)
	}
	l.byID[r.id] = r
}

func (l *Ledger) close(r *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	limit := l.Max
	if limit <= 0 {
		limit = DefaultMax
	}
	if len(l.ended) < limit {
		l.ended = append(l.ended, r)
		return
	}
	old := l.ended[l.next]
	if l.byID[old.id] == old { // its id may be another stream's by now
		delete(l.byID, old.id)
	}
	l.ended[l.next] = r
	l.next = (l.next + 1) % limit
}

// Get returns what is known of a stream, its events included, or nil.
func (l *Ledger) Get(id string) *streamv1.Record {
	l.mu.Lock()
	r := l.byID[id]
	l.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.Told()
}

// Delivered notes how a stream came to its client, if the stream is known, and whatever has become of it.
func (l *Ledger) Delivered(id string, d *streamv1.Delivery) {
	l.mu.Lock()
	r := l.byID[id]
	l.mu.Unlock()
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delivery = d
}

// Parts returns how many streams a stream is on the hop below; 0 if it is one, of the same id, or is not known.
func (l *Ledger) Parts(id string) int {
	l.mu.Lock()
	r := l.byID[id]
	l.mu.Unlock()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parts
}

// OwnedBy reports whether a record's stream belongs to one of the owners; without owners, every stream does. A record
// without an owner field belongs to no owner, not even the empty one.
func OwnedBy(r *streamv1.Record, owners ...string) bool {
	return len(owners) == 0 || r.Owner != nil && slices.Contains(owners, r.GetOwner())
}

// Ended returns the last ended streams that want accepts, newest first, and at most limit of them.
func (l *Ledger) Ended(limit int, want func(*streamv1.Record) bool) []*streamv1.Record {
	l.mu.Lock()
	all := slices.Concat(l.ended[l.next:], l.ended[:l.next]) // oldest first
	l.mu.Unlock()
	var found []*streamv1.Record
	for _, r := range slices.Backward(all) {
		if len(found) >= limit {
			break
		}
		if p := r.Proto(); want(p) {
			found = append(found, p)
		}
	}
	return found
}

// Total returns how many streams have ended, those that are forgotten included.
func (l *Ledger) Total() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}
