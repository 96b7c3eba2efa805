package toolcall

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// A Value is what a tool takes as a parameter. Where calls are XML nothing else says whether 12 is a number or a text.
type Value uint8

// The values there are.
const (
	AnyValue   Value = iota // JSON, if it is some, and else text
	TextValue               // text, whatever it looks like
	TextOrNull              // text, unless it is null
)

// An xmlValue makes JSON of a parameter's value while it comes. Text is given out at once. Of what may be JSON only the end says
// whether it is: but nobody waits for more than maxHead bytes of it, because a file can be written in one value, and a stream that
// says nothing for so long would be taken to have stalled.
type xmlValue struct {
	takes Value
	begun bool // the line end behind the tag, which is no part of it, has passed
	form  form
	held  string
}

// A form is how a value is said.
type form uint8

const (
	unknown form = iota
	asText
	asJSON
)

// An end is how a piece of a value ends.
type end uint8

const (
	open   end = iota // more of it comes
	closed            // it is whole
	cut               // nothing comes any more
)

// next takes a piece and returns what is certain. A value that is cut short stays without its end.
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

// unsure returns how many bytes at the end are not certain: a line end, which may be the one before the tag, or half a character.
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

const nullLine = "null\n" // before the tag that closes

// is says which form the value has, as far as what is held tells.
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
		return formIf(beginsJSON(v.held[:maxHead])) // the same, however much more has come
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

// escaped is a part of a text as it stands in a JSON string.
func escaped(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string has JSON
	return b.String()[1 : b.Len()-len("\"\n")]
}
