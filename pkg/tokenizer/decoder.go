package tokenizer

import (
	"slices"
	"unicode/utf8"
)

// maxRun bounds the bytes of byte tokens that a Decoder holds back. One byte that is not UTF-8
// turns every byte of its run of byte tokens into U+FFFD, so the text of a run is certain only at
// its end. When this many bytes of a run are whole characters, the Decoder treats them as certain:
// it returns them, and the rest is a new run. Decode does the same. So a text in a script without
// tokens still streams. The text differs from the Rust library's only if a longer run, which
// encoding never makes, becomes invalid.
const maxRun = 256

// A Decoder decodes one stream of ids incrementally. Only one goroutine may use it.
//
// The results of Next and the final Flush, concatenated, equal Decode of all ids. No result ends
// within a character, or has a U+FFFD that a later id would revoke. The held-back text is bounded:
// the beginning of a character, a run of byte tokens (see maxRun), and, if the file's decoder
// rewrites the finished text, less than the string that the decoder looks for.
type Decoder struct {
	spelling    *spelling
	skipSpecial bool
	kept        []uint32 // special tokens that are not skipped

	// The state of the stream.
	begun bool       // Next has seen a token
	cut   []byte     // bytes of a character that continues in the next token
	run   byteRun    // byte tokens
	steps []textStep // steps that are not idle

	text, spare []byte // scratch memory of a call and its steps
}

// A byteRun is a run of byte tokens without another token in between.
type byteRun struct {
	bytes []byte
	whole int  // number of bytes that form whole characters; the rest may still become a character
	bad   bool // the run is not UTF-8: its bytes were returned as U+FFFD, and so will be the bytes that follow
	first bool // the run is at the beginning of the text
}

// NewDecoder returns a Decoder at the beginning of a text. With skipSpecial, special tokens have no
// text, except those in keep.
func (t *Tokenizer) NewDecoder(skipSpecial bool, keep ...uint32) *Decoder {
	d := &Decoder{spelling: &t.spelling, skipSpecial: skipSpecial, kept: keep}
	d.reset()
	return d
}

func (d *Decoder) reset() {
	d.begun = false
	d.cut = d.cut[:0]
	d.run = byteRun{bytes: d.run.bytes[:0]}
	d.steps = d.steps[:0]
	for _, newStep := range d.spelling.text {
		d.steps = append(d.steps, newStep())
	}
}

// Next adds ids and returns the text that is now certain, which may be "".
func (d *Decoder) Next(ids ...uint32) string {
	if len(ids) == 1 {
		if text, ok := d.alone(ids[0]); ok {
			return text
		}
	}
	d.text = d.text[:0]
	for _, id := range ids {
		d.push(id)
	}
	if d.spelling.bytes {
		var rest []byte
		d.text, rest = appendCertain(d.text, d.cut)
		d.cut = append(d.cut[:0], rest...)
	}
	for _, step := range d.steps {
		d.spare = step.push(d.spare[:0], d.text)
		d.text, d.spare = d.spare, d.text
	}
	if len(d.steps) > 0 {
		d.steps = slices.DeleteFunc(d.steps, textStep.idle)
	}
	return string(d.text)
}

// Flush ends the text and returns the held-back text; incomplete characters become U+FFFD. The
// Decoder can then begin another text.
func (d *Decoder) Flush() string {
	d.text = d.text[:0]
	d.endRun()
	if len(d.cut) > 0 {
		d.text = append(d.text, "\uFFFD"...)
	}
	for _, step := range d.steps {
		d.spare = step.flush(step.push(d.spare[:0], d.text))
		d.text, d.spare = d.spare, d.text
	}
	d.reset()
	return string(d.text)
}

// alone is Next for the common case: a token with text of its own while no text is held back. The
// table has the text, so nothing is copied.
func (d *Decoder) alone(id uint32) (string, bool) {
	s := d.spelling
	if len(d.steps) > 0 || len(d.cut) > 0 || len(d.run.bytes) > 0 || d.run.bad || s.gap != "" || !d.begun && s.first != nil {
		return "", false
	}
	t := d.token(id)
	if t == nil {
		return "", true
	}
	if !t.is(whole) {
		return "", false
	}
	d.begun = true
	return t.text, true
}

// token returns the token of id, or nil if it has no text.
func (d *Decoder) token(id uint32) *spelledToken {
	if int64(id) >= int64(len(d.spelling.tokens)) {
		return nil
	}
	t := &d.spelling.tokens[id]
	if !t.is(known) || d.skipSpecial && t.is(special) && !slices.Contains(d.kept, id) {
		return nil
	}
	return t
}

// push adds one token. Its text goes to d.text, or its bytes to d.cut or d.run.
func (d *Decoder) push(id uint32) {
	s := d.spelling
	t := d.token(id)
	if t == nil {
		return
	}
	first := !d.begun
	if first {
		d.begun = true
		if s.first != nil {
			as := s.spell(s.first[id], true)
			t = &as
		}
	} else {
		d.text = append(d.text, s.gap...)
	}
	switch {
	case s.bytes:
		d.cut = append(d.cut, t.text...)
	case t.is(byteOnly):
		d.run.first = d.run.first || first
		d.pushByte(t.value)
	default:
		d.endRun()
		d.text = append(d.text, t.text...)
	}
}

func (d *Decoder) pushByte(b byte) {
	r := &d.run
	if r.bad {
		d.emit("\uFFFD")
		return
	}
	r.bytes = append(r.bytes, b)
	tail := r.bytes[r.whole:]
	if !utf8.FullRune(tail) {
		return
	}
	c, n := utf8.DecodeRune(tail)
	if c == utf8.RuneError && n == 1 {
		d.spoil()
		return
	}
	if r.whole += n; r.whole >= maxRun {
		d.emit(string(r.bytes))
		r.bytes, r.whole = r.bytes[:0], 0
	}
}

// spoil emits the run as U+FFFD.
func (d *Decoder) spoil() {
	for range d.run.bytes {
		d.emit("\uFFFD")
	}
	d.run.bytes, d.run.bad = d.run.bytes[:0], true
}

// endRun emits the held-back part of the run, because another token follows the run, or the text
// ends.
func (d *Decoder) endRun() {
	if n := len(d.run.bytes); n > 0 {
		if d.run.whole == n {
			d.emit(string(d.run.bytes))
		} else {
			d.spoil()
		}
	}
	d.run = byteRun{bytes: d.run.bytes[:0]}
}

// emit emits a token that a run has produced.
func (d *Decoder) emit(token string) {
	d.text = append(d.text, apply(d.spelling.late, token, d.run.first)...)
	d.run.first = false
}
