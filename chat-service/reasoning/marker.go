package reasoning

import "strings"

// FindMarker returns the first of markers in text and its index: the earliest match, and the
// longest one if several begin there. If there is no match, which is -1, and at is the length of
// the text that cannot be part of a marker. last means that no text follows, so that all of text is
// certain.
func FindMarker(text string, last bool, markers ...string) (at, which int) {
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
	if which >= 0 && at < safe {
		return at, which
	}
	return safe, -1 // a longer marker may have begun there or earlier
}

// begun returns the length of the longest suffix of text that is a proper prefix of m.
func begun(text, m string) int {
	for n := min(len(text), len(m)-1); n > 0; n-- {
		if strings.HasSuffix(text, m[:n]) {
			return n
		}
	}
	return 0
}
