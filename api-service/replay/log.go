// Package replay keeps the events of streams, so that several readers can read a stream, start
// late, and reconnect.
//
// The log of a stream is a sequence of events, numbered from 1, that ends with one closing event. A
// reader holds a cursor: the number of the last event that it has received. Nothing is queued per
// reader. Unread deltas are merged into one event under the number of the last of them, so a slow
// reader gets fewer, larger events and loses nothing. A log bounds its bytes, over all streams and per
// stream, and the time for which it keeps an ended stream.
//
// # Encoding
//
// A delta is encoded once, by the writer of the stream (package follow), into a form whose
// concatenation is the encoding of the concatenated text. The log stores these bytes, merges deltas by
// taking a longer slice of them, and hands the same bytes to every reader and to Redis. It never parses
// them.
//
// # Locks
//
// Each stream has a lock of its own. Appending an event, reading, and waking readers take only this
// lock, and bytes are counted with atomics. The lock of the whole log is taken when a stream begins,
// ends, expires or is forgotten, when a reader opens a stream, and when the log is full and evicts
// something. It is always taken before the lock of a stream.
//
// # Generations
//
// Another instance that shares the log can take a stream over. Each takeover begins a generation of
// events. The number of an event is its generation (from 0) times 1e9, plus its position in the log
// (from 1). So numbers grow, and the number of an event that an earlier instance has shown to a
// reader without storing it never names another event: a cursor with such a number is refused with
// ErrAhead.
//
// Memory keeps the log in the process. Package redislog shares the log between processes. Package
// replaytest tests the contract of every log.
package replay

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"
)

// A Kind is the type of an event. Readers see it as the event's name.
type Kind string

// The kinds of events. The last event of a stream is an Ending or a Failure; no earlier event is.
const (
	Delta   Kind = "delta" // Data can be concatenated with the Data of other deltas
	Usage   Kind = "usage" // JSON, as in all later kinds
	Ending  Kind = "ending"
	Failure Kind = "error"
)

// Closing reports whether an event of this kind is the last one of its stream.
func (k Kind) Closing() bool { return k == Ending || k == Failure }

// An Event is one entry in the log of a stream.
type Event struct {
	Seq  uint64 // from 1; an event with several merged deltas has the number of the last; set by Append
	Kind Kind
	Data string
	// Note is for an instance that takes the stream over, not for readers. Only deltas have notes, and
	// the log never parses them.
	Note string
}

// Generation returns the number of takeovers before the event.
func (e *Event) Generation() uint64 { return e.Seq / generationSize }

// A Head describes a stream.
type Head struct {
	ID    string // unguessable
	Epoch string // identifies this log of the stream; a cursor contains the epoch of its log
	Owner string // digest of the credentials that created the stream; "" if there were none
	Key   string // digest of the idempotency key; "" if there was none
	Body  string // digest of the request
	Edge  string // the hop that runs the stream
	Began time.Time
	// Form names the form of Request and of the notes of the events. "" means that no other instance
	// can continue the stream.
	Form string
	// Request is the data, besides the events, with which another instance can continue the stream.
	// Begin stores it; the heads that readers get lack it. The log never parses it.
	Request string
	// Memo is the data, besides the events, with which an API answers questions about the stream
	// for as long as the log keeps it. The heads that readers get have it. The log never parses it.
	Memo string
	// Shared is set by Begin. If true, every instance that shares the log can read the stream.
	Shared bool
}

// NewEpoch returns an epoch that no other log has.
func NewEpoch() string { return strings.ToLower(rand.Text()[:10]) }

// An Orphan is a stream whose instance has died or has handed it over, as the instance that takes
// it over receives it.
type Orphan struct {
	Head       Head // with the request; Edge is the instance that ran the stream
	Age        time.Duration
	HandedOver bool    // the instance that ran the stream has stopped it and has handed it over
	Deltas     []Event // all events so far, with their notes
	Stop       string  // the cause with which the stream must end at once; "" for none
}

