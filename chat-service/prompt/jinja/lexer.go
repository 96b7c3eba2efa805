package jinja

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The kinds of tokens.
const (
	tokenData = iota
	tokenName
	tokenText // a literal of text
	tokenNumber
	tokenOperator
	tokenBegin // of a tag: "{{" or "{%"
	tokenEnd   // of a tag: "}}" or "%}"
	tokenEOF
)

// A token is a word of a template.
type token struct {
	kind  int
	text  string // as written; the decoded text of a literal
	value Value  // of a number
	line  int
}

// is reports whether a token is a name, an operator or the start or end of a tag with this text.
func (t token) is(text string) bool {
	return t.text == text && t.kind != tokenData && t.kind != tokenText
}

// String describes a token in an error.
func (t token) String() string {
	switch t.kind {
	case tokenEOF:
		return "the end of the template"
	case tokenText:
		return "a text"
	}
	return "'" + t.text + "'"
}

const (
	maxTokens = 4096 // of a tag
	maxLevels = 100  // of nested brackets and blocks
)

// syntax fails for a template that is not usable. Within the package it is a panic.
func syntax(line int, format string, args ...any) {
	panic(&PlaceError{line, -1, fmt.Errorf(format, args...)})
}

// A lexer splits a template into tokens.
type lexer struct {
	src    string
	pos    int
	line   int
	fresh  bool // the last match ended with a line
	tokens []token
}

// lex returns the tokens of a template, the last of the kind tokenEOF.
func lex(source string) []token {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	lx := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1, fresh: true}
	if !utf8.ValidString(source) {
		syntax(1, "the template is not UTF-8")
	}
	for lx.pos < len(lx.src) {
		lx.literal()
	}
	return append(lx.tokens, token{kind: tokenEOF, line: lx.line})
}

func (lx *lexer) rest() string { return lx.src[lx.pos:] }

// advance moves behind the next n bytes.
func (lx *lexer) advance(n int) {
	passed := lx.src[lx.pos : lx.pos+n]
	lx.line += strings.Count(passed, "\n")
	lx.fresh = strings.HasSuffix(passed, "\n")
	lx.pos += n
}

func (lx *lexer) emit(kind int, text string, value Value) {
	lx.tokens = append(lx.tokens, token{kind, text, value, lx.line})
}

// signAt returns the "-" or "+" at the start of s, or "".
func signAt(s string) string {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[:1]
	}
	return ""
}

var opening = regexp.MustCompile(`\{[{%#]`)

// literal reads text up to a tag or a comment, and the tag.
func (lx *lexer) literal() {
	rest := lx.rest()
	at := opening.FindStringIndex(rest)
	if at == nil {
		lx.emit(tokenData, rest, nil)
		lx.advance(len(rest))
		return
	}
	tag, sign := rest[at[0]:at[1]], signAt(rest[at[1]:])
	if text := lx.trimmed(rest[:at[0]], sign, tag != "{{"); text != "" {
		lx.emit(tokenData, text, nil)
	}
	lx.advance(at[0])
	rest = lx.rest()
	if raw := rawTag.FindString(rest); raw != "" {
		lx.raw(raw)
		return
	}
	if tag == "{#" {
		start := len(tag + sign)
		end := strings.Index(rest[start:], "#}")
		if end < 0 {
			syntax(lx.line, "a comment has no end")
		}
		lx.close(start+end+len("#}"), signAt(rest[start+max(end-1, 0):]), true)
		return
	}
	lx.emit(tokenBegin, tag, nil)
	lx.advance(len(tag + sign))
	lx.tag(map[string]string{"{{": "}}", "{%": "%}"}[tag])
}

// trimmed returns text before a tag without the white space that the tag's sign removes. lstrip_blocks
// removes the spaces before the tag in its line, unless the tag is an output.
func (lx *lexer) trimmed(text, sign string, isBlock bool) string {
	switch {
	case sign == "-":
		return strings.TrimRightFunc(text, isSpace)
	case sign == "" && isBlock:
		start := strings.LastIndexByte(text, '\n') + 1
		if (start > 0 || lx.fresh) && strings.TrimFunc(text[start:], isSpace) == "" {
			return text[:start]
		}
	}
	return text
}

// close moves behind the end of a tag, and the white space that its sign removes. trim_blocks removes
// the newline after a block.
func (lx *lexer) close(n int, sign string, trimsLine bool) {
	rest := lx.rest()
	switch {
	case sign == "-":
		n = len(rest) - len(strings.TrimLeftFunc(rest[n:], isSpace))
	case sign == "" && trimsLine && strings.HasPrefix(rest[n:], "\n"):
		n++
	}
	lx.advance(n)
}

var (
	rawTag    = regexp.MustCompile(`^\{%[-+]?\s*raw\s*-?%\}`)
	endRawTag = regexp.MustCompile(`\{%([-+]?)\s*endraw\s*([-+]?)%\}`)
)

// raw reads a raw block. trim_blocks does not remove the newline after its start tag.
func (lx *lexer) raw(tag string) {
	lx.close(len(tag), signAt(tag[len(tag)-3:]), false)
	rest := lx.rest()
	end := endRawTag.FindStringSubmatchIndex(rest)
	if end == nil {
		syntax(lx.line, "a raw block has no end")
	}
	lx.emit(tokenData, lx.trimmed(rest[:end[0]], rest[end[2]:end[3]], true), nil)
	lx.close(end[1], rest[end[4]:end[5]], true)
}

