// Package pattern finds where a tokenizer splits text: at literals, at kinds of characters, and at
// the regular expressions of tokenizer.json files.
//
// Expressions have the meaning that they have in Oniguruma, the engine of the Rust library
// "tokenizers", with Unicode 16.0. The expressions of the common models have hand-written scanners,
// which take linear time. Other expressions run on regexp2, which backtracks, with a time limit.
//
// Texts must be valid UTF-8. Everything here is safe for concurrent use.
package pattern

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
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
	return newEngine(expression)
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

// An engine is a regular expression without a scanner. Patterns of tokenizers use lookahead, which
// package regexp lacks. regexp2 has it, but backtracks, and does not terminate for some
// expressions.
type engine struct{ re *regexp2.Regexp }

const (
	// matchTimeout bounds one match, and the matches of one text. The engine counts no steps, and no
	// expression of a model takes more than microseconds for a match, so a busy machine stays below
	// the bound. The text of a match that takes longer is refused: to go on without the match would
	// give other tokens.
	matchTimeout = 3 * time.Second
	// maxExpression bounds an expression, in bytes. Those of models have less than 500.
	maxExpression = 8 << 10
)

// foldedContractions is a part of most patterns. Case folding turns "ſ" into "s" in the Rust
// library's engine, but not in regexp2.
const foldedContractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`

func newEngine(text string) (Pattern, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("a regular expression has %d bytes; at most %d are allowed", len(text), maxExpression)
	}
	folded := strings.ReplaceAll(text, foldedContractions, `(?:'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`)
	re, err := regexp2.Compile(folded, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("regular expression %.200q: %w", text, err)
	}
	re.MatchTimeout = matchTimeout
	return engine{re}, nil
}

// Matches implements Pattern.
func (e engine) Matches(dst []Span, s string) ([]Span, error) {
	began := time.Now()
	runes := []rune(s)
	at, offset := 0, 0 // the same position, in runes and in bytes
	byteOffset := func(rune int) int {
		for ; at < rune; at++ {
			offset += utf8.RuneLen(runes[at])
		}
		return offset
	}
	end := -1
	m, err := e.re.FindRunesMatch(runes)
	for n := 1; err == nil && m != nil; n++ {
		if n%matchesPerLook == 0 && time.Since(began) > matchTimeout {
			return dst, fmt.Errorf("%w: %.200q", ErrSlow, e.re)
		}
		// An empty match at the end of the previous match is ignored; elsewhere it splits the text.
		if m.Length > 0 || m.Index != end {
			start := byteOffset(m.Index)
			dst = append(dst, Span{start, byteOffset(m.Index + m.Length)})
		}
		end = m.Index + m.Length
		m, err = e.re.FindNextMatch(m)
	}
	if err != nil { // regexp2 has no other error here than a timeout
		return dst, fmt.Errorf("%w: %.200q", ErrSlow, e.re)
	}
	return dst, nil
}

// matchesPerLook is the number of matches after which Matches looks at the clock.
const matchesPerLook = 64
