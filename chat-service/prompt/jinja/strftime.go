package jinja

import (
	"fmt"
	"strings"
	"time"
)

// layouts maps directives of strftime in the C locale to Go layouts; "-" drops the padding.
var layouts = map[string]string{
	"Y": "2006", "y": "06", "m": "01", "-m": "1", "B": "January", "b": "Jan", "h": "Jan", "d": "02", "-d": "2", "e": "_2",
	"A": "Monday", "a": "Mon", "H": "15", "I": "03", "-I": "3", "M": "04", "-M": "4", "S": "05", "-S": "5", "p": "PM",
	"j": "002", "F": "2006-01-02", "T": "15:04:05", "R": "15:04", "D": "01/02/06",
	"Z": "", "z": "", // transformers formats a time without a zone
}

// strftime formats t. It refuses an unknown directive, because other output would go unnoticed.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(format, "%")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		n := min(1, len(after))
		if strings.HasPrefix(after, "-") {
			n = min(2, len(after))
		}
		directive := after[:n]
		format = after[n:]
		switch layout, ok := layouts[directive]; {
		case directive == "%":
			b.WriteByte('%')
		case directive == "f": // Go writes a fraction only after a point
			fmt.Fprintf(&b, "%06d", t.Nanosecond()/1000)
		case directive == "-H":
			fmt.Fprint(&b, t.Hour())
		case ok:
			b.WriteString(t.Format(layout))
		default:
			return "", fmt.Errorf("strftime: unknown directive %%%s", directive)
		}
	}
}
