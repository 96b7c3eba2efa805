package openai

import (
	"encoding/json"
	"fmt"
	"strings"
)

// A customInput extracts the input of a custom tool's call from the call's arguments, which arrive in
// pieces: {"input": "…"}. Arguments of another form are the input themselves. The zero value is ready
// to use.
type customInput struct {
	rest  string // not returned yet
	state inputState
}

type inputState int

const (
	beforeInput inputState = iota
	inInput
	afterInput
	otherForm
)

// inputOpening is what stands before the input, without white space.
const inputOpening = `{"input":"`

// next returns the part of the input that a piece of the arguments completes.
func (c *customInput) next(piece string) string {
	c.rest += piece
	if c.state == beforeInput {
		c.open()
	}
	switch c.state {
	case inInput:
		n, ended := wholeCharacters(c.rest)
		var text string
		if json.Unmarshal([]byte(`"`+escaped(c.rest[:n])+`"`), &text) != nil {
			text = c.rest[:n] // no JSON
		}
		if c.rest = c.rest[n:]; ended {
			c.state = afterInput
		}
		return text
	case otherForm:
		text := c.rest
		c.rest = ""
		return text
	case beforeInput:
		return ""
	default:
		c.rest = ""
		return ""
	}
}

// escaped returns the inside of a JSON string whose control characters, which models write as they
// are, are escaped.
func escaped(inside string) string {
	if strings.IndexFunc(inside, func(r rune) bool { return r < ' ' }) < 0 {
		return inside
	}
	var b strings.Builder
	for _, r := range inside {
		if r < ' ' {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// open skips what stands before the input, once it is there.
func (c *customInput) open() {
	want := inputOpening
	for i := range len(c.rest) {
		switch b := c.rest[i]; {
		case strings.IndexByte(" \t\r\n", b) >= 0:
		case b != want[0]:
			c.state = otherForm
			return
		default:
			if want = want[1:]; want == "" {
				c.rest, c.state = c.rest[i+1:], inInput
				return
			}
		}
	}
}

// wholeCharacters returns the length of the part of a JSON string's inside that ends between two
// characters, and whether the string ends there.
func wholeCharacters(s string) (n int, ended bool) {
	for n < len(s) {
		size := 1
		switch {
		case s[n] == '"':
			return n, true
		case s[n] == '\\' && n+1 < len(s) && s[n+1] == 'u':
			size = 6
			if code := strings.ToLower(s[n+2 : min(n+4, len(s))]); strings.HasPrefix(code, "d") && (len(code) < 2 || code[1] >= '8' && code[1] < 'c') {
				size = 12 // the first half of a character
			}
		case s[n] == '\\':
			size = 2
		}
		if n+size > len(s) {
			return n, false
		}
		n += size
	}
	return n, false
}

// inputOf returns the input of a call with whole arguments.
func inputOf(arguments string) string {
	c := customInput{}
	return c.next(arguments)
}
