package websocket

import (
	"encoding/binary"
	"errors"
	"time"
)

// An Opcode is the kind of a frame (RFC 6455, section 5.2).
type Opcode byte

// The opcodes that the edge sends.
const (
	Text   Opcode = 1
	Binary Opcode = 2

	closing Opcode = 8
	ping    Opcode = 9
	pong    Opcode = 10
)

const (
	// headerRoom is the size of the longest header of a frame from a server, in bytes.
	headerRoom = 10
	// maxKept bounds the buffer that an Encoder keeps for its next frame, in bytes.
	maxKept = 64 << 10
	// maxControl bounds the payload of a control frame, in bytes.
	maxControl = 125
	// final marks the last frame of a message. A server sends each message in one frame.
	final = 0x80
)

// An Encoder encodes frames into one reused buffer. Only one goroutine may use it. The zero value is
// ready to use.
type Encoder struct{ buf []byte }

// Begin begins a frame, and returns the buffer to append its payload to.
func (e *Encoder) Begin() []byte {
	var room [headerRoom]byte
	return append(e.buf[:0], room[:]...)
}

// End returns the frame, which is valid until the next Begin, and the size of its payload in bytes.
// b is the buffer of Begin with the payload appended.
func (e *Encoder) End(kind Opcode, b []byte) (frame []byte, size int) {
	e.buf = b
	if cap(b) > maxKept {
		e.buf = nil
	}
	size = len(b) - headerRoom
	at := headerRoom
	switch {
	case size < 126:
		at -= 2
		b[at+1] = byte(size)
	case size < 1<<16:
		at -= 4
		b[at+1] = 126
		binary.BigEndian.PutUint16(b[at+2:], uint16(size))
	default:
		at -= 10
		b[at+1] = 127
		binary.BigEndian.PutUint64(b[at+2:], uint64(size))
	}
	b[at] = final | byte(kind)
	return b[at:], size
}

// frameOf returns a frame with a payload.
func frameOf(kind Opcode, payload []byte) []byte {
	var e Encoder
	frame, _ := e.End(kind, append(e.Begin(), payload...))
	return frame
}

const (
	// maxIdle bounds the frames without data that a client may send at once. A control frame has none,
	// and neither has an empty fragment.
	maxIdle = 1000
	// idleTime is the time after which a client may send one more frame without data.
	idleTime = 10 * time.Millisecond
)

var errIdleFrames = errors.New("websocket: too many frames without data")

// A scanner follows the frames of a client, and counts those without data. The library reads such
// frames for as long as they come, without returning.
type scanner struct {
	head [maxHead]byte // of the current frame
	have int           // bytes of head
	left uint64        // bytes of the frame that follow head
	idle int           // frames without data, minus those that time has forgiven
	at   time.Time     // when idle was last lowered
}

// maxHead is the size of the longest header of a frame from a client, in bytes.
const maxHead = 14

// scan takes the next bytes of the client, which have arrived at a time.
func (s *scanner) scan(b []byte, now time.Time) error {
	for len(b) > 0 {
		if s.left > 0 {
			n := min(uint64(len(b)), s.left)
			b, s.left = b[n:], s.left-n
			continue
		}
		s.head[s.have] = b[0]
		b = b[1:]
		if s.have++; s.have < s.size() {
			continue
		}
		s.have, s.left = 0, s.payload()
		if Opcode(s.head[0])&0x8 == 0 && s.left > 0 {
			continue
		}
		if s.idle++; s.idle > maxIdle && !s.forgive(now) {
			return errIdleFrames
		}
	}
	return nil
}

// forgive lowers the count of frames without data by the time that has passed, and reports whether it is
// within its bound.
func (s *scanner) forgive(now time.Time) bool {
	s.idle = max(0, s.idle-int(min(now.Sub(s.at)/idleTime, maxIdle)))
	s.at = now
	return s.idle <= maxIdle
}

// size returns the size of the current frame's header, as far as the bytes so far tell.
func (s *scanner) size() int {
	size := 2
	if s.have < size {
		return size
	}
	if s.head[1]&0x80 != 0 { // masked
		size += 4
	}
	switch s.head[1] & 0x7f {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	return size
}

// payload returns the length of the payload of the current frame, whose header is complete.
func (s *scanner) payload() uint64 {
	switch n := s.head[1] & 0x7f; n {
	case 126:
		return uint64(binary.BigEndian.Uint16(s.head[2:]))
	case 127:
		return binary.BigEndian.Uint64(s.head[2:])
	default:
		return uint64(n)
	}
}
