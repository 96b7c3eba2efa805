package replay

import "time"

// Limits bound a log. A zero field means its default.
type Limits struct {
	Bytes       int           // over all streams; when full, owners above their share lose streams
	StreamBytes int           // per stream; an append past it fails with ErrFull
	TTL         time.Duration // how long an ended stream is kept
	MemoTTL     time.Duration // the same for a stream with a memo, if that is longer
}

// Defaults of Limits.
const (
	DefaultBytes       = 256 << 20
	DefaultStreamBytes = 4 << 20
	DefaultTTL         = 5 * time.Minute
	DefaultMemoTTL     = time.Hour
)

// WithDefaults returns the limits with the defaults in place of zero fields.
func (l Limits) WithDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = DefaultBytes
	}
	if l.StreamBytes == 0 {
		l.StreamBytes = DefaultStreamBytes
	}
	if l.TTL == 0 {
		l.TTL = DefaultTTL
	}
	if l.MemoTTL == 0 {
		l.MemoTTL = DefaultMemoTTL
	}
	l.MemoTTL = max(l.MemoTTL, l.TTL)
	return l
}

// KeepsFor returns how long the stream of a head is kept after its end. The limits have no zero field.
func (l Limits) KeepsFor(h Head) time.Duration {
	if h.Memo != "" {
		return l.MemoTTL
	}
	return l.TTL
}

// The charge of a stream, besides the data of its events, in bytes.
const (
	headCost  = 1024 // per stream, and its memo
	eventCost = 4    // per event
)

// cost returns the charge of a stream without events.
func (h *Head) cost() int64 { return int64(headCost + len(h.Memo)) }