// Errors of a log. A log that is built on a server also returns errors of the server.
var (
	ErrUnknown = errors.New("replay: no such stream is kept")
	ErrTaken   = errors.New("replay: a stream with this id is kept")
	ErrFull    = errors.New("replay: the log has no room for the stream")
	ErrAhead   = errors.New("replay: the cursor is ahead of the stream")
	ErrOpen    = errors.New("replay: the stream has no closing event yet")
	ErrClosed  = errors.New("replay: the stream has its closing event")
)

// A Log keeps the events of streams. All methods are safe for concurrent use.
type Log interface {
	// Begin creates the log of a stream, and returns its head. If a stream with the same Key is kept,
	// Begin creates nothing and returns the head of that stream, which has another ID. It fails with
	// ErrTaken or ErrFull.
	Begin(ctx context.Context, h Head) (Head, error)
	// Writer returns the writer of a stream that began here under this epoch, or ErrUnknown.
	Writer(id, epoch string) (*Writer, error)
	// Append is Writer followed by Writer.Append. A caller that appends each token keeps the
	// Writer.
	Append(id, epoch string, events ...Event) error
	// Forget drops the log and the Key of a stream that began here under this epoch. Its readers
	// get ErrUnknown. Forget does not affect a later stream with the same id.
	Forget(ctx context.Context, id, epoch string)
	// Refuse ends a stream that began here under this epoch, and that no hop below has admitted. It
	// appends failure, unless the stream has a closing event, and frees the Key. A Begin with the Key
	// may have returned the head before, on any instance, so readers get the closing event for
	// RefusedTTL. After that the stream is forgotten.
	Refuse(ctx context.Context, id, epoch string, failure Event)
	// Erase drops the log of a stream that has ended, on whichever instance it ran. It returns
	// false if the stream has not ended. A stream that is not kept counts as erased.
	Erase(ctx context.Context, id, epoch string) (bool, error)
	// Open returns a reader of a stream, on whichever instance the stream began. The caller closes
	// the reader.
	Open(ctx context.Context, id string) (Reader, error)
	// Seen returns how long ago a reader of another instance had the stream open. ok is false if
	// there was no such reader.
	Seen(ctx context.Context, id string) (ago time.Duration, ok bool)
	// HandOver leaves a stream that began or was taken over here to another instance that shares
	// the log. It returns false if there is no such instance, or if the stream cannot be taken
	// over. After HandOver has returned true, the stream has no writer here, and its readers
	// continue to read it.
	HandOver(ctx context.Context, id, epoch string) bool
	// Retire makes this instance take over no more streams.
	Retire()
	// Stop asks the instance that runs a stream, or the next instance that takes it over, to end
	// the stream with the cause. heard means that the running instance learns of the stop from the
	// hops below; then Stop asks only the next instance. Stop returns false if there is no such
	// live stream, or if no other instance shares the log.
	Stop(ctx context.Context, id, cause string, heard bool, allowed func(Head) bool) bool
	// Close frees the log. All streams have their closing events, and all readers are closed.
	Close() error
}

// A Reader reads one stream. It is for one goroutine.
type Reader interface {
	Head() Head
	// Read returns the events after the event with number after. It does not wait.
	Read(ctx context.Context, after uint64) (Page, error)
	// Closing returns the closing event. It fails with ErrOpen if no Read of the stream can have
	// returned that event yet.
	Closing(ctx context.Context) (Event, error)
	Close()
}

// A Page is a part of a stream's log. It is valid until the next Read of its reader.
type Page struct {
	Events []Event
	// Ended reports that no event follows Events.
	Ended bool
	// Missed is the reason why a part of the log could not be read now, or nil. The stream may
	// continue.
	Missed error
	// More receives one value when there may be more to read. It is nil if Ended is true.
	More <-chan struct{}
}

// RefusedTTL is how long the log of a refused stream is kept. It is short, because a client whose
// requests are refused may retry often.
const RefusedTTL = 10 * time.Second

// MaxMerged bounds the data of one event that holds several deltas, in bytes.
const MaxMerged = 64 << 10
