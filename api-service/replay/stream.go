package replay

import (
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A phase is the state of a stream in memory. A stream goes from live to ended to forgotten, or from
// live to forgotten. It changes with Memory.mu and memoryStream.mu held, so either lock suffices to read
// it.
type phase uint8

const (
	phaseLive      phase = iota // it takes events
	phaseEnded                  // it has its closing event, and is kept for Limits.KeepsFor
	phaseForgotten              // it holds no events; readers and writers get ErrUnknown
)

// A memoryStream is the log of one stream.
type memoryStream struct {
	head     Head  // without the memo
	memoSize int64 // charged until the stream is forgotten
	keptFor  time.Duration
	seams    Seams // of the generations before the current one
	account  *account
	writer   Writer // of this stream, so that returning it allocates nothing
	// bytes is the charge of the stream. Between the eviction of a live stream and its closing
	// event bytes is memoSize. It changes with mu held.
	bytes atomic.Int64

	mu    sync.Mutex // guards the following fields; Memory.mu is taken first
	phase phase
	end   time.Time // when the closing event was appended
	memo  string    // "" once the stream is forgotten
	// text holds the data of all deltas after the dropped ones. It only grows, so a substring of
	// text is valid without the lock.
	text    strings.Builder
	ends    []uint32      // the end of each delta in text; it only grows, like text
	notes   notes         // of the deltas in text
	dropped uint64        // the number of deltas whose data was evicted
	rest    []Event       // the events after the deltas
	evicted bool          // the text was dropped to make room
	cause   error         // why the stream must end; nil while it may continue
	held    bool          // readers see only the events up to shown
	shown   uint64        // a position
	ready   chan struct{} // capacity 1: the outbox has work; nil without an outbox
	readers []*memoryReader
}

// describe returns the head with the memo. mu is held.
func (s *memoryStream) describe() Head {
	h := s.head
	h.Memo = s.memo
	return h
}

// deltas returns the position of the last delta. mu is held.
func (s *memoryStream) deltas() uint64 { return s.dropped + uint64(len(s.ends)) }

// last returns the position of the last event. mu is held.
func (s *memoryStream) last() uint64 { return s.deltas() + uint64(len(s.rest)) }

// addDelta stores a delta. mu is held.
func (s *memoryStream) addDelta(data, note []byte) {
	s.text.Write(data)
	s.notes.add(len(s.ends), note)
	s.endDelta()
}

// endDelta ends a delta at the end of text. mu is held.
func (s *memoryStream) endDelta() {
	s.ends = append(s.ends, uint32(s.text.Len())) // Limits.StreamBytes keeps it in range
}

// add stores an event. mu is held.
func (s *memoryStream) add(e Event) {
	if e.Kind == Delta {
		s.text.WriteString(e.Data)
		s.notes.add(len(s.ends), []byte(e.Note))
		s.endDelta()
		return
	}
	e.Seq, e.Note = s.seams.Number(s.last()+1), ""
	s.rest = append(s.rest, e)
}

// drop removes the data of all events, and the memo. mu is held.
func (s *memoryStream) drop() {
	s.text.Reset()
	s.memo = ""
	s.ends, s.rest, s.notes = nil, nil, notes{}
}

// evict drops the deltas of a live stream, which must then end with a Failure. It returns the
// number of bytes by which the charge has dropped. mu is held.
func (s *memoryStream) evict() int64 {
	s.evicted, s.dropped = true, s.deltas()
	s.text.Reset()
	s.ends, s.notes = nil, notes{}
	if s.cause == nil {
		s.cause = errEvicted
	}
	return s.bytes.Swap(s.memoSize) - s.memoSize
}

// announce tells the readers, or the outbox that holds them back, that there are new events. mu is
// held.
func (s *memoryStream) announce() {
	s.wakeOutbox()
	if !s.held {
		s.wakeReaders()
	}
}

func (s *memoryStream) wakeOutbox() {
	select {
	case s.ready <- struct{}{}:
	default: // the outbox has a value already, or there is no outbox
	}
}

func (s *memoryStream) wakeReaders() {
	for _, r := range s.readers {
		r.wake()
	}
}

// A section is a part of a stream's log. It is a view: it shares the bytes of the stream, which do
// not change, and needs no lock.
type section struct {
	text    string
	ends    []uint32
	dropped uint64 // the number of deltas before ends
	rest    []Event
	seams   Seams
}

// section returns the current log of the stream. mu is held.
func (s *memoryStream) section() section {
	return section{text: s.text.String(), ends: s.ends, dropped: s.dropped, rest: s.rest, seams: s.seams}
}

// offset returns the end in text of the delta at this position.
func (v *section) offset(position uint64) int {
	if position <= v.dropped {
		return 0
	}
	return int(v.ends[position-v.dropped-1])
}

// merged appends the events at the positions in (after, to] to events. Consecutive deltas of one
// generation become one event of at most maxBytes; a larger delta is an event of its own.
func (v *section) merged(events []Event, after, to uint64, maxBytes int) []Event {
	deltas := v.dropped + uint64(len(v.ends))
	after = max(after, v.dropped)
	for stop := min(to, deltas); after < stop; {
		from, rest := v.offset(after), v.ends[after-v.dropped:v.seams.until(after, stop)-v.dropped]
		n := max(1, sort.Search(len(rest), func(i int) bool { return int(rest[i])-from > maxBytes }))
		after += uint64(n)
		events = append(events, Event{Seq: v.seams.Number(after), Kind: Delta, Data: v.text[from:rest[n-1]]})
	}
	if to > deltas {
		events = append(events, v.rest[after-deltas:to-deltas]...)
	}
	return events
}
