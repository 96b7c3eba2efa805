package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/printable"
)

// Control sequences of a terminal.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	cursorHome  = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

const (
	maxWorkers    = 5  // rows of workers
	latencyColumn = 47 // where the endings begin
)

// frame returns the whole screen, to be written at once, so that the terminal does not flicker.
func (b *board) frame() string {
	width, height := b.screen.Size()
	lines := b.lines(width, height)
	if len(lines) > height {
		lines = lines[:height]
	}
	return cursorHome + strings.Join(lines, clearLine+"\r\n") + clearLine + clearRest
}

// lines returns the lines of the screen. None is wider than the terminal.
func (b *board) lines(width, height int) []string {
	title := fmt.Sprintf("whence top  %s  %s", b.url, b.last.at.Format(time.TimeOnly))
	if b.story != nil {
		title = "whence why  j k Space scroll, any other key returns"
		return append([]string{b.bar(title, width)}, b.storyLines(width, height-1)...)
	}
	status, style := b.status()
	lines := []string{b.bar(title, width), b.screen.Show(style, fit(printable.Line(status), width)), ""}
	lines = append(lines, b.latencyLines(width)...)
	lines = append(lines, "")
	lines = append(lines, b.workerLines(width)...)
	lines = append(lines, "")
	lines = append(lines, b.streamLines(width, height-len(lines)-1)...)
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	return append(lines, b.footer(width))
}

func (b *board) bar(text string, width int) string {
	return b.screen.Show(inverse, fit(text, width))
}

func (b *board) footer(width int) string {
	switch {
	case b.stopping != "":
		return b.screen.Show(yellow, fit("stop "+printable.Line(b.stopping)+"? y stops it, any other key does not", width))
	case b.message != "":
		return b.screen.Show(yellow, fit(printable.Line(b.message), width))
	default:
		return b.screen.Show(dim, fit(keysHelp, width))
	}
}

func (b *board) storyLines(width, height int) (lines []string) {
	for _, line := range b.story[b.scroll:min(b.scroll+height, len(b.story))] {
		lines = append(lines, fit(line, width))
	}
	return lines
}

// latencyLines shows percentiles on the left and endings on the right.
func (b *board) latencyLines(width int) (lines []string) {
	f := newFigures(&b.last)
	right := []string{fmt.Sprintf("ENDINGS of the last %d streams", f.ended)}
	styles := []textStyle{dim}
	for i, e := range f.endings {
		if i == 2 && len(f.endings) > 3 {
			more := 0
			for _, rest := range f.endings[i:] {
				more += rest.count
			}
			right, styles = append(right, fmt.Sprintf("%6d others", more)), append(styles, dim)
			break
		}
		right, styles = append(right, fmt.Sprintf("%6d %s by %s", e.count, e.reason, e.origin)), append(styles, styleOf(e.reason))
	}
	for i, r := range f.latencies() {
		line := fit(r, min(latencyColumn, width))
		if i == 0 {
			line = b.screen.Show(dim, line)
		}
		if i < len(right) {
			line += b.screen.Show(styles[i], fit(printable.Line(right[i]), width-latencyColumn))
		}
		lines = append(lines, line)
	}
	return lines
}

// styleOf returns the style of an ending.
func styleOf(reason string) textStyle {
	switch reason {
	case "completed":
		return green
	case "user_stop", "operator_stop", "client_gone":
		return yellow
	default:
		return red
	}
}

func (b *board) workerLines(width int) []string {
	if b.last.refusal != nil {
		return []string{b.screen.Show(yellow, fit("workers are not shown: "+printable.Line(firstLine(b.last.refusal)), width))}
	}
	name := max(width-55, 12)
	if slices.ContainsFunc(b.last.workers, func(w story.Worker) bool { return w.Server != "" }) {
		name = max(width-85, 12) // the rest is for the servers
	}
	lines := []string{b.screen.Show(dim, fit(fmt.Sprintf("%s %-8s %7s %11s %9s %4s  %s", fit("WORKER", name), "STATE", "STREAMS", "RUNNING", "QUEUED", "KV", "ENGINE"), width))}
	for i := range b.last.workers {
		if i == maxWorkers {
			lines = append(lines, fit(fmt.Sprintf("and %d more", len(b.last.workers)-maxWorkers), width))
			break
		}
		lines = append(lines, b.workerLine(&b.last.workers[i], name, width))
	}
	return lines
}

func (b *board) workerLine(w *story.Worker, name, width int) string {
	style := green
	switch {
	case w.State == "down":
		style = red
	case w.State != "healthy" || w.Leaving:
		style = yellow
	}
	state := w.State
	if w.Leaving {
		state = "leaving"
	}
	rest := fmt.Sprintf(" %7d %11s %9s %4s  %s", w.Streams, fmt.Sprintf("%d/%d", w.Running, w.MaxRunning), fmt.Sprintf("%d/%d", w.Queued, w.MaxQueued), kvUse(w), engineOf(w))
	if w.Message != "" {
		rest = " " + w.Message
	}
	name = min(name, max(width-9, 0))
	line := fit(printable.Line(w.Name), name) + " " + b.screen.Show(style, fit(printable.Line(state), min(8, width-name-1)))
	return line + fit(printable.Line(rest), width-name-9)
}

// engineOf returns a worker's engine, and the make and version of the server that it is on.
func engineOf(w *story.Worker) string {
	server, _, _ := strings.Cut(w.Server, ",")
	if server == "" {
		return w.Engine
	}
	return w.Engine + ": " + server
}

// streamLines shows the streams that fit into height, and among them the selected one.
func (b *board) streamLines(width, height int) []string {
	rows := b.rows()
	selected := b.index(rows)
	shown := max(height-1, 0)
	b.scroll = min(max(b.scroll, selected-shown+1), selected)
	id := max(width-50, 12)
	heading, cells := "LIVE by "+orderNames[b.order], liveCells
	last := "STATE"
	if b.ended {
		heading, cells, last = "ENDED, newest first", endedCells, "ENDING"
	}
	lines := []string{b.screen.Show(dim, fit(fmt.Sprintf("%s %8s %7s %7s  %s", fit(heading, id), "AGE", "TOKENS", "TOK/S", last), width))}
	for i := b.scroll; i < len(rows) && i < b.scroll+shown; i++ {
		line := fit(fit(printable.Line(rows[i].ID), id)+" "+printable.Line(cells(&rows[i])), width)
		switch {
		case i == selected:
			line = b.screen.Show(inverse, line)
		case b.ended:
			line = b.screen.Show(styleOf(rows[i].Reason), line)
		}
		lines = append(lines, line)
	}
	return lines
}

func liveCells(s *story.Story) string {
	return fmt.Sprintf("%8v %7d %7s  %s", streamAge(s), s.Tokens.Delivered, speedText(s), streamState(s)+" "+s.Model)
}

func endedCells(s *story.Story) string {
	return fmt.Sprintf("%8v %7d %7s  %s", streamAge(s), s.Tokens.Delivered, speedText(s), streamState(s))
}

func speedText(s *story.Story) string {
	if n := tokenSpeed(s); n > 0 {
		return fmt.Sprintf("%.1f", n)
	}
	return "-"
}
