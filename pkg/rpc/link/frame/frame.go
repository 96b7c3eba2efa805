// Package frame encodes and decodes the frames of a link, which carries many streams over one
// connection.
//
// A frame is a header of four bytes and a payload of at most MaxPayload bytes. The header is the
// kind (one byte) and the length of the payload in bytes (24 bits, little endian). Numbers in a
// payload are unsigned varints, and strings follow their length in bytes:
//
//	HELLO   magic, version, features, window, max message, identity
//	OPEN    stream, timeout in microseconds (0 for none), method, headers
//	ITEMS   for each message: stream, length, message
//	PART    stream, bytes of the message that are still to come with this frame, some of them
//	CLOSE   stream
//	RESET   stream
//	END     stream, status, trailers
//	CREDIT  stream, bytes
//	PING    eight bytes, which the PONG repeats
//	PONG    eight bytes
//	GOAWAY  text
//
// Headers and trailers are a number of pairs, then each pair's key and value. A status is an
// encoded google.rpc.Status, or empty for OK.
//
// Decoding never allocates more than it has read. Each malformed frame is an *Error.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

const (
	// HeaderSize is the length of a frame's header, in bytes.
	HeaderSize = 4
	// MaxPayload bounds the payload of a frame, in bytes.
	MaxPayload = 64 << 10
	// MaxPairs bounds the headers of an OPEN and the trailers of an END.
	MaxPairs = 128
	// Version is the version of the format that this package writes.
	Version = 1
	// ItemCost is the credit in bytes that a message takes in addition to its length. It bounds the
	// number of small messages in flight on a stream, because the receiver must process each of
	// them before a stop takes effect.
	ItemCost = 256
	// PingSize is the length of the payload of a PING and of a PONG, in bytes.
	PingSize = 8
)

// magic begins each HELLO, so that other protocols are not mistaken for a link.
const magic = "whence-link"

// A Kind is the kind of a frame.
type Kind uint8

// The kinds of frames.
const (
	Hello  Kind = iota + 1 // the first frame in each direction
	Open                   // the caller begins a stream
	Items                  // whole messages of any number of streams
	Part                   // a part of a large message
	Close                  // the caller sends no more messages
	Reset                  // the caller drops the stream
	End                    // the callee has ended the stream
	Credit                 // the receiver of a stream has read a number of bytes
	Ping                   // asks for a PONG
	Pong                   // answers a PING
	Goaway                 // the sender accepts no new streams, or opens none
)

// String returns the name of k, such as "ITEMS".
func (k Kind) String() string {
	names := [...]string{"", "HELLO", "OPEN", "ITEMS", "PART", "CLOSE", "RESET", "END", "CREDIT", "PING", "PONG", "GOAWAY"}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("frame kind %d", uint8(k))
	}
	return names[k]
}

// The problems of malformed frames. Each *Error wraps one of them.
var (
	ErrUnknownKind = errors.New("the kind is unknown")
	ErrTooLong     = errors.New("the payload is longer than allowed")
	ErrTruncated   = errors.New("the payload ends within a field")
	ErrSurplus     = errors.New("the payload has bytes after its last field")
	ErrNumber      = errors.New("a number is out of range")
	ErrMagic       = errors.New("the peer does not speak the protocol of links")
	ErrTooMany     = errors.New("there are too many headers or trailers")
)

// An Error is a malformed frame. It ends the connection.
type Error struct {
	Kind    Kind
	Problem error // one of the Err variables
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("malformed %v: %v", e.Kind, e.Problem) }

// Unwrap returns the problem.
func (e *Error) Unwrap() error { return e.Problem }

// A Frame is a frame whose payload is still encoded.
type Frame struct {
	Kind    Kind
	Payload []byte // a part of the slice that was decoded
}

// Decode returns the first frame of b and its length in bytes, header included. The length is 0 if
// b ends before the frame does.
func Decode(b []byte) (f Frame, n int, err error) {
	if len(b) < HeaderSize {
		return Frame{}, 0, nil
	}
	kind, size := Kind(b[0]), int(b[1])|int(b[2])<<8|int(b[3])<<16
	if kind < Hello || kind > Goaway {
		return Frame{}, 0, &Error{kind, ErrUnknownKind}
	}
	if size > MaxPayload {
		return Frame{}, 0, &Error{kind, ErrTooLong}
	}
	if len(b) < HeaderSize+size {
		return Frame{}, 0, nil
	}
	return Frame{kind, b[HeaderSize : HeaderSize+size]}, HeaderSize + size, nil
}

// Begin appends the header of a frame whose payload follows. at is the offset of the frame in out,
// for Finish.
func Begin(b []byte, kind Kind) (out []byte, at int) {
	return append(b, byte(kind), 0, 0, 0), len(b)
}

// Finish writes the length of the frame at offset at, whose payload is the rest of b.
func Finish(b []byte, at int) {
	size := len(b) - at - HeaderSize
	b[at+1], b[at+2], b[at+3] = byte(size), byte(size>>8), byte(size>>16)
}

// fields reads the fields of a payload. After the first problem all fields are zero.
type fields struct {
	b   []byte
	err error
}

func (f *fields) fail(problem error) {
	if f.err == nil {
		f.err = problem
	}
	f.b = nil
}

func (f *fields) number() uint64 {
	v, n := binary.Uvarint(f.b)
	switch {
	case n == 0:
		f.fail(ErrTruncated)
		return 0
	case n < 0:
		f.fail(ErrNumber)
		return 0
	}
	f.b = f.b[n:]
	return v
}

// stream reads the number of a stream, which is not 0.
func (f *fields) stream() uint32 {
	v := f.number()
	if f.err == nil && (v == 0 || v > math.MaxUint32) {
		f.fail(ErrNumber)
		return 0
	}
	return uint32(v)
}

// size reads a number that fits into an int32.
func (f *fields) size() int {
	v := f.number()
	if v > math.MaxInt32 {
		f.fail(ErrNumber)
		return 0
	}
	return int(v)
}

func (f *fields) bytes() []byte {
	n := f.number()
	if n > uint64(len(f.b)) {
		f.fail(ErrTruncated)
		return nil
	}
	b := f.b[:n]
	f.b = f.b[n:]
	return b
}

// pairs reads headers or trailers: alternating keys and values.
func (f *fields) pairs() []string {
	n := f.number()
	if n > MaxPairs {
		f.fail(ErrTooMany)
		return nil
	}
	if f.err != nil || n == 0 {
		return nil
	}
	all := make([]string, 0, 2*n)
	for range 2 * n {
		all = append(all, string(f.bytes()))
	}
	return all
}

// done returns an error if reading failed, or if the payload has more bytes.
func (f *fields) done(kind Kind) error {
	if f.err == nil && len(f.b) > 0 {
		f.err = ErrSurplus
	}
	if f.err != nil {
		return &Error{kind, f.err}
	}
	return nil
}

func appendBytes[T string | []byte](b []byte, v T) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

func appendPairs(b []byte, pairs []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(pairs)/2))
	for _, v := range pairs[:len(pairs)/2*2] {
		b = appendBytes(b, v)
	}
	return b
}
