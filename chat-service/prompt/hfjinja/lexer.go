package hfjinja

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

type segmentKind int

const (
	literal   segmentKind = iota // text that is written unchanged
	output                       // {{ tokens }}
	statement                    // {% tokens %}
)

// A segment is a piece of a template after whitespace control. It contains no signs, comments or
// raw blocks.
type segment struct {
	kind   segmentKind
	text   string
	tokens []token
	line   int
}

// A lexer splits a template into segments by the rules of Jinja2's lexer with trim_blocks and
// lstrip_blocks. The library has other rules: it carries the trimming of a tag across an adjacent
// tag, and it supports neither "{%+", nor "}}" within an expression, nor whitespace that is not
// ASCII.
type lexer struct {
	src      string
	pos      int
	newLine  bool // the last consumed text ended with a newline, or nothing was consumed yet
	segments []segment

	lines, counted int // newlines in src[:counted]
}

// Bounds of a source. The templates of well-known models have less than 40 KB, tags of less than a
// hundred tokens, and ten levels of nesting.
const (
	maxSource  = 1 << 20
	maxTokens  = 1 << 12 // of a tag
	maxLevels  = 64      // of brackets in a tag, and of blocks
	maxTargets = 1 << 10 // variables that one loop sets
)

var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func lex(source string) ([]segment, error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%w: a source of more than %d bytes", ErrLimit, maxSource)
	}
	lx := &lexer{src: strings.TrimSuffix(newlines.Replace(source), "\n"), newLine: true}
	for lx.pos < len(lx.src) {
		if err := lx.next(); err != nil {
			return nil, fmt.Errorf("line %d: %w", lx.line(), err)
		}
	}
	return lx.segments, nil
}

// line returns the number of the current line.
func (lx *lexer) line() int {
	lx.lines += strings.Count(lx.src[lx.counted:lx.pos], "\n")
	lx.counted = lx.pos
	return 1 + lx.lines
}

func (lx *lexer) rest() string { return lx.src[lx.pos:] }

// next reads the text before the next tag, and the tag.
func (lx *lexer) next() error {
	start := opener(lx.rest())
	if start < 0 {
		lx.literal(lx.rest())
		lx.pos = len(lx.src)
		return nil
	}
	text := lx.rest()[:start]
	lx.pos += start
	kind := lx.src[lx.pos+1]
	sign := signAt(lx.rest()[2:])
	lx.literal(lx.trimBefore(text, sign, kind != '{'))
	switch kind {
	case '#':
		lx.pos += 2 + len(sign)
		return lx.comment()
	case '%':
		if n := keywordTag(lx.rest(), "raw"); n > 0 {
			return lx.raw(n)
		}
		lx.pos += 2 + len(sign)
		return lx.tag(statement, "%}")
	default:
		lx.pos += 2 + len(sign)
		return lx.tag(output, "}}")
	}
}

func (lx *lexer) literal(text string) {
	if text != "" {
		lx.segments = append(lx.segments, segment{kind: literal, text: text, line: lx.line()})
	}
}

// opener returns the index of the next tag, or -1.
func opener(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

func signAt(s string) string {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[:1]
	}
	return ""
}

// trimBefore applies the sign of a tag, or lstrip_blocks, to the text before the tag.
func (lx *lexer) trimBefore(text, sign string, block bool) string {
	if sign == "-" {
		return strings.TrimRightFunc(text, isSpace)
	}
	if sign == "+" || !block {
		return text
	}
	indent := strings.LastIndexByte(text, '\n') + 1
	if (indent > 0 || lx.newLine) && strings.TrimLeftFunc(text[indent:], isSpace) == "" {
		return text[:indent]
	}
	return text
}