// tag reads the tokens of a tag up to its end. Within brackets the end is read as operators.
func (lx *lexer) tag(closer string) {
	var brackets []byte
	first := len(lx.tokens)
	for lx.pos < len(lx.src) {
		rest := lx.rest()
		sign := signAt(rest)
		if len(brackets) == 0 && strings.HasPrefix(rest[len(sign):], closer) && (closer == "%}" || sign != "+") {
			lx.emit(tokenEnd, closer, nil)
			lx.close(len(sign+closer), sign, closer == "%}")
			return
		}
		if c, n := utf8.DecodeRuneInString(rest); isSpace(c) {
			lx.advance(n)
			continue
		}
		if len(lx.tokens)-first == maxTokens {
			syntax(lx.line, "%w: a tag has more than %d tokens", ErrLimit, maxTokens)
		}
		switch t := lx.word(rest); t {
		case "(", "[", "{":
			if len(brackets) == maxLevels {
				syntax(lx.line, "%w: more than %d nested brackets", ErrLimit, maxLevels)
			}
			brackets = append(brackets, ")]}"[strings.Index("([{", t)])
		case ")", "]", "}":
			n := len(brackets) - 1
			if n < 0 || brackets[n] != t[0] {
				syntax(lx.line, "unexpected '%s'", t)
			}
			brackets = brackets[:n]
		}
	}
	syntax(lx.line, "a tag has no end '%s'", closer)
}

var (
	floatWord    = regexp.MustCompile(`^(\d+_)*\d+((\.(\d+_)*\d+)?[eE][+-]?(\d+_)*\d+|\.(\d+_)*\d+)`)
	intWord      = regexp.MustCompile(`^(0[bB](_?[01])+|0[oO](_?[0-7])+|0[xX](_?[\da-fA-F])+|[1-9](_?\d)*|0(_?0)*)`)
	nameWord     = regexp.MustCompile(`^[\p{L}\p{Nl}_][\p{L}\p{N}\p{Mn}\p{Mc}_]*`)
	textWord     = regexp.MustCompile(`^(?s:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")`)
	operatorWord = regexp.MustCompile(`^(//|\*\*|==|!=|>=|<=|[-+/*%~\[\](){}<>=.:|,;])`)
)

// word reads one token of a tag. It returns an operator.
func (lx *lexer) word(rest string) (operator string) {
	match := func(re *regexp.Regexp) bool {
		operator = re.FindString(rest)
		return operator != ""
	}
	switch {
	case match(nameWord):
		lx.emit(tokenName, operator, nil)
	case lx.src[lx.pos-1] != '.' && match(floatWord):
		f, _ := strconv.ParseFloat(strings.ReplaceAll(operator, "_", ""), 64) // too large is inf, as in Python
		lx.emit(tokenNumber, operator, f)
	case match(intWord):
		n, ok := new(big.Int).SetString(operator, 0)
		if !ok || n.BitLen() > maxBits {
			syntax(lx.line, "an integer is too large")
		}
		lx.emit(tokenNumber, operator, small(n))
	case match(textWord):
		lx.emit(tokenText, lx.unescaped(operator[1:len(operator)-1]), nil)
	case match(operatorWord):
		lx.emit(tokenOperator, operator, nil)
		lx.advance(len(operator))
		return operator
	case rest[0] == '"' || rest[0] == '\'':
		syntax(lx.line, "a text has no end")
	default:
		syntax(lx.line, "unexpected character %.4q", rest)
	}
	lx.advance(len(operator))
	return ""
}

// isSpace reports whether Python considers c white space: Unicode's and the four ASCII separators.
func isSpace(c rune) bool { return unicode.IsSpace(c) || 0x1c <= c && c <= 0x1f }

var escapeWord = regexp.MustCompile(`(?s)\\(x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|[0-7]{1,3}|.)`)

// unescaped decodes the escapes of a Python literal.
func (lx *lexer) unescaped(s string) string {
	return escapeWord.ReplaceAllStringFunc(s, func(escape string) string {
		body := escape[1:]
		base, digits := 16, body[1:]
		switch c := body[0]; {
		case '0' <= c && c <= '7':
			base, digits = 8, body
		case len(body) > 1 && strings.IndexByte("xuU", c) >= 0:
		case strings.IndexByte("xuUN", c) >= 0:
			syntax(lx.line, "a text has a broken or unsupported escape %s", escape)
		case strings.IndexByte("abfnrtv\n\\'\"", c) >= 0:
			return strings.NewReplacer("a", "\a", "b", "\b", "f", "\f", "n", "\n", "r", "\r", "t", "\t", "v", "\v", "\n", "").Replace(body)
		default:
			return escape
		}
		n, err := strconv.ParseUint(digits, base, 32)
		if err != nil || !utf8.ValidRune(rune(n)) { //nolint:gosec // 32 bits
			syntax(lx.line, "a text has a broken escape %s", escape)
		}
		return string(rune(n)) //nolint:gosec // checked
	})
}
