// Package ledger keeps the records of a hop's streams: of all live streams, and of a bounded number
// of streams that have ended. A record is a whence.stream.v1.Record.
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

// DefaultMax is the default number of ended streams in a ledger. A record takes about half a
// kilobyte, and its trace another one and a half.
const DefaultMax = 10000

// A Ledger holds records by stream id. It is an observer.Observer: each event of a stream goes into
// the stream's record, and from there into the metrics and the trace, so that the three agree. The
// zero value keeps DefaultMax ended streams. All methods are safe for concurrent use. Its fields
// must not change while it is in use.
type Ledger struct {
	// Max is the number of ended streams to keep. When it is reached, each new one replaces the
	// oldest.
	Max int
	// Metrics counts the streams. It may be nil.
	Metrics *metrics.Hop
	// Traces keeps the events of the streams. It may be nil.
	Traces *streamtrace.Tracer
	// Usage receives a usage record for each ended stream that this hop accounts for. It may be
	// nil.
	Usage *usage.Log

	mu    sync.Mutex // guards the following fields
	byID  map[string]*Record
	ended []*Record            // a ring when full
	next  int                  // the index in ended that is written next
	total uint64               // streams that have ended
	owed  map[*Record]struct{} // ended streams whose usage record waits for the end of abandoned calls
}

// Open begins the record of a stream on hop that came from peer. If id is reused, it refers to this
// stream from now on.
func (l *Ledger) Open(id, hop, peer string) *Record {
	r := l.record(id, hop, peer)
	l.add(r)
	return r
}

// record returns a record that is not in the ledger yet.
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

// Rename gives the stream of a record another id, by which the ledger finds it from now on.
func (r *Record) Rename(id string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	if r.ledger.byID[r.id] == r {
		delete(r.ledger.byID, r.id)
	}
	r.id = id
	r.ledger.byID[id] = r
}

// close adds r, whose mutex the caller holds, to the ended streams.
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
	if l.byID[old.id] == old { // the id may belong to another stream by now
		delete(l.byID, old.id)
	}
	l.ended[l.next] = r
	l.next = (l.next + 1) % limit
}

// Get returns the record of a stream with its events, or nil if the stream is unknown.
func (l *Ledger) Get(id string) *streamv1.Record {
	l.mu.Lock()
	r := l.byID[id]
	l.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.protoWithEvents()
}

// Delivered records how a stream reached its client. It ignores an unknown stream.
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

// Parts returns the number of streams on the hop below that make up a stream. It returns 0 if that
// is one stream with the same id, or if the stream is unknown.
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

// OwnedBy reports whether a record's stream belongs to one of the owners. Without owners, it
// returns true. A record without an owner field belongs to no owner, not even to the empty owner.
func OwnedBy(r *streamv1.Record, owners ...string) bool {
	return len(owners) == 0 || r.Owner != nil && slices.Contains(owners, r.GetOwner())
}

// Ended returns at most limit ended streams that want accepts, newest first.
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

// Total returns the number of streams that have ended, including streams that the ledger no longer
// keeps.
func (l *Ledger) Total() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}
