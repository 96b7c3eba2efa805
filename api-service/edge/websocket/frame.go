package websocket

import "encoding/binary"

// An Opcode is the kind of a frame (RFC 6455, section 5.2).
type Opcode byte

// The opcodes that the edge sends.
const (
	Text   Opcode = 1
	Binary Opcode = 2

	further Opcode = 0 // continues a message
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
