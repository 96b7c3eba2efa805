// Package tally counts and times the messages of one stream on one hop.
//
// A stream has exactly one Tally, and nothing else on the hop counts its messages, tokens and bytes or reads a clock for them.
// The record (package ledger), the metrics and the trace of the stream read the Tally when they are asked: a scrape and a list
// of live streams take a Snapshot, and the trace reads the first and the last messages.
//
// A message costs one lock that no other stream uses, at most one look at the clock, and no allocation. Times are durations
// since the stream began. Sizes are bytes of protobuf without its framing, or what the hop says that it has written.
package tally

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

// Messages with tokens are alike, and computing a message's size costs more than everything else that a Tally does for it. A
// Tally therefore computes the sizes of the first sizeFirst messages, which a trace lists one by one, and of every
// sizeEach-th message after them. The messages between count as the last one that was computed.
const (
	sizeFirst = 4
	sizeEach  = 8
)

// A Tally is the messages of one stream on one hop. All methods but Time and Keep are safe for concurrent use: a stream with
// several choices has several calls below, and a goroutine receives each.
type Tally struct {
	began time.Time // static
	timed bool      // messages are timed and sized; set before the first message

	mu             sync.Mutex // guards the following fields
	received, sent direction
	read           int           // bytes of the message whose Received is to come
	written        int           // bytes of the message whose Sent is to come
	back           uint64        // sent tokens that were taken back
	waited         time.Duration // for the caller's next message
	closed         bool
}

// New returns the tally of a stream that began at a time. It counts tokens and messages; Time and Keep add the rest.
func New(began time.Time) *Tally { return &Tally{began: began} }

// Began returns when the stream began.
func (t *Tally) Began() time.Time { return t.began }

// Time makes the tally time and size its messages, and count their gaps. It must be called before the first message.
func (t *Tally) Time() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timed = true
	both := new([2]gaps)
	t.received.gaps, t.sent.gaps = &both[0], &both[1]
}

// Keep makes the tally keep the first and the last messages in each direction, n of each, and time and size all messages. It
// must be called before the first message.
func (t *Tally) Keep(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timed = true
	t.received.kept, t.sent.kept = NewEnds[Message](n), NewEnds[Message](n)
}

// Received counts a message from the hop below, and the tokens that the message counts. The size of a nil message is what Read
// was told since the message before; another message that is no protobuf message has no size.
func (t *Tally) Received(tokens int, message any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := t.read
	t.read = 0
	if t.timed && message != nil {
		size += t.received.sizeOf(tokens, message)
	}
	t.received.bytes += uint64(size)
	t.count(&t.received, tokens, size)
}

// Read counts bytes that were read from the hop below, of the message whose Received is to come.
func (t *Tally) Read(bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read += bytes
}

// Sent counts a message that was passed to the caller, and the tokens that the message counts. The size of a nil message is
// what Wrote was told since the message before. If the message has the first tokens of the stream, Sent returns their time;
// the time that the stream waited for its caller is left out. Otherwise Sent returns 0.
func (t *Tally) Sent(tokens int, message any) (first time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timed && message != nil {
		t.wrote(t.sent.sizeOf(tokens, message))
	}
	size := t.written
	t.written = 0
	return t.count(&t.sent, tokens, size)
}

// Wrote counts bytes that were written to the caller, of the message whose Sent is to come.
func (t *Tally) Wrote(bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrote(bytes)
}

func (t *Tally) wrote(bytes int) {
	t.sent.bytes += uint64(bytes)
	t.written += bytes
}

// count counts a message of a direction. It returns the time of the first tokens if the message has them, else 0. mu is held.
func (t *Tally) count(d *direction, tokens, size int) (first time.Duration) {
	d.tokens += uint64(tokens)
	at := time.Duration(0)
	if t.timed && (tokens > 0 || d.kept.keep > 0) {
		at = max(1, time.Since(t.began))
	}
	d.kept.Add(Message{At: at, Bytes: uint32(size), Tokens: uint32(tokens)})
	if at == 0 || tokens == 0 {
		return 0 // no gap of its own: the time before the first token is the token's, and an ending comes with the last
	}
	return d.addToken(tokens, at, max(1, at-t.waited))
}

// Waited counts time in which the stream waited for its caller's next message. Snapshot leaves that time out everywhere: it is
// neither before the first token, nor between two tokens, nor a part of the whole.
func (t *Tally) Waited(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waited += d
}

// TakenBack counts sent tokens that became void because the answer was restarted.
func (t *Tally) TakenBack(tokens int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.back += uint64(tokens)
}

// Unreceived counts tokens that were generated below and never came to this hop. late reports that the tally was closed before:
// what Close has returned lacks the tokens.
func (t *Tally) Unreceived(tokens int) (late bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.received.tokens += uint64(tokens)
	return t.closed
}

// Merged counts messages from the hop below that have become a part of the message whose Received is to come.
func (t *Tally) Merged(messages int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.received.merged += uint64(messages)
}

// Snapshot returns the figures of the stream as they are now.
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
	return Snapshot{Received: t.received.side(), Sent: t.sent.side(), TakenBack: t.back, Waited: t.waited}
}

// EachReceived calls each with the messages from below that were kept and their numbers, from 0 on, and returns how many
// messages there were. each must not use t.
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

// FirstSent returns when the first message with tokens was sent to the caller, waits for the caller included; 0 if there was
// none yet, or the tally times nothing.
func (t *Tally) FirstSent() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent.first
}

// FirstReceived returns when the first message with tokens came from the hop below; 0 if there was none yet, or the tally times
// nothing.
func (t *Tally) FirstReceived() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.received.first
}

// size returns the size of a message on the wire, which a message that was sent or received has cached; 0 if it is no protobuf
// message.
func size(m any) int {
	if m, ok := m.(proto.Message); ok {
		return proto.MarshalOptions{UseCachedSize: true}.Size(m)
	}
	return 0
}
