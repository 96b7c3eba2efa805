// Package replay keeps what streams have said, so that readers can come late, come back, and be several: a log of events per
// stream, numbered from 1, that ends with one closing event.
//
// A reader has a cursor, the number of the last event that it has, and nothing is queued for it. Text that it has not read
// comes in one event, under the last number, so that a reader that lags gets fewer, larger events and loses nothing. What is
// kept is bounded in bytes, over all streams and for each, and in time after a stream's end.
//
// Memory keeps the log in the process; Redis shares it between several. Package replaytest holds the contract of all logs.
package replay

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"
)

// A Kind is what an event says, and its name for those who read it.
type Kind string

// The kinds of events. The last event of a stream is Ending or Failure, and no other is.
const (
	Delta   Kind = "delta" // Data is text, or anything else that can be joined as text is
	Usage   Kind = "usage" // JSON, from here on
	Ending  Kind = "ending"
	Failure Kind = "error"
)

// Closing reports whether nothing comes after an event of this kind.
func (k Kind) Closing() bool { return k == Ending || k == Failure }

// An Event is a part of what a stream has said.
type Event struct {
	Seq  uint64 // from 1; with several deltas in one event, that of the last. Append sets it
	Kind Kind
	Data string
}

// A Head is what is known of a stream beside its events.
type Head struct {
	ID    string // unguessable
	Epoch string // of this log of the stream; a cursor of another log has another
	Owner string // digest of the credentials that made the stream; "" if there were none
	Key   string // digest of the idempotency key; "" if there was none
	Body  string // digest of the request
	Edge  string // the hop that runs the stream
	Began time.Time
	// Shared is set by Begin: every instance that the log knows of can read the stream.
	Shared bool
}

// NewEpoch returns an epoch that no other log has.
func NewEpoch() string { return strings.ToLower(rand.Text()[:10]) }

// What logs return, beside errors of what they are built on.
var (
	ErrUnknown = errors.New("replay: no such stream is kept")
	ErrTaken   = errors.New("replay: a stream with this id is kept")
	ErrFull    = errors.New("replay: no room for what the stream says")
	ErrAhead   = errors.New("replay: the stream has not said this much")
	ErrClosed  = errors.New("replay: the stream has its closing event")
)

// A Log keeps the events of streams. All methods are safe for concurrent use.
type Log interface {
	// Begin makes room for a stream, and returns its head. If a stream with the same Key is kept, it returns the head of that
	// one instead, whose ID is another, and makes nothing. It fails with ErrTaken or ErrFull.
	Begin(ctx context.Context, h Head) (Head, error)
	// Append adds events to the log of a stream that has begun here under this epoch; deltas come before all other kinds. It
	// returns ErrUnknown if that log was dropped, even if a later stream has the same id. With ErrFull nothing is added; a closing
	// event always has room. Any other error but ErrUnknown and ErrClosed says why the stream must end; then Failure is the only
	// closing event that the log takes.
	Append(id, epoch string, events ...Event) error
	// Forget drops the log of a stream that has begun here under this epoch, with its Key. Its readers get ErrUnknown. Forget
	// leaves the log of a later stream with the same id alone.
	Forget(ctx context.Context, id, epoch string)
	// Open returns a reader of a stream, wherever it has begun. The caller closes it.
	Open(ctx context.Context, id string) (Reader, error)
	// Seen returns how long ago a reader of another instance had the stream open; ok is false if none is known of.
	Seen(ctx context.Context, id string) (ago time.Duration, ok bool)
	// Close frees what the log holds, once all streams have their closing events and all readers are closed.
	Close() error
}

// A Reader reads one stream. It is for one goroutine.
type Reader interface {
	Head() Head
	// Read returns what comes after the event with this number. It does not wait.
	Read(ctx context.Context, after uint64) (Page, error)
	Close()
}

// A Page is a part of a log.
type Page struct {
	Events []Event
	// Ended says that nothing will come after Events.
	Ended bool
	// More is closed when there may be more to read; nil if Ended.
	More <-chan struct{}
}

// maxMerged bounds the text of one event, in bytes, unless a single delta has more.
const maxMerged = 64 << 10
