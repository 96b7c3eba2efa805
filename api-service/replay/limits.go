package replay

import "time"

// Limits bound a log. A zero field means its default.
type Limits struct {
	Bytes       int           // over all streams; when full, owners above their share lose streams
	StreamBytes int           // per stream; an append past it fails with ErrFull
	TTL         time.Duration // how long an ended stream is kept
}

// Defaults of Limits.
const (
	DefaultBytes       = 256 << 20
	DefaultStreamBytes = 4 << 20
	DefaultTTL         = 5 * time.Minute
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
	return l
}

// The charge of a stream, besides the data of its events, in bytes.
const (
	headCost  = 1024 // per stream, and its memo
	eventCost = 4    // per event
)

// cost returns the charge of a stream without events.
func (h *Head) cost() int64 { return int64(headCost + len(h.Memo)) }
