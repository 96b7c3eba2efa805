package paced

import (
	"strconv"
	"time"
)

// The text of each token is the time of a clock: a space and five digits, which count ticks since
// the epoch modulo Ticks. So a reader knows when a token was due, through any system between reader
// and engine.
const (
	Tick  = 20 * time.Microsecond
	Ticks = 100_000 // before the count wraps around: two seconds
	width = 6       // bytes of a token's text
)

// ticks returns a time in ticks since the epoch. All processes of a machine share this clock.
func ticks(t time.Time) int64 { return t.UnixNano() / int64(Tick) }

// appendText appends the text of a token that was due at a time, in ticks.
func appendText(b []byte, at int64) []byte {
	n := uint64(at % Ticks)
	b = append(b, ' ')
	for unit := uint64(Ticks / 10); unit > 0; unit /= 10 {
		b = append(b, byte('0'+n/unit%10))
	}
	return b
}

// A Reader reads the due times of one stream's tokens from their texts. Two consecutive tokens, and
// the request and the first token, must be due within two seconds of each other. The delay of a
// token does not matter.
type Reader struct{ last int64 }

// Begin begins a stream whose request is sent at t.
func (r *Reader) Begin(t time.Time) { r.last = ticks(t) }

// Next returns when the first token of text was due, and the text of the tokens after it. It
// reports false if text does not begin with a token.
func (r *Reader) Next(text []byte) (due time.Time, rest []byte, ok bool) {
	if len(text) < width || text[0] != ' ' {
		return time.Time{}, text, false
	}
	n, err := strconv.ParseUint(string(text[1:width]), 10, 32)
	if err != nil {
		return time.Time{}, text, false
	}
	r.last += ((int64(n)-r.last)%Ticks + Ticks) % Ticks
	return time.Unix(0, r.last*int64(Tick)), text[width:], true
}

// Spell returns the text of ids, as the model's tokenizer decodes them; ids outside the clock have
// no text.
func Spell(ids []uint32) string {
	b := make([]byte, 0, width*len(ids))
	for _, id := range ids {
		if id >= firstClock && id < firstClock+Ticks {
			b = appendText(b, int64(id-firstClock))
		}
	}
	return string(b)
}
