package tokenizer

import (
	"unicode/utf8"
)

// Byte-level vocabularies write every byte as a printable character, so that JSON can hold tokens:
// printable Latin-1 characters represent themselves, and the other bytes are numbered from U+0100.
// A bpe stores such vocabularies as bytes, and converts only at its boundaries.
var (
	byteRune = func() (table [256]rune) {
		n := rune(256)
		for b := range table {
			if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
				table[b] = rune(b)
			} else {
				table[b] = n
				n++
			}
		}
		return table
	}()
	runeByte = func() map[rune]byte {
		table := make(map[rune]byte, 256)
		for b, r := range byteRune {
			table[r] = byte(b)
		}
		return table
	}()
)

// spellBytes returns the characters that represent the bytes of s.
func spellBytes(s string) string {
	out := make([]byte, 0, 2*len(s))
	for i := range len(s) {
		out = utf8.AppendRune(out, byteRune[s[i]])
	}
	return string(out)
}

// readBytes appends the bytes that the characters of s represent. If a character represents no
// byte, ok is false and dst is unchanged.
func readBytes(dst []byte, s string) (_ []byte, ok bool) {
	n := len(dst)
	for _, r := range s {
		b, ok := runeByte[r]
		if !ok {
			return dst[:n], false
		}
		dst = append(dst, b)
	}
	return dst, true
}
