package toolcall

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// A Value is the type of a tool's parameter. In XML calls, nothing else distinguishes the number 12
// from the text 12.
type Value uint8

// The types.
const (
	AnyValue   Value = iota // JSON if the value is valid JSON, otherwise text
	TextValue               // always text
	TextOrNull              // text, or null
)

// An xmlValue converts a parameter's value to JSON while it arrives. Text is emitted immediately.
// Whether a value is JSON is known only at its end, but at most maxHead bytes are held back for
// that: a model may write a file in one value, and a stream that stays silent for that long would
// count as stalled.
type xmlValue struct {
	takes Value
	begun bool // the line end after the tag, which is not part of the value, has passed
	form  form
	held  string
}

// A form is the form in which a value is emitted.
type form uint8

const (
	unknown form = iota
	asText
	asJSON
)

// An end is the way in which a piece of a value ends.
type end uint8

const (
	open   end = iota // more of the value follows
	closed            // the value is complete
	cut               // the answer ends within the value
)

// next takes a piece and returns the text that is final. A value that is cut off gets no end.
func (v *xmlValue) next(piece string, e end) string {
	v.held += piece
	if !v.begun && v.held != "" {
		v.held, v.begun = strings.TrimPrefix(v.held, "\n"), true
	}
	before, behind := "", ""
	if v.form == unknown {
		if v.form = v.is(e); v.form == asText {
			before = `"`
		}
	}
	if v.form == unknown {
		return ""
	}
	text := v.held[:len(v.held)-v.unsure(e)]
	v.held = v.held[len(text):]
	if v.form == asText {
		if text = escaped(text); e == closed {
			behind = `"`
		}
	}
	return before + text + behind
}

// unsure returns the number of bytes at the end that are not final: a line end before a possible
// tag, or a partial character.
func (v *xmlValue) unsure(e end) int {
	if strings.HasSuffix(v.held, "\n") {
		return 1
	}
	for n := 1; e == open && n < utf8.UTFMax && n <= len(v.held); n++ {
		if last := v.held[len(v.held)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRuneInString(last) {
				return n
			}
			break
		}
	}
	return 0
}

const nullLine = "null\n" // before the closing tag

// is returns the form of the value, as far as it is known.
func (v *xmlValue) is(e end) form {
	value := strings.TrimSuffix(v.held, "\n")
	switch {
	case v.takes == TextValue && (e != open || v.held != ""):
		return asText
	case v.takes == TextValue, v.takes == TextOrNull && e == open && strings.HasPrefix(nullLine, v.held):
		return unknown
	case v.takes == TextOrNull:
		return formIf(e == closed && value == "null")
	case len(v.held) > maxHead:
		return formIf(beginsJSON(v.held[:maxHead])) // further bytes do not change the result
	case e == closed:
		return formIf(json.Valid([]byte(value)))
	case e == cut:
		return formIf(json.Valid([]byte(value)) || beginsJSON(value))
	}
	if first := strings.TrimLeft(v.held, space); first != "" && !strings.ContainsAny(first[:1], `{["-0123456789tfn`) {
		return asText
	}
	return unknown
}

func formIf(isJSON bool) form {
	if isJSON {
		return asJSON
	}
	return asText
}

// beginsJSON reports whether s is the beginning of one JSON value.
func beginsJSON(s string) bool {
	in := json.NewDecoder(strings.NewReader(s))
	for depth, n := 0, 0; ; n++ {
		token, err := in.Token()
		switch {
		case err != nil:
			return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		case n > 0 && depth == 0:
			return false
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// escaped returns s as a part of a JSON string.
func escaped(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // every string has a JSON form
	return b.String()[1 : b.Len()-len("\"\n")]
}