// close consumes n bytes of a tag's end, and the whitespace that the sign or trim_blocks removes.
func (lx *lexer) close(n int, sign string, block bool) {
	lx.pos += n
	switch rest := lx.rest(); {
	case sign == "-":
		lx.pos += len(rest) - len(strings.TrimLeftFunc(rest, isSpace))
	case sign == "" && block && strings.HasPrefix(rest, "\n"):
		lx.pos++
	}
	lx.newLine = lx.src[lx.pos-1] == '\n'
}

func (lx *lexer) comment() error {
	end := strings.Index(lx.rest(), "#}")
	if end < 0 {
		return errors.New("comment without end")
	}
	sign := ""
	if end > 0 {
		sign = signAt(lx.rest()[end-1:])
	}
	lx.close(end+2, sign, true)
	return nil
}

// raw reads a raw block whose start tag is n bytes long. trim_blocks does not remove the newline
// after the start tag.
func (lx *lexer) raw(n int) error {
	sign := ""
	if lx.src[lx.pos+n-3] == '-' {
		sign = "-"
	}
	lx.close(n, sign, false)
	for end := range len(lx.rest()) {
		tag := lx.rest()[end:]
		n := keywordTag(tag, "endraw")
		if n == 0 {
			continue
		}
		lx.literal(lx.trimBefore(lx.rest()[:end], signAt(tag[2:]), true))
		lx.close(end+n, signAt(tag[n-3:]), true)
		return nil
	}
	return errors.New("raw block without end")
}

// keywordTag returns the length of the tag {% keyword %} at the start of s, with or without signs,
// or 0.
func keywordTag(s, keyword string) int {
	t, ok := strings.CutPrefix(s, "{%")
	if !ok {
		return 0
	}
	t = strings.TrimLeftFunc(t[len(signAt(t)):], isSpace)
	if t, ok = strings.CutPrefix(t, keyword); !ok {
		return 0
	}
	t = strings.TrimLeftFunc(t, isSpace)
	if t, ok = strings.CutPrefix(t[len(signAt(t)):], "%}"); !ok {
		return 0
	}
	return len(s) - len(t)
}

// tag reads tokens up to closer. Inside open brackets, closer is read as operators.
func (lx *lexer) tag(kind segmentKind, closer string) error {
	seg := segment{kind: kind, line: lx.line()}
	var open []byte
	for lx.pos < len(lx.src) {
		rest := lx.rest()
		if sign := signAt(rest); len(open) == 0 && strings.HasPrefix(rest[len(sign):], closer) &&
			(kind == statement || sign != "+") {
			lx.close(len(sign)+len(closer), sign, kind == statement)
			lx.segments = append(lx.segments, seg)
			return nil
		}
		if r, n := utf8.DecodeRuneInString(rest); isSpace(r) {
			lx.pos += n
			continue
		}
		tok, n, err := scanToken(rest)
		if err != nil {
			return err
		}
		if open, err = balance(open, tok); err != nil {
			return err
		}
		if len(seg.tokens) == maxTokens {
			return fmt.Errorf("%w: more than %d tokens in a tag", ErrLimit, maxTokens)
		}
		seg.tokens = append(seg.tokens, tok)
		lx.pos += n
	}
	return fmt.Errorf("tag without %q", closer)
}

var closers = map[string]byte{"(": ')', "[": ']', "{": '}'}

func balance(open []byte, tok token) ([]byte, error) {
	if tok.kind != operator {
		return open, nil
	}
	switch tok.text {
	case "(", "[", "{":
		if len(open) == maxLevels {
			return nil, fmt.Errorf("%w: more than %d nested brackets", ErrLimit, maxLevels)
		}
		return append(open, closers[tok.text]), nil
	case ")", "]", "}":
		if len(open) == 0 || open[len(open)-1] != tok.text[0] {
			return nil, fmt.Errorf("unexpected %q", tok.text)
		}
		return open[:len(open)-1], nil
	}
	return open, nil
}

// isSpace reports whether Python considers r whitespace: Unicode whitespace and the four ASCII
// separators.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }
