package frame

import (
	"encoding/binary"
	"time"
)

// A Greeting is the payload of a HELLO.
type Greeting struct {
	Version  int
	Features uint64 // none are defined yet; unknown features are ignored
	// Window is the number of bytes that each stream may send to the sender of the HELLO before
	// that sender grants credit.
	Window int
	// MaxMessage is the length of the longest message that the sender of the HELLO accepts, in
	// bytes.
	MaxMessage int
	// Identity is the unique name of the process.
	Identity string
}

// AppendHello appends a HELLO.
func AppendHello(b []byte, g Greeting) []byte {
	b, at := Begin(b, Hello)
	b = append(b, magic...)
	b = binary.AppendUvarint(b, uint64(g.Version))
	b = binary.AppendUvarint(b, g.Features)
	b = binary.AppendUvarint(b, uint64(g.Window))
	b = binary.AppendUvarint(b, uint64(g.MaxMessage))
	b = appendBytes(b, g.Identity)
	Finish(b, at)
	return b
}

// ParseHello decodes the payload of a HELLO. It ignores fields of later versions after the last
// field.
func ParseHello(payload []byte) (g Greeting, err error) {
	if len(payload) < len(magic) || string(payload[:len(magic)]) != magic {
		return Greeting{}, &Error{Hello, ErrMagic}
	}
	f := fields{b: payload[len(magic):]}
	g = Greeting{Version: f.size(), Features: f.number(), Window: f.size(), MaxMessage: f.size(), Identity: string(f.bytes())}
	if f.err == nil && (g.Version < 1 || g.Window < 1 || g.MaxMessage < 1) {
		f.fail(ErrNumber)
	}
	if f.err != nil {
		return Greeting{}, &Error{Hello, f.err}
	}
	return g, nil
}

// A Call is the payload of an OPEN.
type Call struct {
	Stream  uint32
	Timeout time.Duration // in microseconds; 0 for none
	Method  string        // full name with the leading slash
	Headers []string      // alternating keys and values
}

// maxTimeout bounds the timeout of an OPEN, so that a decoded timeout fits into a time.Duration.
const maxTimeout = 100 * 365 * 24 * time.Hour

// AppendOpen appends an OPEN. If the call does not fit into a frame, AppendOpen returns false and
// appends nothing. A timeout above 100 years is sent as no timeout.
func AppendOpen(b []byte, c Call) (out []byte, ok bool) {
	if len(c.Headers)/2 > MaxPairs {
		return b, false
	}
	out, at := Begin(b, Open)
	out = binary.AppendUvarint(out, uint64(c.Stream))
	if c.Timeout > maxTimeout {
		c.Timeout = 0
	}
	out = binary.AppendUvarint(out, uint64(c.Timeout.Microseconds()))
	out = appendBytes(out, c.Method)
	out = appendPairs(out, c.Headers)
	if len(out)-at-HeaderSize > MaxPayload {
		return out[:at], false
	}
	Finish(out, at)
	return out, true
}

// ParseOpen decodes the payload of an OPEN.
func ParseOpen(payload []byte) (c Call, err error) {
	f := fields{b: payload}
	c.Stream = f.stream()
	timeout := f.number()
	if timeout > uint64(maxTimeout.Microseconds()) {
		f.fail(ErrNumber)
	}
	c.Timeout = time.Duration(timeout) * time.Microsecond
	c.Method, c.Headers = string(f.bytes()), f.pairs()
	return c, f.done(Open)
}

// MaxItemHead bounds the size of an item's head in an ITEMS frame, in bytes.
const MaxItemHead = 2 * binary.MaxVarintLen32

// AppendItemHead appends the head of a message of size bytes in an ITEMS frame.
func AppendItemHead(b []byte, stream uint32, size int) []byte {
	b = binary.AppendUvarint(b, uint64(stream))
	return binary.AppendUvarint(b, uint64(size))
}

// NextItem decodes the first item of the payload of an ITEMS frame, and returns the rest. message
// is a part of payload.
func NextItem(payload []byte) (stream uint32, message, rest []byte, err error) {
	f := fields{b: payload}
	stream = f.stream()
	message = f.bytes()
	if f.err != nil {
		return 0, nil, nil, &Error{Items, f.err}
	}
	return stream, message, f.b, nil
}

// AppendPart appends a PART with the bytes of message that fit into size, and returns the rest of
// message. size is at most MaxPayload.
func AppendPart(b []byte, stream uint32, message []byte, size int) (out, rest []byte) {
	b, at := Begin(b, Part)
	b = binary.AppendUvarint(b, uint64(stream))
	b = binary.AppendUvarint(b, uint64(len(message)))
	n := min(len(message), size-(len(b)-at-HeaderSize))
	b = append(b, message[:n]...)
	Finish(b, at)
	return b, message[n:]
}

// AppendTooLong appends the only PART of a message of size bytes that the receiver would refuse.
// The PART has one zero byte.
func AppendTooLong(b []byte, stream uint32, size int) []byte {
	b, at := Begin(b, Part)
	b = binary.AppendUvarint(b, uint64(stream))
	b = append(binary.AppendUvarint(b, uint64(size)), 0)
	Finish(b, at)
	return b
}

// ParsePart decodes the payload of a PART. left is the number of bytes of the message that had not
// arrived before this frame. message, a part of payload, has at least one of them.
func ParsePart(payload []byte) (stream uint32, left int, message []byte, err error) {
	f := fields{b: payload}
	stream, left = f.stream(), f.size()
	if f.err == nil && (len(f.b) == 0 || len(f.b) > left) {
		f.fail(ErrNumber)
	}
	if f.err != nil {
		return 0, 0, nil, &Error{Part, f.err}
	}
	return stream, left, f.b, nil
}

// AppendStream appends a frame whose payload is the number of a stream: a CLOSE or a RESET.
func AppendStream(b []byte, kind Kind, stream uint32) []byte {
	b, at := Begin(b, kind)
	b = binary.AppendUvarint(b, uint64(stream))
	Finish(b, at)
	return b
}

// ParseStream decodes the payload of a CLOSE or of a RESET.
func ParseStream(f Frame) (stream uint32, err error) {
	p := fields{b: f.Payload}
	stream = p.stream()
	return stream, p.done(f.Kind)
}

// An Ending is the payload of an END.
type Ending struct {
	Stream   uint32
	Status   []byte   // an encoded google.rpc.Status; empty for OK
	Trailers []string // alternating keys and values
}

// AppendEnd appends an END. If the ending does not fit into a frame, AppendEnd returns false and
// appends nothing.
func AppendEnd(b []byte, e Ending) (out []byte, ok bool) {
	if len(e.Trailers)/2 > MaxPairs {
		return b, false
	}
	out, at := Begin(b, End)
	out = binary.AppendUvarint(out, uint64(e.Stream))
	out = appendBytes(out, e.Status)
	out = appendPairs(out, e.Trailers)
	if len(out)-at-HeaderSize > MaxPayload {
		return out[:at], false
	}
	Finish(out, at)
	return out, true
}

// ParseEnd decodes the payload of an END. Status is a part of payload.
func ParseEnd(payload []byte) (e Ending, err error) {
	f := fields{b: payload}
	e = Ending{Stream: f.stream(), Status: f.bytes(), Trailers: f.pairs()}
	return e, f.done(End)
}

// AppendCredit appends a CREDIT of n bytes.
func AppendCredit(b []byte, stream uint32, n int) []byte {
	b, at := Begin(b, Credit)
	b = binary.AppendUvarint(b, uint64(stream))
	b = binary.AppendUvarint(b, uint64(n))
	Finish(b, at)
	return b
}

// ParseCredit decodes the payload of a CREDIT.
func ParseCredit(payload []byte) (stream uint32, n int, err error) {
	f := fields{b: payload}
	stream, n = f.stream(), f.size()
	if f.err == nil && n == 0 {
		f.fail(ErrNumber)
	}
	return stream, n, f.done(Credit)
}

// AppendPing appends a PING or a PONG with a number.
func AppendPing(b []byte, kind Kind, number uint64) []byte {
	b, at := Begin(b, kind)
	b = binary.LittleEndian.AppendUint64(b, number)
	Finish(b, at)
	return b
}

// ParsePing decodes the payload of a PING or of a PONG.
func ParsePing(f Frame) (number uint64, err error) {
	switch {
	case len(f.Payload) < PingSize:
		return 0, &Error{f.Kind, ErrTruncated}
	case len(f.Payload) > PingSize:
		return 0, &Error{f.Kind, ErrSurplus}
	}
	return binary.LittleEndian.Uint64(f.Payload), nil
}

// AppendGoaway appends a GOAWAY with a text for people, which is truncated to 1 KiB.
func AppendGoaway(b []byte, text string) []byte {
	b, at := Begin(b, Goaway)
	b = append(b, text[:min(len(text), 1<<10)]...)
	Finish(b, at)
	return b
}

// Pairs returns the keys and values of md, alternating, for the headers of a Call or the trailers of an
// Ending.
func Pairs(md map[string][]string) []string {
	if len(md) == 0 {
		return nil
	}
	pairs := make([]string, 0, 2*len(md))
	for key, values := range md {
		for _, value := range values {
			pairs = append(pairs, key, value)
		}
	}
	return pairs
}
