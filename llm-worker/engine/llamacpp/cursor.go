package llamacpp

import (
	"strings"
	"unicode/utf8"
)

// replacement is U+FFFD. The server's JSON library, nlohmann's, writes one for each maximal subpart
// of an ill-formed sequence, as Unicode recommends.
const replacement = "\uFFFD"

// A cursor is a position in a text that tokens spell.
type cursor struct {
	at      int    // bytes of the text before the last character
	begun   string // bytes of the last character, which is incomplete; "" otherwise
	missing int    // see missing; 0 if the server sends the text up to here
}

// missing returns how many bytes must follow b before the server sends the text. The server (its
// validate_utf8) looks for the first bytes of characters among the last four bytes, and does not look
// at what follows them.
func missing(b byte) int {
	switch {
	case b&0xE0 == 0xC0:
		return 1
	case b&0xF0 == 0xE0:
		return 2
	case b&0xF8 == 0xF0:
		return 3
	}
	return 0
}

// read moves c over the bytes of a token; ok is false if the text does not have these bytes.
func (s *speller) read(c cursor, token string) (moved cursor, ok bool) {
	for i := range len(token) {
		c.missing = max(c.missing-1, missing(token[i]))
	}
	bytes := c.begun + token
	c.begun = ""
	for bytes != "" {
		rest := s.text[c.at:]
		replaces := s.replaced && strings.HasPrefix(rest, replacement)
		n, wellFormed := character(bytes)
		switch {
		case n == 0:
			c.begun = bytes
			return c, replaces || strings.HasPrefix(rest, bytes)
		case wellFormed && strings.HasPrefix(rest, bytes[:n]):
			c.at += n
		case !wellFormed && replaces:
			c.at += len(replacement)
		default:
			return c, false
		}
		bytes = bytes[n:]
	}
	return c, true
}

// character returns the length of the first character of bytes or, if it is not well-formed, of the
// maximal subpart that one U+FFFD replaces. It returns 0 if more bytes are needed to tell.
func character(bytes string) (n int, wellFormed bool) {
	if !utf8.FullRuneInString(bytes) {
		return 0, false
	}
	if r, n := utf8.DecodeRuneInString(bytes); r != utf8.RuneError || n > 1 {
		return n, true
	}
	n = 1
	for n < len(bytes) && !utf8.FullRuneInString(bytes[:n+1]) {
		n++
	}
	return n, false
}
