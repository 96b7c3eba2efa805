// Package tally counts and times the messages of one stream on one hop.
//
// A stream has exactly one Tally. Nothing else on the hop counts the stream's messages, tokens and
// bytes, or reads a clock for them. The stream's record (package ledger), metrics and trace read
// the Tally on demand: a scrape and a list of live streams take a Snapshot, and the trace reads the
// first and the last messages.
//
// A message costs one lock that no other stream uses, at most one clock reading, and no allocation.
// Times are durations since the stream began. Sizes are bytes of protobuf without framing, or the
// number of bytes that the hop reports as written.
package tally

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/internal/prefetch"
)

// Messages with tokens have similar sizes, and to compute a message's size costs more than all else
// that a Tally does for it. A Tally therefore computes the sizes of the first sizeFirst messages,
// which a trace lists one by one, and of every sizeEach-th message after them. Every other message
// gets the last computed size.
const (
	sizeFirst = 4
	sizeEach  = 8
)

// A Tally counts the messages of one stream on one hop. All methods except Time and Keep are safe
// for concurrent use: a stream with several choices has several calls below, each with its own
// receiving goroutine.
type Tally struct {
	began time.Time // static

	mu             sync.Mutex // guards the following fields
	timed          bool       // messages are timed, and their sizes computed; set before the first message
	closed         bool
	written        uint32 // bytes written of the message of the next Sent
	received, sent direction
	takenBack      uint64        // sent tokens that were taken back
	waited         time.Duration // time waited for the caller's next message
}

// New returns the tally of a stream that began at began. It counts tokens and messages; Time and
// Keep enable the rest.
func New(began time.Time) *Tally { return &Tally{began: began} }

// Touched implements prefetch.Toucher.
func (t *Tally) Touched(to *prefetch.List) {
	to.Add(prefetch.Of(t), prefetch.Of(t.received.gaps), prefetch.Of(t.sent.gaps),
		prefetch.Slice(t.received.kept.ring()), prefetch.Slice(t.sent.kept.ring()))
}

// Began returns when the stream began.
func (t *Tally) Began() time.Time { return t.began }

// Time makes the tally compute the times, gaps and sizes of messages. It must be called before the
// first message.
func (t *Tally) Time() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timed = true
	if t.received.gaps == nil {
		both := new([2]gaps)
		t.received.gaps, t.sent.gaps = &both[0], &both[1]
	}
}

// Keep makes the tally keep the first n and the last n messages of each direction, and compute the
// times and sizes of all messages. It must be called before the first message.
func (t *Tally) Keep(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timed = true
	t.received.kept, t.sent.kept = NewEnds[Message](n), NewEnds[Message](n)
}

// Received counts a message from the hop below with the given number of tokens. A message of another
// type than protobuf has no size.
func (t *Tally) Received(tokens int, message any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := 0
	if t.timed && message != nil {
		size = t.received.sizeOf(tokens, message)
	}
	t.received.bytes += uint64(size)
	t.count(&t.received, tokens, size)
}

// Sent counts a message with the given number of tokens that was passed to the caller. The size of
// a nil message is the number of bytes passed to Wrote since the previous message. If the message
// has the first tokens of the stream, Sent returns their time, excluding the time that the stream
// waited for its caller. Otherwise Sent returns 0.
func (t *Tally) Sent(tokens int, message any) (first time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timed && message != nil {
		t.wrote(t.sent.sizeOf(tokens, message))
	}
	size := int(t.written)
	t.written = 0
	return t.count(&t.sent, tokens, size)
}

// Wrote counts bytes that were written to the caller, for the message of the next Sent.
func (t *Tally) Wrote(bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrote(bytes)
}

func (t *Tally) wrote(bytes int) {
	t.sent.bytes += uint64(bytes)
	t.written += uint32(bytes)
}

// count counts a message of a direction. If the message has the first tokens, count returns their
// time, otherwise 0. The caller holds mu.
func (t *Tally) count(d *direction, tokens, size int) (first time.Duration) {
	d.tokens += uint64(tokens)
	at := time.Duration(0)
	if t.timed && (tokens > 0 || d.kept.keep > 0) {
		at = max(1, time.Since(t.began))
	}
	d.kept.Add(Message{At: at, Bytes: uint32(size), Tokens: uint32(tokens)})
	if at == 0 || tokens == 0 {
		return 0 // no gap: the time before the first token belongs to the token, and an ending comes with the last token
	}
	return d.addToken(tokens, at, max(1, at-t.waited))
}

// Waited adds time in which the stream waited for its caller's next message. A Snapshot excludes
// that time from the time to the first token, from the gaps, and from the total.
func (t *Tally) Waited(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waited += d
}

// TakenBack counts sent tokens that became void because the answer was restarted.
func (t *Tally) TakenBack(tokens int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.takenBack += uint64(tokens)
}

// Unreceived counts tokens that were generated below but never reached this hop. late reports that
// the tally was closed before, so that the Snapshot of Close lacks the tokens.
func (t *Tally) Unreceived(tokens int) (late bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.received.tokens += uint64(tokens)
	return t.closed
}

// Merged counts messages from the hop below that were merged into the message of the next Received.
func (t *Tally) Merged(messages int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.received.merged += uint64(messages)
}

// Snapshot returns the current figures of the stream.
func (t *Tally) Snapshot() Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.snapshot()
}

// Close returns the last Snapshot of a stream that has ended.
func (t *Tally) Close() Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.snapshot()
}

func (t *Tally) snapshot() Snapshot {
	return Snapshot{Received: t.received.side(), Sent: t.sent.side(), TakenBack: t.takenBack, Waited: t.waited}
}

// EachReceived calls each with every kept message from below and its index, which begins at 0. It
// returns the number of messages received. each must not use t.
func (t *Tally) EachReceived(each func(index uint64, m *Message)) (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.received.kept.Each(each)
}

// EachSent is EachReceived for the messages to the caller.
func (t *Tally) EachSent(each func(index uint64, m *Message)) (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent.kept.Each(each)
}

// FirstSent returns when the first message with tokens was sent to the caller, including waits for
// the caller. It returns 0 if there was none yet, or if the tally is not timed.
func (t *Tally) FirstSent() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent.first
}

// FirstReceived returns when the first message with tokens came from the hop below. It returns 0 if
// there was none yet, or if the tally is not timed.
func (t *Tally) FirstReceived() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.received.first
}

// size returns the size of a message in bytes, which a sent or received message has cached. It
// returns 0 if m is not a protobuf message.
func size(m any) int {
	if m, ok := m.(proto.Message); ok {
		return proto.MarshalOptions{UseCachedSize: true}.Size(m)
	}
	return 0
}
