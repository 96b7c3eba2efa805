// Package tracedoc checks that the traces in the docs equal the traces that the examples print.
package tracedoc

import (
	"fmt"
	"html"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
)

var milliseconds = regexp.MustCompile(` +\d+\.\d+ ms`)

// Compare compares the output of an example with the block after command in the file docs. The
// lines outside spans, and the lines of one direction of a span, must have the same order in both.
// Times may differ, and so may the order of sent events relative to received events.
func Compare(t *testing.T, docs, command, output string) {
	t.Helper()
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), command+"\n\n")
	if !found {
		t.Fatalf("%s does not run %s", docs, command)
	}
	var block strings.Builder
	for _, line := range strings.SplitAfter(rest, "\n") {
		text, inBlock := strings.CutPrefix(line, "    ")
		if !inBlock {
			break
		}
		block.WriteString(text)
	}
	if want, got := structure(block.String()), structure(output); !slices.Equal(want, got) {
		t.Errorf("%s has\n%s\nand the example prints\n%s", docs, block.String(), output)
	}
}

// structure returns the lines of a trace without times. The events of each span are sorted: sent
// events, received messages, and other received events.
func structure(text string) []string {
	var lines, sent, messages, received []string
	flush := func() {
		lines = append(append(append(lines, sent...), messages...), received...)
		sent, messages, received = nil, nil, nil
	}
	for _, line := range strings.SplitAfter(text, "\n") {
		event := milliseconds.ReplaceAllString(line, "")
		switch name := strings.TrimSpace(event); {
		case event == line:
			flush()
			lines = append(lines, line)
		case strings.HasPrefix(name, "send"):
			sent = append(sent, event)
		case strings.HasPrefix(name, "recv "):
			messages = append(messages, event)
		default:
			received = append(received, event)
		}
	}
	flush()
	return lines
}

// Geometry of the picture, in pixels.
const (
	width, left, top, row, bar = 760, 20, 20, 62, 16
)

// Picture draws the records of one trace as a waterfall in SVG: a bar for each stream with a tick for
// each event, with the names of the hop and the method above it, and the reason and the path of the
// ending below it.
func Picture(records []*monitor.Record) string {
	slices.SortFunc(records, func(a, b *monitor.Record) int { return a.Began.Compare(b.Began) })
	begin, end := records[0].Began, records[0].Ended
	for _, r := range records {
		if r.Ended.After(end) {
			end = r.Ended
		}
	}
	x := func(at time.Time) float64 {
		return left + (width-2*left)*float64(at.Sub(begin))/float64(end.Sub(begin))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n", width, 2*top+row*len(records))
	b.WriteString("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n")
	for i, r := range records {
		y := top + row*i
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n", left, y, html.EscapeString(fmt.Sprintf("%s, %s of %s", r.Hop, r.Side, r.Name)))
		fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#7fb2d9\"/>\n", x(r.Began), y+6, max(1, x(r.Ended)-x(r.Began)), bar)
		for _, e := range r.Events {
			fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%d\" width=\"1.5\" height=\"%d\" fill=\"%s\"><title>%s</title></rect>\n", x(r.Began.Add(e.At)), y+6, bar, color(e.Kind), html.EscapeString(string(e.Kind)))
		}
		message := ""
		if r.Failed() {
			message = r.Message
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" fill=\"#8a2f2f\">%s</text>\n", left, y+bar+21, html.EscapeString(fmt.Sprintf("%s  [%s]  %s", r.Reason.String(), r.Path, message)))
	}
	return b.String() + "</svg>\n"
}

// color returns red for resets, and dark blue for all other events.
func color(kind monitor.Kind) string {
	if kind == monitor.SendRst || kind == monitor.RecvRst {
		return "#c62828"
	}
	return "#1f3f5f"
}

var texts = regexp.MustCompile(`<(?:text|title)[^>]*>([^<]*)<`)

// Texts returns the texts of a picture in alphabetical order: the names, endings and events,
// without their positions.
func Texts(svg string) (all []string) {
	for _, match := range texts.FindAllStringSubmatch(svg, -1) {
		all = append(all, match[1])
	}
	slices.Sort(all)
	return all
}
