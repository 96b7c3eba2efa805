// Package marker finds markers, such as "<tool_call>", in text that comes in pieces.
package marker

import "strings"

// Find returns the first of markers in text, and where: the earliest, and of several that begin there the longest. Without one,
// which is -1 and at says how much of text can be no part of a marker; with last, when nothing follows, that is all of it.
func Find(text string, last bool, markers ...string) (at, which int) {
	at, which = len(text), -1
	for i, m := range markers {
		n := strings.Index(text, m)
		if n >= 0 && (which < 0 || n < at || n == at && len(m) > len(markers[which])) {
			at, which = n, i
		}
	}
	if last {
		return at, which
	}
	safe := len(text)
	for _, m := range markers {
		safe = min(safe, len(text)-begun(text, m))
	}
	if which >= 0 && at <= safe {
		return at, which
	}
	return safe, -1 // a longer one may have begun earlier
}

// begun returns the length of the longest end of text that is a proper beginning of m.
func begun(text, m string) int {
	for n := min(len(text), len(m)-1); n > 0; n-- {
		if strings.HasSuffix(text, m[:n]) {
			return n
		}
	}
	return 0
}
