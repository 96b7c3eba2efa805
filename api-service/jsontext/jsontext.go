// Package jsontext appends JSON strings to buffers, once per token, without an allocation.
package jsontext

import "unicode/utf8"

const hex = "0123456789abcdef"

// String appends s to b as a JSON string, encoded like encoding/json without HTML escaping. It
// allocates only when b grows. Invalid UTF-8 becomes U+FFFD.
func String(b []byte, s string) []byte {
	return append(Text(append(b, '"'), s), '"')
}

// Text appends s to b as the inside of a JSON string, without the quotes. The insides of two
// strings, one after the other, are the inside of the concatenated string.
func Text(b []byte, s string) []byte {
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				b = append(append(b, s[start:i]...), `\ufffd`...)
			case r == '\u2028', r == '\u2029': // line ends to old JavaScript
				b = append(append(b, s[start:i]...), `\u202`...)
				b = append(b, hex[r&0xf])
			default:
				i += size
				continue
			}
			i += size
			start = i
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		}
		i++
		start = i
	}
	return append(b, s[start:]...)
}
