package websocket

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// maxIdle bounds the frames without data that a client may send at once. A control frame has none,
	// and neither has an empty fragment.
	maxIdle = 1000
	// idleTime is the time after which a client may send one more frame without data.
	idleTime = 10 * time.Millisecond
	// maxHead is the size of the longest header of a frame from a client, in bytes.
	maxHead = 14
)

// An event is what a parser has found.
type event int

const (
	more    event = iota // nothing; more bytes are needed
	part                 // a part of a message
	whole                // the last part of a message
	control              // a control frame with its payload
)

// A parser finds the messages and the control frames in the bytes of a client (RFC 6455, section 5). It
// is a pure machine, which is fed with the bytes as they arrive. The zero value is ready, except for
// limit.
type parser struct {
	limit int64 // bytes of one message

	head    [maxHead]byte // of the current frame
	have    int           // bytes of head
	payload bool          // the header of the current frame is complete
	left    int64         // bytes of the payload that have not arrived
	masked  int           // bytes of the payload that have arrived
	mask    [4]byte
	open    bool   // a message has begun, and continues in further frames
	kind    Opcode // of the current message
	length  int64  // bytes of the current message, with those announced
	control []byte // payload of the current control frame, so far

	idle int       // frames without data, minus those that time has forgiven
	at   time.Time // when idle was last lowered
}

// A violation is a fault of the client.
type violation struct {
	code int // the close code that answers it
	text string
}

// Error implements error.
func (v *violation) Error() string { return "websocket: " + v.text }

// broken returns the violation of the protocol by a client.
func broken(format string, args ...any) error {
	return &violation{brokenFrames, "the client does not follow the WebSocket protocol: " + fmt.Sprintf(format, args...)}
}

var errIdleFrames = &violation{brokenRules, "the client sends too many frames without data"}

// take parses bytes of b, which have arrived at a time, up to the next event. It returns their number,
// and the data of the event, which it has unmasked in b.
func (p *parser) take(b []byte, now time.Time) (taken int, data []byte, what event, err error) {
	for !p.payload {
		if taken == len(b) {
			return taken, nil, more, nil
		}
		p.head[p.have] = b[taken]
		taken++
		if p.have++; p.have < p.headSize() {
			continue
		}
		if err := p.begin(now); err != nil {
			return taken, nil, more, err
		}
	}
	n := int(min(p.left, int64(len(b)-taken)))
	data = b[taken : taken+n]
	for i := range data {
		data[i] ^= p.mask[(p.masked+i)&3]
	}
	taken, p.masked, p.left = taken+n, p.masked+n, p.left-int64(n)
	ends := p.left == 0
	p.payload = !ends
	switch {
	case p.opcode() >= closing:
		p.control = append(p.control, data...)
		if !ends {
			return taken, nil, more, nil
		}
		data, p.control = p.control, nil
		return taken, data, control, nil
	case ends && !p.open:
		p.length = 0
		return taken, data, whole, nil
	case n == 0:
		return taken, nil, more, nil
	}
	return taken, data, part, nil
}

// opcode returns the opcode of the current frame.
func (p *parser) opcode() Opcode { return Opcode(p.head[0]) & 0xf }

// headSize returns the size of the current frame's header, as far as the bytes so far tell.
func (p *parser) headSize() int {
	size := 2
	if p.have < size {
		return size
	}
	if p.head[1]&0x80 != 0 {
		size += len(p.mask)
	}
	switch p.head[1] & 0x7f {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	return size
}

// begin begins a frame whose header is complete.
func (p *parser) begin(now time.Time) error {
	size := p.have
	p.have, p.payload, p.masked = 0, true, 0
	if wrong := p.wrong(); len(wrong) > 0 {
		return broken("%s", strings.Join(wrong, ", "))
	}
	length := uint64(p.head[1] & 0x7f)
	switch length {
	case 126:
		length = uint64(binary.BigEndian.Uint16(p.head[2:]))
	case 127:
		length = binary.BigEndian.Uint64(p.head[2:])
	}
	copy(p.mask[:], p.head[size-len(p.mask):])
	if kind := p.opcode(); kind < closing {
		if kind != further {
			p.kind = kind
		}
		p.open = p.head[0]&final == 0
		if length > uint64(p.limit) || p.length+int64(length) > p.limit {
			return &violation{tooBig, fmt.Sprintf("a message has more than %d bytes", p.limit)}
		}
		p.length += int64(length)
	}
	p.left = int64(length)
	if p.opcode() >= closing || length == 0 {
		if p.idle++; p.idle > maxIdle && !p.forgive(now) {
			return errIdleFrames
		}
	}
	return nil
}

// wrong returns what is wrong with the header of the current frame.
func (p *parser) wrong() (all []string) {
	for i := range 3 {
		if p.head[0]&(0x40>>i) != 0 {
			all = append(all, "RSV"+strconv.Itoa(i+1)+" set")
		}
	}
	ends := p.head[0]&final != 0
	switch kind := p.opcode(); kind {
	case closing, ping, pong:
		if p.head[1]&0x7f > maxControl {
			all = append(all, "len > 125 for control")
		}
		if !ends {
			all = append(all, "FIN not set on control")
		}
	case Text, Binary:
		if p.open {
			all = append(all, "data before FIN")
		}
	case further:
		if !p.open {
			all = append(all, "continuation after FIN")
		}
	default:
		all = append(all, "bad opcode "+strconv.Itoa(int(kind)))
	}
	if p.head[1]&0x80 == 0 {
		all = append(all, "bad MASK")
	}
	return all
}

// forgive lowers the count of frames without data by the time that has passed, and reports whether it is
// within its bound.
func (p *parser) forgive(now time.Time) bool {
	p.idle = max(0, p.idle-int(min(now.Sub(p.at)/idleTime, maxIdle)))
	p.at = now
	return p.idle <= maxIdle
}

// A closeError is a close frame of the client.
type closeError struct{ code int }

// Error implements error.
func (c *closeError) Error() string { return "websocket: close " + strconv.Itoa(c.code) }

// closed returns the error for the payload of a close frame.
func closed(payload []byte) error {
	switch len(payload) {
	case 0:
		return &closeError{noCode}
	case 1:
		return broken("a close frame of 1 byte")
	}
	code := int(binary.BigEndian.Uint16(payload))
	switch {
	case !receivable(code):
		return broken("bad close code %d", code)
	case !utf8.Valid(payload[2:]):
		return broken("invalid utf8 payload in close frame")
	}
	return &closeError{code}
}

// receivable reports whether a client may send a close code.
func receivable(code int) bool {
	switch code {
	case 1004, noCode, noFrame:
		return false
	}
	return normal <= code && code <= 1014 || 3000 <= code && code < 5000
}
