package tokenizer

import (
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
type normalizer func(piece) piece

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
	return func(p piece) piece {
		for _, step := range steps {
			p = step(p)
		}
		return p
	}, nil
}

func newNormalizerStep(c *component) (normalizer, error) {
	switch c.Type {
	case "NFC":
		return compose(norm.NFC, norm.NFD), nil
	case "NFKC":
		return compose(norm.NFKC, norm.NFKD), nil
	case "Lowercase":
		return func(p piece) piece { return piece{lower(p.text), p.first} }, nil
	case "Prepend":
		var opt struct{ Prepend string }
		if err := c.options(&opt); err != nil {
			return nil, err
		}
		return func(p piece) piece {
			if p.text != "" {
				p.text = opt.Prepend + p.text
			}
			return p
		}, nil
	case "Strip":
		var opt struct {
			Left  bool `json:"strip_left"`
			Right bool `json:"strip_right"`
		}
		if err := c.options(&opt); err != nil {
			return nil, err
		}
		return func(p piece) piece { return strip(p, opt.Left, opt.Right) }, nil
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
	return func(p piece) piece {
		spans := re.pattern.Matches(nil, p.text)
		if len(spans) == 0 {
			return p
		}
		// In the Rust library, a replacement of several characters has the position of the last of
		// them.
		if head := spans[0]; head.Start == 0 && (re.content == "" || utf8.RuneCountInString(p.text[:head.End]) > 1) {
			p.first = false
		}
		p.text = re.apply(p.text, spans)
		return p
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
	return &replacement{pattern: p, content: opt.Content}, nil
}

func (re *replacement) replace(s string) string { return re.apply(s, re.pattern.Matches(nil, s)) }

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
