package lexicon

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// A Part is a JSON string with its bytes unchanged. encoding/json would replace bytes that are not
// UTF-8, and halves of surrogate pairs; a Part keeps the bytes, and encodes half a pair as three
// bytes, as if it were a character. Servers that send each token at once split characters in either
// way; see Characters.
type Part []byte

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// UnmarshalJSON accepts a string, or null for an empty one.
func (p *Part) UnmarshalJSON(b []byte) error {
	*p = nil
	if string(b) == "null" {
		return nil
	}
	if len(b) < 2 || b[0] != '"' {
		return errors.New("text is not a string")
	}
	b = b[1 : len(b)-1]
	out := make([]byte, 0, len(b))
	for {
		at := bytes.IndexByte(b, '\\')
		if at < 0 {
			*p = append(out, b...)
			return nil
		}
		out = append(out, b[:at]...)
		b = b[at+1:] // valid JSON: another character follows
		if b[0] != 'u' {
			out, b = append(out, escapes[b[0]]), b[1:]
			continue
		}
		unit := unhex(b[1:5])
		b = b[5:]
		if utf16.IsSurrogate(rune(unit)) {
			out = append(out, 0xE0|byte(unit>>12), 0x80|byte(unit>>6)&0x3F, 0x80|byte(unit)&0x3F)
		} else {
			out = utf8.AppendRune(out, rune(unit))
		}
	}
}

func unhex(digits []byte) uint16 {
	var b [2]byte
	_, _ = hex.Decode(b[:], digits) // the JSON is valid
	return binary.BigEndian.Uint16(b[:])
}

// Characters assembles whole characters from parts. It holds back the beginning of a character, at
// most five bytes.
type Characters struct{ held []byte }

// Next returns the complete characters. Every byte that is part of none becomes U+FFFD.
func (c *Characters) Next(p Part) string {
	if len(c.held) == 0 && utf8.Valid(p) {
		return string(p)
	}
	rest := append(c.held, p...)
	var out []byte
	for len(rest) > 0 {
		high, n := surrogate(rest)
		if n > 0 {
			low, m := surrogate(rest[n:])
			if len(rest) < 6 && utf16.DecodeRune(high, 0xDC00) != utf8.RuneError && couldBeLow(rest[n:]) {
				break
			}
			if m > 0 {
				if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
					out, rest = utf8.AppendRune(out, r), rest[n+m:]
					continue
				}
			}
			out, rest = utf8.AppendRune(out, utf8.RuneError), rest[n:]
			continue
		}
		if !utf8.FullRune(rest) || cutSurrogate(rest) {
			break
		}
		r, n := utf8.DecodeRune(rest)
		out, rest = utf8.AppendRune(out, r), rest[n:]
	}
	c.held = append(c.held[:0], rest...)
	return string(out)
}

// Flush returns the replacement for a character that was never completed.
func (c *Characters) Flush() string {
	if len(c.held) == 0 {
		return ""
	}
	c.held = nil
	return string(utf8.RuneError)
}

// surrogate decodes half of a surrogate pair as Part encodes it; n is 0 if b does not begin with
// one.
func surrogate(b []byte) (half rune, n int) {
	if len(b) < 3 || b[0] != 0xED || b[1]&0xE0 != 0xA0 || b[2]&0xC0 != 0x80 {
		return 0, 0
	}
	return 0xD000 | rune(b[1]&0x3F)<<6 | rune(b[2]&0x3F), 3
}

// cutSurrogate reports whether b could be the first two bytes of half a pair, which is not valid
// UTF-8.
func cutSurrogate(b []byte) bool { return len(b) == 2 && b[0] == 0xED && b[1]&0xE0 == 0xA0 }

// couldBeLow reports whether b is the beginning of the second half of a pair.
func couldBeLow(b []byte) bool {
	switch len(b) {
	case 0:
		return true
	case 1:
		return b[0] == 0xED
	default:
		return len(b) == 2 && b[0] == 0xED && b[1]&0xF0 == 0xB0
	}
}
