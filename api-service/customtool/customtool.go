// Package customtool shows models the custom tools of OpenAI's APIs: a tool whose calls have one text is a
// function with one parameter.
package customtool

import (
	"encoding/json"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// parameter is the name of the one parameter.
const parameter = "input"

const schema = `{"type":"object","properties":{"` + parameter + `":{"type":"string"}},"required":["` + parameter + `"],"additionalProperties":false}`

// Complete makes tool a custom tool whose texts have a format, which may be missing. No guide enforces a
// grammar here, so the description shows the grammar to the model. whole is false for such a format.
func Complete(tool *chatv1.Tool, format json.RawMessage) (whole bool) {
	tool.Parameters = schema
	var form struct {
		Type, Syntax, Definition string
		Grammar                  struct{ Syntax, Definition string }
	}
	if len(format) > 0 {
		_ = json.Unmarshal(format, &form) // a format of another form is a hint, too
	}
	if form.Type != "grammar" {
		return true
	}
	syntax, definition := form.Syntax+form.Grammar.Syntax, form.Definition+form.Grammar.Definition
	tool.Description = strings.TrimSpace(tool.GetDescription() + "\n\nThe input follows this grammar (" + syntax + "):\n" + definition)
	return false
}

// Arguments returns the arguments of the call of the function for the call of a custom tool with a text.
func Arguments(text string) string {
	b, err := json.Marshal(map[string]string{parameter: text})
	if err != nil {
		panic(err) // cannot happen: a string
	}
	return string(b)
}

// Text returns the text of a call with these arguments.
func Text(arguments string) string {
	var in Input
	return in.Add(arguments) + in.End()
}

// An Input decodes the text of a call from its arguments while they arrive. The zero value is ready to use.
type Input struct {
	arguments strings.Builder
	at        int  // index of the first byte that has not been decoded
	inside    bool // the text has begun
	ended     bool // the text has ended, or the arguments have another form
}

// Arguments returns the arguments so far.
func (c *Input) Arguments() string { return c.arguments.String() }

// Add adds a piece of the arguments, and returns the piece of the text that it completes.
func (c *Input) Add(piece string) string {
	c.arguments.WriteString(piece)
	if c.ended {
		return ""
	}
	all := c.arguments.String()
	if !c.inside {
		rest, complete := skipTokens(all, "{", `"`+parameter+`"`, ":", `"`)
		if !complete {
			c.ended = rest < 0
			return ""
		}
		c.at, c.inside = rest, true
	}
	var text strings.Builder
	for c.at < len(all) {
		decoded, size := decodeNext(all[c.at:])
		if size == 0 {
			break
		}
		c.at += size
		if decoded == "" {
			c.ended = true
			break
		}
		text.WriteString(decoded)
	}
	return text.String()
}

// End returns the whole text if none of it has been decoded: the text of an object with members in
// another order, or else the arguments themselves.
func (c *Input) End() string {
	if c.inside {
		return ""
	}
	all := c.arguments.String()
	var members map[string]any
	if json.Unmarshal([]byte(all), &members) == nil {
		if text, ok := members[parameter].(string); ok {
			return text
		}
	}
	return all
}

// skipTokens returns the index after tokens that may have white space before them. complete is false
// if text ends earlier; if text begins in another way, the index is -1.
func skipTokens(text string, tokens ...string) (at int, complete bool) {
	for _, token := range tokens {
		for at < len(text) && strings.IndexByte(" \t\r\n", text[at]) >= 0 {
			at++
		}
		rest := text[at:]
		switch {
		case strings.HasPrefix(rest, token):
			at += len(token)
		case strings.HasPrefix(token, rest):
			return at, false
		default:
			return -1, false
		}
	}
	return at, true
}

// decodeNext decodes the next characters of a JSON string. The size is 0 if they are not complete, and
// decoded is "" at the end of the string, or if the string is invalid.
func decodeNext(text string) (decoded string, size int) {
	if end := strings.IndexAny(text, `"\`); end != 0 {
		if end < 0 {
			end = len(text)
		}
		return text[:end], end
	}
	if text[0] == '"' {
		return "", 1
	}
	if len(text) < 2 {
		return "", 0
	}
	if text[1] != 'u' {
		return escapes[text[1]], 2
	}
	first, ok := unit(text)
	if !ok {
		return "", 0
	}
	if !utf16.IsSurrogate(first) {
		return string(first), 6
	}
	if second, ok := unit(text[6:]); ok {
		if both := utf16.DecodeRune(first, second); both != utf8.RuneError {
			return string(both), 12
		}
		return string(utf8.RuneError), 6
	}
	if rest := text[6:]; len(rest) >= 6 || len(rest) > 0 && rest[0] != '\\' || len(rest) > 1 && rest[1] != 'u' {
		return string(utf8.RuneError), 6
	}
	return "", 0
}

// escapes are the characters that stand for others after a backslash.
var escapes = map[byte]string{'"': `"`, '\\': `\`, '/': "/", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t"}

// unit returns the UTF-16 code unit of an escape sequence \uXXXX at the beginning of text. A digit that
// is none makes the unit U+FFFD.
func unit(text string) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range []byte(text[2:6]) {
		at := strings.IndexByte("0123456789abcdef", c|0x20)
		if c >= '0' && c <= '9' {
			at = int(c - '0')
		}
		if at < 0 {
			return utf8.RuneError, true
		}
		r = r<<4 | rune(at)
	}
	return r, true
}
