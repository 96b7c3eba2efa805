// Package tracedoc checks that the traces in the docs equal the traces that the examples print.
package tracedoc

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A Buffer collects what an example prints. It is safe for concurrent use.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns the text so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

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
	for line := range strings.Lines(rest) {
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
		lines = slices.Concat(lines, sent, messages, received)
		sent, messages, received = nil, nil, nil
	}
	for line := range strings.Lines(text) {
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

// Picture draws the spans of one trace as a waterfall in SVG: a bar for each span with a tick for
// each event, with the names of the hop and the method above it, and the reason and the path of the
// ending below it.
func Picture(spans tracetest.SpanStubs) string {
	slices.SortFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	begin, end := spans[0].StartTime, spans[0].EndTime
	for i := range spans {
		if spans[i].EndTime.After(end) {
			end = spans[i].EndTime
		}
	}
	x := func(at time.Time) float64 {
		return left + (width-2*left)*float64(at.Sub(begin))/float64(end.Sub(begin))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n", width, 2*top+row*len(spans))
	b.WriteString("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n")
	for i := range spans {
		s, y := &spans[i], top+row*i
		has := map[string]string{}
		for _, a := range s.Attributes {
			has[string(a.Key)] = a.Value.String()
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n", left, y, html.EscapeString(has["whence.hop"]+", "+s.SpanKind.String()+" of "+s.Name))
		fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#7fb2d9\"/>\n", x(s.StartTime), y+6, max(1, x(s.EndTime)-x(s.StartTime)), bar)
		for _, e := range s.Events {
			fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%d\" width=\"1.5\" height=\"%d\" fill=\"%s\"><title>%s</title></rect>\n", x(e.Time), y+6, bar, color(&e), html.EscapeString(e.Name))
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" fill=\"#8a2f2f\">%s</text>\n", left, y+bar+21, html.EscapeString(has["whence.reason"]+"  ["+has["whence.path"]+"]  "+s.Status.Description))
	}
	return b.String() + "</svg>\n"
}

// color returns red for resets, and dark blue for all other events.
func color(e *sdktrace.Event) string {
	if strings.HasSuffix(e.Name, "_rst") {
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
