package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/story"
)

// The orders of live streams.
const (
	byAge = iota
	byTokens
	bySpeed
	boardOrders
)

var orderNames = [boardOrders]string{"age", "tokens", "speed"}

// A board is what the screen shows. Only the loop of watch uses it.
type board struct {
	url    string
	screen screen
	last   topSample // the last one without an error
	rates  tokenRates
	lost   error     // why the last sample failed; nil if it did not
	since  time.Time // when samples began to fail

	ended    bool // ended streams are listed instead of live ones
	order    int
	paused   bool
	selected string   // id; "" selects the first row
	story    []string // lines of the selected stream's story, while it is shown
	scroll   int      // first line of the story, or first row of the list
	stopping string   // id of the stream that the user may confirm to stop
	message  string   // the result of the last key
	asking   bool     // a request of a key has no result yet
}

func newBoard(url string, s screen, first topSample) *board {
	b := &board{url: url, screen: s}
	b.add(first)
	return b
}

// add takes a sample over, unless the board is paused.
func (b *board) add(s topSample) {
	if s.err != nil {
		if b.lost == nil {
			b.since = s.at
			b.rates.pause()
		}
		b.lost = s.err
		return
	}
	b.lost = nil
	if b.paused {
		return
	}
	b.last = s
	b.rates.add(&s)
}

// rows returns the listed streams in their order.
func (b *board) rows() []story.Story {
	if b.ended {
		return b.last.ended
	}
	rows := slices.Clone(b.last.live)
	slices.SortStableFunc(rows, func(x, y story.Story) int {
		switch b.order {
		case byTokens:
			return cmp.Compare(y.Tokens.Delivered, x.Tokens.Delivered)
		case bySpeed:
			return cmp.Compare(tokenSpeed(&y), tokenSpeed(&x))
		default:
			return 0 // the service lists them by age
		}
	})
	return rows
}

// index returns the row of the selected stream; 0 if it is not listed.
func (b *board) index(rows []story.Story) int {
	return max(0, slices.IndexFunc(rows, func(s story.Story) bool { return s.ID == b.selected }))
}

const keysHelp = "j k select, Enter why, x stop, e live or ended, s sort, Space pause, q quit"

// A boardRequest calls the api-service for a key. The returned function shows the result on the
// board. The request runs beside the loop of watch, so that the user can quit while the service is
// slow.
type boardRequest func(context.Context, *remote) (show func(*board))

// press handles a key. It returns a request if the key needs the api-service, and reports whether
// the user quits.
func (b *board) press(k key) (ask boardRequest, quit bool) {
	if k == "\x03" {
		return nil, true
	}
	b.message = ""
	if b.stopping != "" {
		return b.confirm(k), false
	}
	if b.story != nil {
		b.pressInStory(k)
		return nil, false
	}
	switch k {
	case "q":
		return nil, true
	case "j", keyDown:
		b.move(1)
	case "k", keyUp:
		b.move(-1)
	case "e":
		b.ended, b.selected, b.scroll = !b.ended, "", 0
	case "s":
		b.order = (b.order + 1) % boardOrders
	case " ":
		b.paused = !b.paused
		b.rates.pause()
	case "\r", "\n":
		return b.open(), false
	case "x":
		if rows := b.rows(); len(rows) > 0 && !b.ended {
			b.stopping = rows[b.index(rows)].ID
		}
	default:
		b.message = keysHelp
	}
	return nil, false
}

// take shows the result of a request.
func (b *board) take(show func(*board)) {
	b.asking = false
	show(b)
}

// move selects another row.
func (b *board) move(by int) {
	rows := b.rows()
	if len(rows) > 0 {
		b.selected = rows[min(max(b.index(rows)+by, 0), len(rows)-1)].ID
	}
}

// begin returns ask, unless another request has no result yet.
func (b *board) begin(ask boardRequest) boardRequest {
	if b.asking {
		b.message = "the api-service has not answered the last key yet"
		return nil
	}
	b.asking = true
	b.message = "waiting for the api-service"
	return ask
}

func (b *board) confirm(k key) boardRequest {
	id := b.stopping
	b.stopping = ""
	if k != "y" {
		b.message = id + " continues"
		return nil
	}
	return b.begin(func(ctx context.Context, api *remote) func(*board) {
		message := id + " is stopping"
		if err := api.Stop(ctx, id); err != nil {
			message = firstLine(err)
		}
		return func(b *board) { b.message = message }
	})
}

// open returns the request for the story of the selected stream.
func (b *board) open() boardRequest {
	rows := b.rows()
	if len(rows) == 0 {
		return nil
	}
	id := rows[b.index(rows)].ID
	return b.begin(func(ctx context.Context, api *remote) func(*board) {
		told, err := api.Story(ctx, id)
		var text strings.Builder
		if err == nil {
			err = told.Print(&text)
		}
		if err != nil {
			return func(b *board) { b.message = firstLine(err) }
		}
		lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
		return func(b *board) { b.story, b.scroll, b.stopping, b.message = lines, 0, "", "" }
	})
}

func (b *board) pressInStory(k key) {
	switch k {
	case "j", keyDown:
		b.scroll = min(b.scroll+1, len(b.story)-1)
	case "k", keyUp:
		b.scroll = max(b.scroll-1, 0)
	case " ":
		_, height := b.screen.Size()
		b.scroll = min(b.scroll+max(height-2, 1), len(b.story)-1)
	default:
		b.story, b.scroll = nil, 0
	}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// status is the line below the title: rates, or why there are none.
func (b *board) status() (text string, style textStyle) {
	if b.lost != nil {
		return fmt.Sprintf("retrying since %s: %s", b.since.Format(time.TimeOnly), firstLine(b.lost)), red
	}
	text = fmt.Sprintf("%d live", len(b.last.live))
	if tokens, started, ended, ok := b.rates.perSecond(); ok {
		text += fmt.Sprintf("   %.1f started/s   %.1f ended/s   %.0f tokens/s", started, ended, tokens)
	}
	if b.paused {
		text += "   paused"
	}
	return text, bold
}
