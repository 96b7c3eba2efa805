package redisclient

import (
	"errors"
	"fmt"
	"math"
)

// ErrReply is the error of a connection whose server has sent a reply that breaks a rule.
var ErrReply = errors.New("redis has sent a reply that is not valid here")

// The rules for replies.
const (
	maxDepth   = 8        // arrays and maps within each other; our calls need 4
	maxLine    = 16 << 10 // bytes of a status, an error or a number
	maxMessage = 4 << 10  // bytes of a Pub/Sub message; ours have a name of a channel and no text
	// itemBytes is what a part of an array or a map costs in memory, besides its text. It is
	// charged when the array begins, because the library allocates all parts then.
	itemBytes = 64
)

// replies checks the replies of a server as their bytes pass. It keeps none of them.
type replies struct {
	// charge reserves memory for a reply, and returns an error if there is not so much. A reply is
	// charged as soon as it announces its length.
	charge func(bytes int64) error

	messages bool  // the server sends messages, and no replies
	pending  int   // commands without a reply; not used for messages
	bytes    int64 // of the reply so far

	at     place
	kind   byte  // the type of the value that is being read
	number int64 // the length that the value's line announces, or the rest of its text
	digits int   // of number
	minus  bool
	line   int // bytes of the line so far
	cr     bool
	stack  [maxDepth]aggregate
	depth  int

	message message
}

// An aggregate is an array or a map that is being read.
type aggregate struct {
	left  int64 // parts that follow; a pair of a map is two parts
	isMap bool
}

// A place is a place in the bytes of a value.
type place int

const (
	atKind place = iota // before a value
	inLine              // in the first line of a value
	inText              // in the text of a string
	atCR                // after the text
	atLF
)

// check takes the next bytes of the server. After an error it must not be called again.
func (r *replies) check(p []byte) error {
	for i := 0; i < len(p); {
		var err error
		switch r.at {
		case atKind:
			err = r.begin(p[i])
			i++
		case inLine:
			err = r.inLine(p[i])
			i++
		case inText:
			n := min(int64(len(p)-i), r.number)
			r.message.text(p[i : i+int(n)])
			r.number -= n
			i += int(n)
			if r.number == 0 {
				r.at = atCR
			}
		case atCR, atLF:
			err = r.afterText(p[i])
			i++
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrReply, fmt.Errorf(format, args...))
}

// begin takes the first byte of a value, which is its type.
func (r *replies) begin(kind byte) error {
	if r.depth == 0 {
		if !r.messages && r.pending == 0 {
			return refuse("it answers no command")
		}
		r.bytes, r.message = 0, message{}
	}
	switch kind {
	case '+', '-', ':', '$', '_', ',', '#', '*', '%', '~':
	case '>':
		if !r.messages || r.depth > 0 {
			return refuse("it is a push, and nothing is subscribed to")
		}
	default: // among them are attributes, big numbers and streamed strings, which none of our calls gets
		return refuse("its type is %q", kind)
	}
	if r.depth > 0 && r.stack[r.depth-1].isKey() && kind != '+' && kind != '$' && kind != ':' {
		return refuse("a key of a map has type %q", kind)
	}
	if r.messages {
		if err := r.message.begin(r.depth, kind); err != nil {
			return err
		}
	}
	r.at, r.kind, r.number, r.digits, r.minus, r.line, r.cr = inLine, kind, 0, 0, false, 0, false
	return nil
}

// isKey reports whether the next part is the key of a pair.
func (a aggregate) isKey() bool { return a.isMap && a.left%2 == 0 }

// hasLength reports whether the line of a value of this type is a length.
func hasLength(kind byte) bool {
	return kind == '$' || isAggregate(kind)
}

func isAggregate(kind byte) bool { return kind == '*' || kind == '%' || kind == '~' || kind == '>' }

// inLine takes a byte of the first line of a value, after its type.
func (r *replies) inLine(b byte) error {
	r.line++
	switch {
	case r.line > maxLine:
		return refuse("a line has more than %d bytes", maxLine)
	case b == '\n' && !r.cr:
		return refuse("a line ends without a carriage return")
	case b == '\n':
		return r.endLine()
	}
	if hasLength(r.kind) && b != '\r' {
		if err := r.digit(b); err != nil {
			return err
		}
	} else if b != '\r' && r.kind != '$' {
		r.message.text([]byte{b})
	}
	if r.cr && hasLength(r.kind) {
		return refuse("a length is not a number")
	}
	r.cr = b == '\r'
	return nil
}

// digit takes a byte of a length.
func (r *replies) digit(b byte) error {
	switch {
	case b == '-' && r.digits == 0 && !r.minus:
		r.minus = true
	case b < '0' || b > '9':
		return refuse("a length is not a number")
	case r.number > math.MaxInt32:
		return refuse("a length has too many digits")
	default:
		r.number = r.number*10 + int64(b-'0')
		r.digits++
	}
	return nil
}

// endLine ends the first line of a value.
func (r *replies) endLine() error {
	if !hasLength(r.kind) {
		if err := r.cost(int64(r.line)); err != nil {
			return err
		}
		return r.endValue()
	}
	switch {
	case r.digits == 0:
		return refuse("a length is missing")
	case r.minus && (r.number != 1 || r.kind != '$' && r.kind != '*'):
		return refuse("a length is negative")
	case r.minus: // nothing, as servers write it in RESP2
		if err := r.message.nothing(r.messages, r.depth); err != nil {
			return err
		}
		return r.endValue()
	case r.kind == '$':
		if err := r.cost(r.number); err != nil {
			return err
		}
		if r.at = inText; r.number == 0 {
			r.at = atCR
		}
		return nil
	}
	return r.beginAggregate()
}

// beginAggregate begins an array or a map with number parts or pairs.
func (r *replies) beginAggregate() error {
	if r.kind == '%' {
		r.number *= 2
	}
	if r.messages {
		if err := r.message.parts(r.number); err != nil {
			return err
		}
	}
	if err := r.cost(r.number * itemBytes); err != nil {
		return err
	}
	if r.number == 0 {
		return r.endValue()
	}
	if r.depth == maxDepth {
		return refuse("it is nested more than %d levels deep", maxDepth)
	}
	r.stack[r.depth] = aggregate{left: r.number, isMap: r.kind == '%'}
	r.depth++
	r.at = atKind
	return nil
}

func (r *replies) afterText(b byte) error {
	if want := byte('\r'); r.at == atCR && b == want {
		r.at = atLF
		return nil
	}
	if r.at == atLF && b == '\n' {
		return r.endValue()
	}
	return refuse("a text is longer than its length")
}

// endValue ends a value, and each array and map that it completes.
func (r *replies) endValue() error {
	r.at = atKind
	if r.messages {
		if err := r.message.endPart(r.depth); err != nil {
			return err
		}
	}
	for r.depth > 0 {
		if r.stack[r.depth-1].left--; r.stack[r.depth-1].left > 0 {
			return nil
		}
		r.depth--
	}
	if !r.messages {
		r.pending--
	}
	return nil
}

// cost charges a part of a reply.
func (r *replies) cost(bytes int64) error {
	if r.bytes += bytes; r.messages {
		if r.bytes > maxMessage {
			return refuse("a message has more than %d bytes", maxMessage)
		}
		return nil
	}
	return r.charge(bytes)
}
