package toolcall

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A progress is the result of reading a part of an object.
type progress uint8

const (
	more progress = iota
	whole
	bad
)

// A nest finds the end of a JSON value that begins with a bracket. It counts brackets and validates
// nothing else.
type nest struct {
	depth           int
	quoted, escaped bool
}

// read reports whether b ends the value.
func (n *nest) read(b byte) bool {
	switch {
	case n.escaped:
		n.escaped = false
	case n.quoted && b == '\\':
		n.escaped = true
	case b == '"':
		n.quoted = !n.quoted
	case n.quoted:
	case b == '{' || b == '[':
		n.depth++
	case b == '}' || b == ']':
		n.depth--
		return n.depth == 0
	}
	return false
}

// An object reads {"name": …, "arguments": {…}} in pieces. "parameters" and "args" are synonyms of
// "arguments", and "tool_name" and "function" of "name". Members may have any order, other members
// are ignored, and both may be members of "function". Arguments may also be the text of an object, or
// null, which is an empty object.
type object struct {
	tool      func(name string) string // as in Parser
	keyed     bool                     // the tool's name may be the key of its arguments
	announced bool                     // the parser has emitted Begin

	at     place
	member string
	name   string
	inner  bool   // within "function"
	token  []byte // the current string or word
	quote  unquoter
	nest   nest   // of the current value
	args   []byte // not emitted yet
	begun  bool   // the arguments have begun
	ended  bool   // the object has ended
	head   int    // bytes read before the call was announced
}

// A place is the next expected part of an object.
type place uint8

const (
	atOpen   place = iota
	atFirst        // a key, or the end
	atKey          // a key
	inKey          // the rest of a key
	atColon        //
	atValue        //
	inString       // the rest of a string
	inNest         // the rest of a list or object
	inText         // the rest of arguments as text
	inWord         // the rest of a number, true, false or null
	atComma        // a comma, or the end
)

// ready reports whether the call can be announced: its tool is known, and its arguments have begun
// or will not come.
func (o *object) ready() bool { return !o.announced && o.name != "" && (o.begun || o.ended) }

// take returns the arguments that can be emitted.
func (o *object) take() string {
	if o.ended && !o.begun {
		o.begun = true
		return "{}"
	}
	s := string(o.args)
	o.args = o.args[:0]
	return s
}

// read consumes n bytes of s. It stops at the byte that makes the object ready, and before a bad
// byte.
func (o *object) read(s string) (n int, _ progress) {
	for n < len(s) {
		p := o.step(s[n])
		if p == bad {
			return n, bad
		}
		n++
		if p == whole {
			o.ended = true
			if o.name == "" {
				return n, bad
			}
			return n, whole
		}
		if o.ready() {
			return n, more
		}
		if o.head++; o.head > maxHead && !o.announced {
			return n, bad
		}
	}
	return n, more
}

func (o *object) step(b byte) progress {
	blank := b == ' ' || b == '\n' || b == '\t' || b == '\r'
	switch o.at {
	case inString, inKey:
		return o.quoted(b)
	case inText:
		return o.text(b)
	case inNest:
		if o.arguments() {
			o.args = append(o.args, b)
		}
		if o.nest.read(b) {
			o.at = atComma
		}
		return more
	case inWord:
		if !blank && b != ',' && b != '}' {
			if len(o.token) < maxWord {
				o.token = append(o.token, b)
			}
			return more
		}
		o.at = atComma
		if o.arguments() && string(o.token) != "null" {
			return bad
		}
	default: // between
	}
	if blank {
		return more
	}
	switch {
	case o.at == atOpen && b == '{':
		o.at = atFirst
	case (o.at == atFirst || o.at == atKey) && b == '"':
		o.at, o.token = inKey, append(o.token[:0], b)
	case o.at == atColon && b == ':':
		o.at = atValue
	case o.at == atValue:
		return o.value(b)
	case o.at == atComma && b == ',':
		o.at = atKey
	case (o.at == atComma || o.at == atFirst) && b == '}' && o.inner:
		o.inner, o.at = false, atComma
	case (o.at == atComma || o.at == atFirst) && b == '}':
		return whole
	default:
		return bad
	}
	return more
}

func (o *object) arguments() bool {
	return o.member == "arguments" || o.member == "parameters" || o.member == "args"
}

func (o *object) named() bool { return o.member == "name" || o.member == "tool_name" }

// value begins a value with its first byte.
func (o *object) value(b byte) progress {
	switch isNest := b == '{' || b == '['; {
	case o.arguments() && (o.begun || b != '{' && b != '"' && b != 'n'), o.named() && b != '"', strings.IndexByte(",}]:", b) >= 0:
		return bad
	case o.arguments() && b == '"':
		o.at, o.token, o.quote = inText, o.token[:0], unquoter{}
	case b == '"':
		o.at, o.token = inString, append(o.token[:0], b)
	case b == '{' && o.member == "function" && o.name == "":
		o.inner, o.at = true, atFirst
	case isNest:
		if o.arguments() {
			o.begun, o.args = true, append(o.args, b)
		}
		o.at, o.nest = inNest, nest{}
		o.nest.read(b)
	default:
		o.at, o.token = inWord, append(o.token[:0], b)
	}
	return more
}

