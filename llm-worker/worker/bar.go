package worker

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/whence-dev/whence/internal/printable"
)

// A bar draws the progress of a load on a terminal, in one line that it removes at the end. The cursor
// stays at the beginning of the line, so that a log line replaces the bar until it is drawn again. A
// load that ends before the first drawing prints nothing.
type bar struct {
	out   io.Writer
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

func newBar(out io.Writer, name string) *bar {
	shown := []rune(printable.Line(name))
	if len(shown) > maxBarName {
		shown = append(shown[:maxBarName-1], '…')
	}
	now := time.Now()
	return &bar{out: out, name: string(shown), begun: now, next: now.Add(firstDrawing)}
}

// update draws the bar if it is time to.
func (b *bar) update(done, total int64) {
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
	_, _ = fmt.Fprintf(b.out, "\rloading %s [%s%s] %d%% of %d MiB%s\x1b[K\r", // the terminal may have gone
		b.name, strings.Repeat("#", full), strings.Repeat("-", barCells-full), done*100/total, total>>20, left)
}

// end removes the bar.
func (b *bar) end() {
	if b.drawn {
		_, _ = io.WriteString(b.out, "\r\x1b[K") // the terminal may have gone
	}
}
