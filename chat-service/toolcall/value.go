package toolcall

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// A Value is the set of JSON types that a tool's parameter takes. In calls without JSON, nothing else
// distinguishes the number 12 from the text 12. Text alone is always text. Any other set takes JSON
// and what Python writes instead of JSON.
type Value uint8

// The types.
const (
	TextValue Value = 1 << iota
	NullValue
	NumberValue
	BooleanValue
	ListValue
	ObjectValue

	AnyValue   Value = 0 // the schema does not say
	TextOrNull       = TextValue | NullValue
)

// lacksText reports whether a text cannot be meant.
func (v Value) lacksText() bool { return v != AnyValue && v&TextValue == 0 }

// A typedValue converts a parameter's value to JSON while it arrives. Text is emitted immediately.
// Whether a value is JSON is known only at its end, but at most maxHead bytes are held back for
// that: a model may write a file in one value, and a stream that stays silent for that long would
// count as stalled.
type typedValue struct {
	takes  Value
	begun  bool // the line end after the tag, which is not part of the value, has passed
	form   form
	held   string
	python *literal // converts the value, if it is Python
}

// A form is the form in which a value is emitted.
type form uint8

const (
	unknown form = iota
	asText
	asJSON
	asPython
	ended // the text behind a Python value, which is dropped
)

// An end is the way in which a piece of a value ends.
type end uint8

const (
	open   end = iota // more of the value follows
	closed            // the value is complete
	cut               // the answer ends within the value
)

// next takes a piece and returns the text that is final. A value that is cut off gets no end.
func (v *typedValue) next(piece string, e end) string {
	v.held += piece
	if !v.begun && v.held != "" {
		v.held, v.begun = strings.TrimPrefix(v.held, "\n"), true
	}
	before, behind := "", ""
	if v.form == unknown {
		if e == closed {
			if text, ok := v.converted(strings.TrimSuffix(v.held, "\n")); ok {
				return text
			}
		}
		if v.form = v.is(e); v.form == asText {
			before = `"`
		}
	}
	switch v.form {
	case unknown:
		return ""
	case ended:
		v.held = ""
		return ""
	case asText, asJSON, asPython:
	}
	if v.form == asPython {
		return v.convert(e)
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

// convert returns the JSON of a Python value that is too long to be held back. What follows the value
// is dropped.
func (v *typedValue) convert(e end) string {
	n, p := v.python.read(v.held, e != open)
	v.held = v.held[n:]
	if p != more || e == closed {
		v.python.stop()
		v.form = ended
	}
	return v.python.take()
}

// unsure returns the number of bytes at the end that are not final: a line end before a possible
// tag, or a partial character.
func (v *typedValue) unsure(e end) int {
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

// is returns the form of the value, as far as it is known.
func (v *typedValue) is(e end) form {
	switch {
	case v.takes == TextValue && (e != open || v.held != ""):
		return asText
	case v.takes == TextValue, v.takes == TextOrNull && e == open && (isBegun(v.held, "null\n") || isBegun(v.held, "None\n")):
		return unknown
	case v.takes == TextOrNull, e == closed:
		return asText
	case len(v.held) > maxHead:
		return v.begins(v.held[:maxHead]) // further bytes do not change the result
	case e == cut:
		return v.begins(strings.TrimSuffix(v.held, "\n"))
	}
	if !v.takes.lacksText() && !mayBeJSON(strings.Trim(v.held, space)) {
		return asText
	}
	return unknown
}

// isBegun reports whether s is the beginning of word.
func isBegun(s, word string) bool { return strings.HasPrefix(word, s) }

// literals are the words of JSON and of Python.
var literals = map[string]string{"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}

// mayBeJSON reports whether s can be the beginning of JSON, or of what Python writes instead.
func mayBeJSON(s string) bool {
	switch {
	case s == "" || strings.ContainsAny(s[:1], `{["`):
		return true
	case strings.ContainsAny(s[:1], "-0123456789"):
		return strings.Trim(s, "+-.0123456789eE") == ""
	}
	for word := range literals {
		if isBegun(s, word) {
			return true
		}
	}
	return false
}

// begins returns the form of which s is the beginning.
func (v *typedValue) begins(s string) form {
	switch {
	case v.takes != AnyValue && v.takes&typeOf(s) == 0 && !v.takes.lacksText():
		return asText
	case json.Valid([]byte(s)) || beginsJSON(s):
		return asJSON
	case v.beginsPython(s):
		v.python = &literal{}
		return asPython
	}
	return asText
}

// beginsPython reports whether s is the beginning of a list, a tuple or a dictionary of Python. If the
// value cannot be text, words without quotes may be its texts.
func (v *typedValue) beginsPython(s string) bool {
	var l literal
	_, p := l.read(s, false)
	return p == more && len(l.open) > 0 && (!l.loose || v.takes.lacksText())
}

// pythonValue returns the JSON of a complete value of Python: a word, a list or a dictionary. loose
// means that the value cannot be text, so that tuples, strings and texts without quotes are read, too.
func pythonValue(s string, loose bool) (text string, ok bool) {
	s = strings.TrimSpace(s)
	first := "[{"
	if loose {
		first = `[{('"`
	}
	if word, ok := literals[s]; ok {
		return word, true
	}
	if s == "" || !strings.ContainsAny(s[:1], first) {
		return "", false
	}
	var l literal
	n, p := l.read(s, true)
	return l.take(), p == whole && n == len(s) && (loose || !l.loose)
}

// typeOf returns the type of JSON by its beginning.
func typeOf(s string) Value {
	switch s = strings.TrimLeft(s, space); {
	case s == "":
		return AnyValue
	case s[0] == '{':
		return ObjectValue
	case s[0] == '[':
		return ListValue
	case s[0] == '"':
		return TextValue
	case s[0] == 'n':
		return NullValue
	case s[0] == 't' || s[0] == 'f':
		return BooleanValue
	default:
		return NumberValue
	}
}

// converted returns the JSON of a complete value, unless the value is text.
func (v *typedValue) converted(value string) (text string, ok bool) {
	switch {
	case v.takes == TextValue:
		return "", false
	case v.takes == TextOrNull:
		return "null", value == "null" || value == "None"
	case v.takes.lacksText():
		return v.takes.strict(value)
	case json.Valid([]byte(value)):
		text, ok = value, true
	default:
		text, ok = pythonValue(value, false)
	}
	return text, ok && (v.takes == AnyValue || v.takes&typeOf(text) != 0)
}

// strict returns the JSON of a value that is no text. A model may quote a number or an object.
func (v Value) strict(value string) (text string, ok bool) {
	text = strings.TrimSpace(value)
	if lower := strings.ToLower(text); v&BooleanValue != 0 && (lower == "true" || lower == "false") {
		return lower, true
	}
	if !json.Valid([]byte(text)) {
		if text, ok = pythonValue(text, true); !ok {
			return "", false
		}
	}
	var inner string
	if json.Unmarshal([]byte(text), &inner) == nil && inner != "" && !strings.ContainsAny(inner[:1], `'"`) {
		if converted, ok := v.strict(inner); ok {
			return converted, true
		}
	}
	return text, true
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
