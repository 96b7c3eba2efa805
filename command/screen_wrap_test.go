package command

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var erasure = regexp.MustCompile("\x1b\\[(\\d+)D\x1b\\[K")

// shownText returns what a terminal shows after the text was written.
func shownText(written string) string {
	for {
		at := erasure.FindStringSubmatchIndex(written)
		if at == nil {
			return written
		}
		n, _ := strconv.Atoi(written[at[2]:at[3]])
		before := []rune(written[:at[0]])
		written = string(before[:len(before)-n]) + written[at[1]:]
	}
}

func TestLinesBreakBetweenWords(t *testing.T) {
	long := strings.Repeat("x", 200)
	for text, want := range map[string]string{
		"short":                        "short",
		strings.Repeat("word ", 17):    strings.Repeat("word ", 16) + "\nword ",
		strings.Repeat("abcdefg ", 11): strings.Repeat("abcdefg ", 10) + "\nabcdefg ",
		strings.Repeat("nine char", 9): wrapText(strings.Repeat("nine char", 9), 80),
		"a\nb\x1b[2Jc":                 "a\nb[2Jc",
		long:                           long[:80] + "\n" + long[:80] + "\n" + long[:40],
		strings.Repeat("語", 41):        strings.Repeat("語", 40) + "\n語",
	} {
		var out strings.Builder
		w := newWrapper(&out, screen{})
		for _, r := range text { // in the smallest pieces
			if err := w.Write("", string(r)); err != nil {
				t.Fatal(err)
			}
		}
		if got := shownText(out.String()); got != want {
			t.Errorf("%.20q is shown as\n%q, want\n%q", text, got, want)
		}
	}
}

// wrapText breaks a text of single spaces into lines.
func wrapText(text string, columns int) string {
	var b strings.Builder
	line := 0
	for i, word := range strings.Split(text, " ") {
		switch {
		case i == 0:
		case line+1 > columns:
			b.WriteByte('\n')
			line = 0
		default:
			b.WriteByte(' ')
			line++
		}
		if line+len(word) > columns {
			b.WriteByte('\n')
			line = 0
		}
		b.WriteString(word)
		line += len(word)
	}
	return b.String()
}
