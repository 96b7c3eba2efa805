// Package flood closes HTTP/2 connections whose peer sends frames that serve no call: PING, SETTINGS
// and RST_STREAM floods, endless header blocks, and more streams than the server serves.
//
// A Meter follows the frames of one connection in both directions. A frame without a payload for a
// call costs the peer a token, and long headers cost more. Tokens come back with time and with the
// bytes that the server writes, so that a busy caller, which answers data with WINDOW_UPDATEs and
// PINGs, never runs out. Servers read their connections through a Meter: FromConn for grpc-go, package
// kitexrpc for Kitex.
package flood

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	// burst is the number of tokens of a new connection, and the most that it can have.
	burst = 10_000
	// perSecond is the number of tokens that come back per second.
	perSecond = 1000
	// bytesPerToken is the number of bytes that the server writes for one token. The acknowledgement
	// of a PING has 17.
	bytesPerToken = 64
	// MaxHeaderBlock bounds the encoded headers of one call, with their CONTINUATION frames, in bytes.
	// The libraries read a whole block before they check its size.
	MaxHeaderBlock = 256 << 10
	// longHeaders is the length of encoded headers, in bytes, from which on every bytesPerExtra bytes
	// cost another token: a few KiB of HPACK can decode to many MiB.
	longHeaders, bytesPerExtra = 1 << 10, 256

	frameHeader = 9
)

// ErrFlood ends a connection whose peer sends too many frames.
var ErrFlood = errors.New("flood of HTTP/2 frames")

// A Meter follows the frames of a connection. Received and Sent may be called concurrently.
type Meter struct {
	maxStreams int
	in         scanner // owned by the caller of Received
	out        scanner // owned by the caller of Sent
	block      int     // bytes of the header block that is being received; owned by the caller of Received

	mu     sync.Mutex // guards the following fields
	tokens float64
	last   time.Time // when tokens was computed
	newest uint32    // the newest stream of the peer
	open   map[uint32]struct{}
}

// NewMeter returns the Meter of a connection on which the peer may have maxStreams streams. A stream
// is open until the server has written its end, or one side has reset it. preface is true if
// Received gets the client's connection preface, too.
func NewMeter(maxStreams uint32, preface bool) *Meter {
	m := &Meter{maxStreams: int(maxStreams), tokens: burst, last: time.Now(), open: map[uint32]struct{}{}}
	if preface {
		m.in.skip = len(http2.ClientPreface)
	}
	return m
}

// Received follows the next bytes of the peer. An error wraps ErrFlood, and is a reason to close the
// connection.
func (m *Meter) Received(b []byte) error {
	for {
		f, ok := m.in.next(&b)
		if !ok {
			return nil
		}
		if err := m.received(f); err != nil {
			return err
		}
	}
}

func (m *Meter) received(f header) error {
	cost := 1.0
	switch f.kind {
	case http2.FrameHeaders:
		m.block = f.length
		cost += float64(max(0, f.length-longHeaders)) / bytesPerExtra
	case http2.FrameContinuation:
		m.block += f.length
		cost += float64(f.length) / bytesPerExtra
	default:
	}
	if m.block > MaxHeaderBlock {
		return fmt.Errorf("%w: a header block of more than %d bytes", ErrFlood, MaxHeaderBlock)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, open := m.open[f.stream]
	switch {
	case f.kind == http2.FrameData && open && f.length > 0:
		return nil // flow control bounds the data
	case f.kind == http2.FrameHeaders && f.stream > m.newest:
		m.newest = f.stream
		m.open[f.stream] = struct{}{}
		if len(m.open) > m.maxStreams {
			return fmt.Errorf("%w: more than %d open streams", ErrFlood, m.maxStreams)
		}
	case f.kind == http2.FrameRSTStream:
		delete(m.open, f.stream)
	}
	if m.tokens -= cost; m.tokens >= 0 {
		return nil
	}
	now := time.Now()
	m.tokens = min(burst, m.tokens+now.Sub(m.last).Seconds()*perSecond)
	m.last = now
	if m.tokens < 0 {
		return fmt.Errorf("%w: the last one was %v", ErrFlood, f.kind)
	}
	return nil
}

// Sent follows the next bytes of the server.
func (m *Meter) Sent(b []byte) {
	written := len(b)
	for {
		f, ok := m.out.next(&b)
		if !ok {
			break
		}
		ends := f.kind == http2.FrameData && f.flags.Has(http2.FlagDataEndStream) ||
			f.kind == http2.FrameHeaders && f.flags.Has(http2.FlagHeadersEndStream) || f.kind == http2.FrameRSTStream
		if ends {
			m.mu.Lock()
			delete(m.open, f.stream)
			m.mu.Unlock()
		}
	}
	m.mu.Lock()
	m.tokens = min(burst, m.tokens+float64(written)/bytesPerToken)
	m.mu.Unlock()
}

// A header is the header of a frame.
type header struct {
	length int
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
}

// A scanner finds the headers of frames in bytes that come in parts.
type scanner struct {
	skip int // bytes before the next header
	part [frameHeader]byte
	have int // bytes of the header in part
}

// next removes the bytes up to the end of the next header from b. It returns false if b has no whole
// header, after it has removed all of b.
func (s *scanner) next(b *[]byte) (header, bool) {
	skipped := min(s.skip, len(*b))
	s.skip -= skipped
	n := copy(s.part[s.have:], (*b)[skipped:])
	*b = (*b)[skipped+n:]
	if s.have += n; s.have < frameHeader {
		return header{}, false
	}
	p := &s.part
	f := header{
		length: int(p[0])<<16 | int(p[1])<<8 | int(p[2]), kind: http2.FrameType(p[3]), flags: http2.Flags(p[4]),
		stream: (uint32(p[5])<<24 | uint32(p[6])<<16 | uint32(p[7])<<8 | uint32(p[8])) & (1<<31 - 1),
	}
	s.have, s.skip = 0, f.length
	return f, true
}