// text continues arguments that are the text of an object.
func (o *object) text(b byte) progress {
	piece, end := o.quote.next(b)
	for i := range len(piece) {
		switch {
		case o.begun && o.nest.depth == 0: // behind the object
		case o.begun:
			o.args = append(o.args, piece[i])
			o.nest.read(piece[i])
		case piece[i] == '{' && strings.TrimSpace(string(o.token)) == "":
			o.begun, o.nest = true, nest{}
			o.args = append(o.args, piece[i])
			o.nest.read(piece[i])
		default:
			if o.token = append(o.token, piece[i]); len(o.token) > maxHead {
				return bad
			}
		}
	}
	if !end {
		return more
	}
	if word := strings.TrimSpace(string(o.token)); !o.begun && word != "" && word != "null" {
		return bad
	}
	o.at = atComma
	return more
}

// quoted continues the string in o.token.
func (o *object) quoted(b byte) progress {
	if o.token = append(o.token, b); len(o.token) > maxHead {
		return bad
	}
	if b != '"' || o.escaped() {
		return more
	}
	var text string
	if json.Unmarshal(o.token, &text) != nil {
		return bad
	}
	switch {
	case o.at == inKey:
		if o.at, o.member = atColon, text; o.keyed && o.name == "" && o.tool(text) != "" {
			o.name, o.member = o.tool(text), "arguments"
		}
		return more
	case o.named() && (o.name != "" || o.tool(text) == ""):
		return bad
	case o.named(), o.member == "function" && o.name == "" && o.tool(text) != "":
		o.name = o.tool(text)
	}
	o.at = atComma
	return more
}

// escaped reports whether the last byte of o.token has an odd number of backslashes before it.
func (o *object) escaped() bool {
	n := 0
	for i := len(o.token) - 2; i > 0 && o.token[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// jsonArguments emits what follows the name of a call: an object, the text of an object, null, or
// nothing. The parser continues with done.
func (p *Parser) jsonArguments(done state) state {
	o := &object{tool: p.tool, at: atValue, member: "arguments"}
	finish := func(p *Parser) bool {
		if !o.begun {
			p.arguments("{}")
		}
		p.complete()
		p.state = done
		return true
	}
	return func(p *Parser) bool {
		if o.at == atValue {
			more := p.skipSpace()
			p.raw = ""
			switch w := p.prefix("null"); {
			case !more && !p.last, w == unsure:
				return false
			case w == there:
				p.buf = p.buf[len("null"):]
				return finish(p)
			case !more || p.buf[0] != '{' && p.buf[0] != '"':
				return finish(p)
			}
		}
		for i := range len(p.buf) {
			step := o.step(p.buf[i])
			if step == bad || o.at == atComma {
				p.arguments(o.take())
				p.buf = p.buf[i+1:]
				return finish(p)
			}
		}
		p.arguments(o.take())
		p.buf = ""
		return false
	}
}

// An unquoter decodes a JSON string byte by byte.
type unquoter struct {
	escape []byte
	high   rune // the first half of a surrogate pair
}

// next returns the text that b makes final. end means that b is the closing quote.
func (u *unquoter) next(b byte) (piece string, end bool) {
	switch {
	case len(u.escape) == 0 && b == '"':
		return u.lost(), true
	case len(u.escape) == 0 && b != '\\':
		return u.lost() + string([]byte{b}), false
	}
	u.escape = append(u.escape, b)
	if len(u.escape) == 1 {
		return "", false
	}
	if u.escape[1] == 'u' && len(u.escape) < len(`\u0000`) {
		return "", false
	}
	var text string
	ok := json.Unmarshal([]byte(`"`+string(u.escape)+`"`), &text) == nil
	code, isHex := hexOf(u.escape)
	u.escape = u.escape[:0]
	switch {
	case !ok:
		return u.lost(), false
	case !isHex || !utf16.IsSurrogate(code):
		return u.lost() + text, false
	case u.high == 0:
		u.high = code
		return "", false
	}
	pair := utf16.DecodeRune(u.high, code)
	u.high = 0
	return string(pair), false
}

// lost returns what stands for half of a surrogate pair.
func (u *unquoter) lost() string {
	if u.high == 0 {
		return ""
	}
	u.high = 0
	return string(utf8.RuneError)
}

// hexOf returns the code of an escape of the form \uXXXX.
func hexOf(escape []byte) (code rune, ok bool) {
	if len(escape) != len(`\u0000`) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(escape[2:]), 16, 16)
	return rune(n), err == nil
}
