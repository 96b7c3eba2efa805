// Package nesting bounds the number of messages within an encoded message, before the message is
// decoded. In a list, an empty message takes 1 to 3 bytes on the wire and about 200 in memory:
// without a bound, a message of 4 MiB grows a hundredfold.
package nesting

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// A message of any size may hold free messages, and one more for every bytesPerMessage bytes.
	// The shortest chat messages are smaller: with the role "user" and a text of two letters they
	// take 12 bytes, and a request may hold about 4,000 of them.
	free            = 1024
	bytesPerMessage = 16

	// maxDepth bounds the recursion of Binary. None of our messages is nested that deep.
	maxDepth = 64
)

// Max returns the largest number of messages, on all levels together, that an encoded message of
// size bytes may hold. The entries of a map count if their values are messages.
func Max(size int) int { return free + size/bytesPerMessage }

// An Error is the refusal of a message that holds more than Max messages.
type Error struct{ Max int }

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("it holds more than %d messages, which is too many for its size", e.Max)
}

var errDeep = fmt.Errorf("it holds messages that are nested deeper than %d levels", maxDepth)

// Binary returns an *Error if b, an encoded message that md describes, holds too many messages, and
// another error if the messages are nested too deep. It does not report encoding errors, which the
// decoder finds.
func Binary(b []byte, md protoreflect.MessageDescriptor) error {
	left := Max(len(b))
	err := binary(b, md, &left, 0)
	if err == nil && left < 0 {
		err = &Error{Max(len(b))}
	}
	return err
}

// binary subtracts the number of messages in b from left, until left is negative. It returns
// errDeep if the messages are nested too deep.
func binary(b []byte, md protoreflect.MessageDescriptor, left *int, depth int) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return nil
		}
		value := b[:n]
		b = b[n:]
		fd := md.Fields().ByNumber(number)
		if fd == nil || fd.Message() == nil || kind != protowire.BytesType {
			continue
		}
		if fd.IsMap() && fd.MapValue().Message() == nil {
			continue // such an entry is not much larger in memory than on the wire
		}
		if !md.IsMapEntry() { // an entry and its value count as one message
			*left--
		}
		if *left < 0 {
			return nil
		}
		if depth == maxDepth {
			return errDeep
		}
		inner, _ := protowire.ConsumeBytes(value)
		if err := binary(inner, fd.Message(), left, depth+1); err != nil || *left < 0 {
			return err
		}
	}
	return nil
}

// JSON returns an *Error if b, a message in protobuf's JSON form, holds too many objects.
func JSON(b []byte) error {
	left := Max(len(b)) + 1 // the message itself is an object
	quoted := false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && c == '{':
			left--
		}
		if left < 0 {
			return &Error{Max(len(b))}
		}
	}
	return nil
}
