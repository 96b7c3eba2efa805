// Package mux carries many streams over one connection, for package link.
//
// A Conn reads and writes frames. The goroutine that reads takes all frames of one read. On the
// caller's end it adds the messages to the inboxes of their streams, and then passes them to the
// readers (package loop), one stream after another. On the callee's end it passes each message on
// at once. A message to send is encoded into the buffer of the connection. The Loop that carries
// the stream writes the buffer at the end of its batch; without a Loop, the sender writes the
// buffer without blocking, unless another goroutine is writing. The connection's writer, a
// goroutine that may block, writes the bytes that the kernel does not accept.
//
// All buffers are bounded: the credit that a reader grants bounds its inbox, and senders that wait
// bound the output. Frames that never wait (endings, credit, answers to PINGs) end the connection
// of a peer that does not read them.
package mux

import (
	"cmp"
	"errors"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/rpc/link/inbox"
)

// Options configure one end of a connection. The zero value means the defaults.
type Options struct {
	// MaxMessage bounds a received message, in bytes; 0 means DefaultMaxMessage.
	MaxMessage int
	// Window is the number of unread bytes that a stream may have on the way to this end; 0 means
	// DefaultWindow. A message may exceed the window if the message before did not.
	Window int
	// PingEvery is the time without bytes from the peer after which a PING is sent. PingTimeout is
	// how long the peer then has to send anything. 0 means the defaults.
	PingEvery, PingTimeout time.Duration
	// FlushEvery is the shortest time between two writes to a busy connection. 0 means
	// DefaultFlushEvery, and with a negative value the connection always writes at once.
	FlushEvery time.Duration
	// Identity is the unique name of this process, for its HELLO.
	Identity string
}

// Defaults of Options.
const (
	DefaultMaxMessage  = 4 << 20
	DefaultWindow      = 64 << 10
	DefaultPingEvery   = 10 * time.Second
	DefaultPingTimeout = 5 * time.Second
	DefaultFlushEvery  = 500 * time.Microsecond
)

// WithDefaults returns o with the defaults filled in.
func (o Options) WithDefaults() Options {
	o.MaxMessage = cmp.Or(o.MaxMessage, DefaultMaxMessage)
	o.Window = cmp.Or(o.Window, DefaultWindow)
	o.PingEvery = cmp.Or(o.PingEvery, DefaultPingEvery)
	o.PingTimeout = cmp.Or(o.PingTimeout, DefaultPingTimeout)
	o.FlushEvery = cmp.Or(o.FlushEvery, DefaultFlushEvery)
	return o
}

// The reasons for which a connection ends. Its streams end with UNAVAILABLE.
var (
	// ErrClosed ends a connection that this process closed.
	ErrClosed = errors.New("link: the connection was closed")
	// ErrSilent ends a connection whose peer did not answer a PING in time.
	ErrSilent = errors.New("link: the peer is silent")
	// ErrNotRead ends a connection whose peer does not read while frames that cannot wait
	// accumulate.
	ErrNotRead = errors.New("link: the peer does not read")
	// ErrOverrun ends a connection whose peer sent more than its credit.
	ErrOverrun = inbox.ErrOverrun
	// ErrProtocol ends a connection whose peer sent a well-formed frame that the protocol does not
	// allow at that point.
	ErrProtocol = inbox.ErrProtocol
)

// Greeting returns the HELLO of an end with these options.
func (o Options) Greeting() frame.Greeting {
	return frame.Greeting{Version: frame.Version, Window: o.Window, MaxMessage: o.MaxMessage, Identity: o.Identity}
}
