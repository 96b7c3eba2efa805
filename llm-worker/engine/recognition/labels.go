package recognition

import (
	"strconv"
	"strings"
)

// label returns the value of a label in the labels of a metric, or "".
func label(labels, name string) string {
	for _, before := range []string{"", ",", ", "} {
		start := before + name + `="`
		at := strings.Index(labels, start)
		if at < 0 || before == "" && at > 0 {
			continue
		}
		value, _, _ := strings.Cut(labels[at+len(start):], `"`)
		return clip(value)
	}
	return ""
}

// number returns a positive number, or 0 for a text that is none, such as None.
func number(text string) int {
	n, err := strconv.ParseUint(text, 10, 40)
	if err != nil {
		return 0
	}
	return int(n)
}
