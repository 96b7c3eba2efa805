package tokenizer

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// A piece is a part of a text on its way to the model.
type piece struct {
	text string
	// first reports that the piece begins at the beginning of the text. One Metaspace scheme needs
	// this.
	first bool
}

// A normalizer rewrites text before it is split into words.
type normalizer func(piece) (piece, error)

// Bounds of a file's pipelines. Those of models have at most five steps, and literals of one
// character. Replacements could double a text again and again.
const (
	maxSteps   = 32
	maxLiteral = 256      // bytes of a pattern, of a replacement and of an added token
	maxText    = 64 << 20 // bytes of a normalized text
	maxSpelled = 1 << 16  // bytes of a token that a decoder writes
)

// errLong is the error of a text that normalization makes too long.
var errLong = fmt.Errorf("%w: the normalized text has more than %d bytes", ErrLimit, maxText)

func newNormalizer(c *component) (normalizer, error) {
	list, err := c.steps("normalizers")
	if err != nil {
		return nil, err
	}
	steps := make([]normalizer, len(list))
	for i := range steps {
		if steps[i], err = newNormalizerStep(&list[i]); err != nil {
			return nil, err
		}
	}
	return func(p piece) (piece, error) {
		for _, step := range steps {
			var err error // each call has its own: calls run at the same time
			if p, err = step(p); err != nil || len(p.text) > maxText {
				return p, cmp.Or(err, errLong)
			}
		}
		return p, nil
	}, nil
}

// always returns a normalizer that cannot fail.
func always(step func(piece) piece) normalizer {
	return func(p piece) (piece, error) { return step(p), nil }
}

func newNormalizerStep(c *component) (normalizer, error) {
	switch c.Type {
	case "NFC":
		return always(compose(norm.NFC, norm.NFD)), nil
	case "NFKC":
		return always(compose(norm.NFKC, norm.NFKD)), nil
	case "NFD":
		return always(compose(norm.NFD, norm.NFD)), nil
	case "NFKD":
		return always(compose(norm.NFKD, norm.NFKD)), nil
	case "Nmt":
		return always(nmt), nil
	case "StripAccents":
		return always(func(p piece) piece { return p.without(pattern.IsMark) }), nil
	case "BertNormalizer":
		return newBert(c)
	case "Precompiled":
		return newPrecompiled(c)
	case "Lowercase":
		return always(func(p piece) piece { return piece{lower(p.text), p.first} }), nil
	case "Prepend":
		var opt struct{ Prepend string }
		if err := c.options(&opt); err != nil {
			return nil, err
		}
		if len(opt.Prepend) > maxLiteral {
			return nil, c.fail(fmt.Errorf("the text has %d bytes; at most %d are allowed", len(opt.Prepend), maxLiteral))
		}
		return always(func(p piece) piece {
			if p.text != "" {
				p.text = opt.Prepend + p.text
			}
			return p
		}), nil
	case "Strip":
		var opt struct {
			Left  bool `json:"strip_left"`
			Right bool `json:"strip_right"`
		}
		if err := c.options(&opt); err != nil {
			return nil, err
		}
		return always(func(p piece) piece { return strip(p, opt.Left, opt.Right) }), nil
	case "Replace":
		return newReplace(c)
	}
	return nil, c.unsupported()
}

func newReplace(c *component) (normalizer, error) {
	re, err := readReplacement(c)
	if err != nil {
		return nil, err
	}
	return func(p piece) (piece, error) {
		spans, err := re.pattern.Matches(nil, p.text)
		if err == nil && len(p.text)+len(spans)*len(re.content) > maxText {
			err = errLong
		}
		if err != nil || len(spans) == 0 {
			return p, err
		}
		// In the Rust library, a replacement of several characters has the position of the last of
		// them.
		if head := spans[0]; head.Start == 0 && (re.content == "" || utf8.RuneCountInString(p.text[:head.End]) > 1) {
			p.first = false
		}
		p.text = re.apply(p.text, spans)
		return p, nil
	}, nil
}

// A replacement is a Replace component, which is a normalizer or a decoder.
type replacement struct {
	pattern pattern.Pattern
	content string
}

func readReplacement(c *component) (*replacement, error) {
	var opt struct {
		Pattern *patternFile
		Content string
	}
	if err := c.options(&opt); err != nil {
		return nil, err
	}
	p, err := newPattern(opt.Pattern)
	if err != nil {
		return nil, c.fail(err)
	}
	if len(opt.Content) > maxLiteral {
		return nil, c.fail(fmt.Errorf("the replacement has %d bytes; at most %d are allowed", len(opt.Content), maxLiteral))
	}
	return &replacement{pattern: p, content: opt.Content}, nil
}

// replace is a step of a decoder. An expression that takes too long, or would make the token too
// long, matches nothing.
func (re *replacement) replace(s string) string {
	spans, err := re.pattern.Matches(nil, s)
	if err != nil || len(s)+len(spans)*len(re.content) > maxSpelled {
		return s
	}
	return re.apply(s, spans)
}

func (re *replacement) apply(s string, spans []pattern.Span) string {
	if len(spans) == 0 {
		return s
	}
	var out strings.Builder
	out.Grow(len(s) + len(spans)*len(re.content))
	done := 0
	for _, m := range spans {
		out.WriteString(s[done:m.Start])
		out.WriteString(re.content)
		done = m.End
	}
	out.WriteString(s[done:])
	return out.String()
}

func strip(p piece, left, right bool) piece {
	if left {
		n := len(p.text)
		p.text = strings.TrimLeftFunc(p.text, unicode.IsSpace)
		p.first = p.first && len(p.text) == n
	}
	if right {
		p.text = strings.TrimRightFunc(p.text, unicode.IsSpace)
	}
	return p
}

// lower maps each character separately, like Rust's char::to_lowercase: independently of its
// neighbours, and to two characters if Unicode says so, which happens for one character.
func lower(s string) string {
	if strings.ContainsRune(s, 'İ') {
		s = strings.ReplaceAll(s, "İ", "i\u0307")
	}
	return strings.Map(unicode.ToLower, s)
}
