package toolcall

import "encoding/json"

// A progress is the result of reading a part of an object.
type progress uint8

const (
	more progress = iota
	whole
	bad
)

// A nest finds the end of a JSON value that begins with a bracket. It counts brackets and validates
// nothing else.
type nest struct {
	depth           int
	quoted, escaped bool
}

// read reports whether b ends the value.
func (n *nest) read(b byte) bool {
	switch {
	case n.escaped:
		n.escaped = false
	case n.quoted && b == '\\':
		n.escaped = true
	case b == '"':
		n.quoted = !n.quoted
	case n.quoted:
	case b == '{' || b == '[':
		n.depth++
	case b == '}' || b == ']':
		n.depth--
		return n.depth == 0
	}
	return false
}

// An object reads {"name": …, "arguments": {…}} in pieces. "parameters" is a synonym of
// "arguments", other members are ignored, and members may have any order.
type object struct {
	known     func(string) bool
	announced bool // the parser has emitted Begin

	at     place
	member string
	name   string
	token  []byte // the current string
	nest   nest   // of the current value
	args   []byte // not emitted yet
	begun  bool   // the arguments have begun
	ended  bool   // the object has ended
	head   int    // bytes read before the call was announced
}

// A place is the next expected part of an object.
type place uint8

const (
	atOpen   place = iota
	atFirst        // a key, or the end
	atKey          // a key
	inKey          // the rest of a key
	atColon        //
	atValue        //
	inString       // the rest of a string
	inNest         // the rest of a list or object
	inWord         // the rest of a number, true, false or null
	atComma        // a comma, or the end
)

// ready reports whether the call can be announced: its tool is known, and its arguments have begun
// or will not come.
func (o *object) ready() bool { return !o.announced && o.name != "" && (o.begun || o.ended) }

// take returns the arguments that can be emitted.
func (o *object) take() string {
	if o.ended && !o.begun {
		o.begun = true
		return "{}"
	}
	s := string(o.args)
	o.args = o.args[:0]
	return s
}

// read consumes n bytes of s. It stops at the byte that makes the object ready, and before a bad
// byte.
func (o *object) read(s string) (n int, _ progress) {
	for n < len(s) {
		p := o.step(s[n])
		if p == bad {
			return n, bad
		}
		n++
		if p == whole {
			o.ended = true
			if o.name == "" {
				return n, bad
			}
			return n, whole
		}
		if o.ready() {
			return n, more
		}
		if o.head++; o.head > maxHead && !o.announced {
			return n, bad
		}
	}
	return n, more
}

func (o *object) step(b byte) progress {
	blank := b == ' ' || b == '\n' || b == '\t' || b == '\r'
	switch o.at {
	case inString, inKey:
		return o.quoted(b)
	case inNest:
		if o.arguments() {
			o.args = append(o.args, b)
		}
		if o.nest.read(b) {
			o.at = atComma
		}
		return more
	case inWord:
		if !blank && b != ',' && b != '}' {
			return more
		}
		o.at = atComma
	default: // between
	}
	if blank {
		return more
	}
	switch {
	case o.at == atOpen && b == '{':
		o.at = atFirst
	case (o.at == atFirst || o.at == atKey) && b == '"':
		o.at, o.token = inKey, append(o.token[:0], b)
	case o.at == atColon && b == ':':
		o.at = atValue
	case o.at == atValue:
		return o.value(b)
	case o.at == atComma && b == ',':
		o.at = atKey
	case (o.at == atComma || o.at == atFirst) && b == '}':
		return whole
	default:
		return bad
	}
	return more
}

func (o *object) arguments() bool { return o.member == "arguments" || o.member == "parameters" }

// value begins a value with its first byte.
func (o *object) value(b byte) progress {
	switch {
	case o.arguments():
		if b != '{' || o.begun {
			return bad
		}
		o.begun, o.args = true, append(o.args, b)
		fallthrough
	case b == '{' || b == '[':
		if o.member == "name" {
			return bad
		}
		o.at, o.nest = inNest, nest{}
		o.nest.read(b)
	case b == '"':
		o.at, o.token = inString, append(o.token[:0], b)
	case o.member == "name" || b == ',' || b == '}' || b == ']' || b == ':':
		return bad
	default:
		o.at = inWord
	}
	return more
}

// quoted continues the string in o.token.
func (o *object) quoted(b byte) progress {
	if o.token = append(o.token, b); len(o.token) > maxHead {
		return bad
	}
	if b != '"' || o.escaped() {
		return more
	}
	var text string
	if json.Unmarshal(o.token, &text) != nil {
		return bad
	}
	if o.at == inKey {
		o.at, o.member = atColon, text
		return more
	}
	o.at = atComma
	if o.member == "name" {
		if o.name != "" || !o.known(text) {
			return bad
		}
		o.name = text
	}
	return more
}

// escaped reports whether the last byte of o.token has an odd number of backslashes before it.
func (o *object) escaped() bool {
	n := 0
	for i := len(o.token) - 2; i > 0 && o.token[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}
