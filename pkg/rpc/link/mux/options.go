// Package mux carries many streams over one connection, for package link.
//
// A Conn reads and writes frames. The goroutine that reads takes all frames that one read returns. It
// carries each message to the reader of its stream (package loop), or copies it into the stream's inbox
// if the reader is busy or is a goroutine of its own. A message is encoded into the buffer of the
// connection. If no other goroutine writes, the sender writes the buffer without blocking, and repeats
// this until the buffer is empty. Bytes that the kernel does not take are written by the connection's
// writer, a goroutine that may block.
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
