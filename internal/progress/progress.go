// Package progress draws the progress of a slow step on a terminal.
package progress

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/whence-dev/whence/internal/printable"
)

// A Bar draws the progress of a load or a download on a terminal, in one line that it removes at the
// end. The cursor stays at the beginning of the line, so that a log line replaces the bar until it is
// drawn again. A step that ends before the first drawing prints nothing.
type Bar struct {
	out   io.Writer
	verb  string
	name  string
	begun time.Time
	next  time.Time // when the bar is drawn again
	drawn bool
}

const (
	firstDrawing = 500 * time.Millisecond
	drawing      = 100 * time.Millisecond // between two drawings
	barCells     = 14
	maxBarName   = 20 // characters
)

// NewBar returns a bar that begins now. verb is what is done to name, such as "loading".
func NewBar(out io.Writer, verb, name string) *Bar {
	shown := []rune(printable.Line(name))
	if len(shown) > maxBarName {
		shown = append(shown[:maxBarName-1], '…')
	}
	now := time.Now()
	return &Bar{out: out, verb: verb, name: string(shown), begun: now, next: now.Add(firstDrawing)}
}

// Update draws the bar if it is time to.
func (b *Bar) Update(done, total int64) {
	now := time.Now()
	if now.Before(b.next) || total <= 0 {
		return
	}
	b.next, b.drawn = now.Add(drawing), true
	full := int(done * barCells / total)
	left := ""
	if done > 0 {
		rest := time.Duration(float64(now.Sub(b.begun)) * float64(total-done) / float64(done))
		left = fmt.Sprintf(", %v left", rest.Round(time.Second))
	}
	_, _ = fmt.Fprintf(b.out, "\r%s %s [%s%s] %d%% of %d MiB%s\x1b[K\r", // the terminal may have gone
		b.verb, b.name, strings.Repeat("#", full), strings.Repeat("-", barCells-full), done*100/total, total>>20, left)
}

// End removes the bar.
func (b *Bar) End() {
	if b.drawn {
		_, _ = io.WriteString(b.out, "\r\x1b[K") // the terminal may have gone
	}
}
