package connection

import (
	"bytes"
	"strings"
)

const (
	// MaxHeader bounds a request's header, and the trailer of its body, in bytes. A longer one is
	// answered with 431.
	MaxHeader = 64 << 10
	// MaxFields bounds the fields of a header, and those of a trailer.
	MaxFields = 200
	// maxMethod is the number of bytes in which Hertz looks for a method that is none.
	maxMethod = 10
)

// A head follows the header of a request while the header arrives, and looks at each byte once. Hertz
// parses the header from its beginning each time that bytes arrive, so a client that sends 64 KiB in
// small pieces would cost seconds.
type head struct {
	seen  int  // bytes that have been looked at
	line  int  // where the current line begins
	lines int  // complete lines
	wrong bool // the request line is none
	http1 bool // the request line names HTTP/1.0 or HTTP/1.1
	whole bool // the header is complete
	late  bool // the header has not arrived in time
}

// follow looks at the new bytes of a header, of which b has all bytes so far. It returns true when
// Hertz can say something about the header: it is complete, too large, or no header.
func (h *head) follow(b []byte) (done bool) {
	for {
		i := bytes.IndexByte(b[h.seen:], '\n')
		if i < 0 {
			h.seen = len(b)
			return len(b) >= MaxHeader || h.lines == 0 && !begins(b)
		}
		line := bytes.TrimSuffix(b[h.line:h.seen+i], []byte("\r"))
		h.seen += i + 1
		h.line = h.seen
		if h.lines == 0 {
			h.first(line)
		} else if len(line) == 0 {
			h.whole = true
			return true
		}
		if h.lines++; h.wrong {
			return true
		}
	}
}

// first looks at the request line.
func (h *head) first(line []byte) {
	at := bytes.LastIndexByte(line, ' ')
	version, http := bytes.CutPrefix(line[at+1:], []byte("HTTP/"))
	h.http1 = string(version) == "1.1" || string(version) == "1.0"
	h.wrong = at < 0 || !http || !begins(line)
}

// fields returns the number of fields of a complete header.
func (h *head) fields() int { return h.lines - 1 }

// begins reports whether b may be the beginning of a request.
func begins(b []byte) bool {
	for _, c := range b[:min(len(b), maxMethod)] {
		if c == ' ' {
			return true
		}
		if !token(c) {
			return false
		}
	}
	return true
}

// token reports whether a byte may stand in a method, or in the name of a field (RFC 9110, section
// 5.6.2).
func token(b byte) bool {
	return 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b != 0 && strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
}
