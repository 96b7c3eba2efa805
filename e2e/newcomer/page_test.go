// Package newcomer follows README.md and docs/tutorial.md as a new user would: it runs the printed
// commands, in the root of the repository, and compares what they print with what the page says.
//
// It changes only what depends on the machine: ports, the directory of the build, and the pace of
// the model, so that a slow machine has time to interrupt a stream.
package newcomer

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A block is a run of indented lines of a page: commands, or their output.
type block struct {
	line int
	text string
}

// blocks returns the blocks of a page, without the indentation.
func blocks(t *testing.T, file string) (all []block) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	inside, number := false, 0
	for line := range strings.Lines(string(page)) {
		number++
		text, indented := strings.CutPrefix(line, "    ")
		switch {
		case !indented:
		case inside:
			all[len(all)-1].text += text
		default:
			all = append(all, block{number, text})
		}
		inside = indented
	}
	return all
}

// variable matches what differs between two runs: times, counts, ports and ages.
var variable = regexp.MustCompile(`(\d[\d.]*(ms|m|s)?)+`)

// words of a line, in which numbers are "N".
func words(line string) []string { return strings.Fields(variable.ReplaceAllString(line, "N")) }

// shows reports whether a printed line has all words of a line of the page, in their order. The page
// may leave words out of a line of a log, and "…" stands for anything.
func shows(printed, page string) bool {
	rest := words(printed)
	for _, want := range strings.Fields(strings.ReplaceAll(strings.Join(words(page), " "), "…", " ")) {
		found := false
		for i, word := range rest {
			if strings.Contains(word, want) {
				rest, found = rest[i:], true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// missing returns the first line of a block of output that is not in the output, in its order; "" if
// all are.
func missing(output string, page block) string {
	lines := strings.Split(output, "\n")
	for want := range strings.Lines(page.text) {
		found := false
		for i, line := range lines {
			if shows(line, want) {
				lines, found = lines[i+1:], true
				break
			}
		}
		if !found {
			return strings.TrimSpace(want)
		}
	}
	return ""
}

func TestOutputIsCompared(t *testing.T) {
	const out = "time=x level=INFO msg=\"stream ended\" stream=a hop=b took=17.1ms\nfirst  ended: user_stop by client\n16 prompt tokens; 21 generated\n"
	for page, want := range map[string]string{
		"msg=\"stream ended\" hop=b\n16 prompt tokens; 48 generated\n": "",
		"16 prompt tokens; …\n":                                        "",
		"msg=\"stream ended\" hop=c\n":                                 "msg=\"stream ended\" hop=c",
		"16 prompt tokens\nmsg=\"stream ended\"\n":                     "msg=\"stream ended\"", // another order
		"hop=b msg=\"stream ended\"\n":                                 "hop=b msg=\"stream ended\"",
		"first ended: client_gone by client\n":                         "first ended: client_gone by client",
	} {
		if got := missing(out, block{text: page}); got != want {
			t.Errorf("%q: %q is missing, want %q", page, got, want)
		}
	}
}
