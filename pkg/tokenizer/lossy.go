package tokenizer

import "unicode/utf8"

// appendLossy appends raw to dst, with U+FFFD for every maximal subpart of an ill-formed sequence.
// Rust's String::from_utf8_lossy does the same, and the Unicode standard recommends it in section
// 3.9.
func appendLossy(dst, raw []byte) []byte {
	dst, rest := appendCertain(dst, raw)
	if len(rest) > 0 {
		dst = append(dst, "\uFFFD"...)
	}
	return dst
}

// appendCertain is appendLossy, except that it returns an incomplete last character, which is at
// most three bytes of raw.
func appendCertain(dst, raw []byte) (_, rest []byte) {
	for len(raw) > 0 {
		if raw[0] < utf8.RuneSelf {
			n := 1
			for n < len(raw) && raw[n] < utf8.RuneSelf {
				n++
			}
			dst, raw = append(dst, raw[:n]...), raw[n:]
			continue
		}
		if !utf8.FullRune(raw) {
			return dst, raw
		}
		r, n := utf8.DecodeRune(raw)
		if r == utf8.RuneError && n == 1 {
			dst, raw = append(dst, "\uFFFD"...), raw[subpart(raw):]
			continue
		}
		dst, raw = append(dst, raw[:n]...), raw[n:]
	}
	return dst, nil
}

// subpart returns the length of the longest prefix of the ill-formed raw that could begin a
// character.
func subpart(raw []byte) int {
	n := 1
	for n < len(raw) && n < utf8.UTFMax && !utf8.FullRune(raw[:n]) {
		n++
	}
	// raw[:n] is complete and ill-formed: its last byte does not belong to the subpart, unless it
	// is the only byte.
	return max(n-1, 1)
}
