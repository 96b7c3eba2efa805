// Package mux carries many streams over one connection, for package link.
//
// A Conn reads and writes frames. The goroutine that reads takes all frames that one read returns. On
// the caller's end it adds the messages to the inboxes of their streams, and then hands them to the
// readers (package loop), one stream after another. On the callee's end it hands over each message at
// once. A message that is sent is encoded into the buffer of the connection. The Loop that carries the
// stream writes the buffer at the end of its batch; without a Loop, the sender writes it without
// blocking, unless another goroutine writes. Bytes that the kernel does not take are written by the
// connection's writer, a goroutine that may block.
//
// All buffers are bounded: an inbox by the credit that its reader grants, the output by senders that
// wait. Frames that never wait (endings, credit, answers to PINGs) end the connection of a peer that
// does not read them.
package mux

import (
	"cmp"
	"errors"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/link/inbox"
)

// Options configure one end of a connection. The zero value has the defaults.
type Options struct {
	// MaxMessage bounds a received message, in bytes; 0 is DefaultMaxMessage.
	MaxMessage int
	// Window is the number of bytes that a stream may have on the way to this end without having been
	// read; 0 is DefaultWindow. A message may exceed it if the one before did not.
	Window int
	// PingEvery is the time without a message from the peer after which a PING is sent, and
	// PingTimeout how long the peer then has to send anything; 0 are the defaults.
	PingEvery, PingTimeout time.Duration
	// FlushEvery is the least time between two writes to a busy connection; 0 is DefaultFlushEvery,
	// and a negative value writes at once.
	FlushEvery time.Duration
	// Identity is the name of this process in its HELLO.
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

// WithDefaults returns o with its defaults filled in.
func (o Options) WithDefaults() Options {
	o.MaxMessage = cmp.Or(o.MaxMessage, DefaultMaxMessage)
	o.Window = cmp.Or(o.Window, DefaultWindow)
	o.PingEvery = cmp.Or(o.PingEvery, DefaultPingEvery)
	o.PingTimeout = cmp.Or(o.PingTimeout, DefaultPingTimeout)
	o.FlushEvery = cmp.Or(o.FlushEvery, DefaultFlushEvery)
	return o
}

// The reasons for which a connection ends. The streams that it carried end with UNAVAILABLE.
var (
	// ErrClosed ends a connection that this process closed.
	ErrClosed = errors.New("link: the connection was closed")
	// ErrSilent ends a connection whose peer did not answer a PING in time.
	ErrSilent = errors.New("link: the peer is silent")
	// ErrNotRead ends a connection whose peer takes no bytes, while frames that cannot wait pile up.
	ErrNotRead = errors.New("link: the peer does not read")
	// ErrOverrun ends a connection whose peer sent more than its credit.
	ErrOverrun = inbox.ErrOverrun
	// ErrProtocol ends a connection whose peer sent a well-formed frame that the protocol does not
	// allow at that point.
	ErrProtocol = inbox.ErrProtocol
)
