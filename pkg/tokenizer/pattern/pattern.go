// Package pattern finds where a tokenizer splits text: at literals, at kinds of characters, and at
// the regular expressions of tokenizer.json files.
//
// Expressions have the meaning that they have in Oniguruma, the engine of the Rust library
// "tokenizers", with Unicode 16.0. The expressions of the common models have hand-written scanners,
// which take linear time. Other expressions run on a machine that backtracks, with a limit of steps. An
// expression with a construct whose meaning the machine lacks is refused, by the construct's name.
//
// Texts must be valid UTF-8. Everything here is safe for concurrent use.
package pattern

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// A Span is the position of a match: bytes Start to End of a text.
type Span struct{ Start, End int }

// A Pattern appends its matches in s to dst, in order and without overlaps. Its error wraps ErrSlow.
type Pattern interface {
	Matches(dst []Span, s string) ([]Span, error)
}

// ErrSlow is the error of an expression that takes too long on a text.
var ErrSlow = errors.New("a regular expression takes too long")

// New returns the pattern of a regular expression.
func New(expression string) (Pattern, error) {
	if scan, ok := scanners[expression]; ok {
		return scan, nil
	}
	return newExpression(expression, oniguruma)
}

// NewTiktoken is New for an expression of a tiktoken or tekken file, whose engine is another: {1,3}+
// is possessive, and $ is the end of the text.
func NewTiktoken(expression string) (Pattern, error) {
	if scan, ok := scanners[expression]; ok {
		return scan, nil
	}
	return newExpression(expression, tiktoken)
}

// A Literal matches itself. It is not empty.
type Literal string

// Matches implements Pattern.
func (l Literal) Matches(dst []Span, s string) ([]Span, error) {
	for at := 0; ; {
		i := strings.Index(s[at:], string(l))
		if i < 0 {
			return dst, nil
		}
		dst = append(dst, Span{at + i, at + i + len(l)})
		at += i + len(l)
	}
}

// A Char matches each character for which it returns true.
type Char func(rune) bool

// Matches implements Pattern.
func (is Char) Matches(dst []Span, s string) ([]Span, error) {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if is(r) {
			dst = append(dst, Span{i, i + n})
		}
		i += n
	}
	return dst, nil
}
