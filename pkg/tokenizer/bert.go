package tokenizer

import (
	"errors"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// bertFile has the options of the normalizer BertNormalizer.
type bertFile struct {
	Clean     *bool `json:"clean_text"`
	Chinese   *bool `json:"handle_chinese_chars"`
	Accents   *bool `json:"strip_accents"` // nil is Lowercase
	Lowercase *bool
}

// newBert returns BERT's normalizer.
func newBert(c *component) (normalizer, error) {
	var opt bertFile
	if err := c.options(&opt); err != nil {
		return nil, err
	}
	if opt.Clean == nil || opt.Chinese == nil || opt.Lowercase == nil {
		return nil, c.fail(errors.New("clean_text, handle_chinese_chars or lowercase is missing"))
	}
	var steps []func(piece) piece
	if *opt.Clean {
		steps = append(steps, clean)
	}
	if *opt.Chinese {
		steps = append(steps, func(p piece) piece { return piece{separate(p.text), p.first} })
	}
	if opt.Accents == nil && *opt.Lowercase || opt.Accents != nil && *opt.Accents {
		decompose := compose(norm.NFD, norm.NFD)
		steps = append(steps, func(p piece) piece { return decompose(p).without(pattern.IsAccent) })
	}
	if *opt.Lowercase {
		steps = append(steps, func(p piece) piece { return piece{lower(p.text), p.first} })
	}
	return always(func(p piece) piece {
		for _, step := range steps {
			p = step(p)
		}
		return p
	}), nil
}

// without removes characters from a piece.
func (p piece) without(drop func(rune) bool) piece {
	first := true
	p.text = strings.Map(func(r rune) rune {
		if !drop(r) {
			first = false
			return r
		}
		p.first = p.first && !first
		return -1
	}, p.text)
	return p
}

// clean removes control characters, and turns other white space into spaces.
func clean(p piece) piece {
	p = p.without(func(r rune) bool {
		return r == 0 || r == '\uFFFD' || pattern.IsControl(r) && r != '\t' && r != '\n' && r != '\r'
	})
	p.text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, p.text)
	return p
}

// separate puts spaces around the characters of Chinese, which so become words.
func separate(s string) string {
	if strings.IndexFunc(s, isChinese) < 0 {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		if isChinese(r) {
			out.WriteByte(' ')
			out.WriteRune(r)
			out.WriteByte(' ')
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

func isChinese(r rune) bool {
	return r >= 0x3400 && (r <= 0x4DBF || r >= 0x4E00 && r <= 0x9FFF || r >= 0xF900 && r <= 0xFAFF || r >= 0x20000 && r <= 0x2A6DF ||
		r >= 0x2A700 && r <= 0x2B81F || r >= 0x2B920 && r <= 0x2CEAF || r >= 0x2F800 && r <= 0x2FA1F)
}

// nmt is the normalizer Nmt: it removes control characters, and turns other white space, and characters
// that are not shown, into spaces.
func nmt(p piece) piece {
	p = p.without(func(r rune) bool {
		return r >= 1 && r <= 8 || r == 0xB || r >= 0xE && r <= 0x1F || r == 0x7F || r == 0x8F || r == 0x9F
	})
	p.text = strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\f' || r == '\r', r == 0x1680, r >= 0x200B && r <= 0x200F, r == 0x2028, r == 0x2029, r == '▁', r == 0xFEFF, r == 0xFFFD:
			return ' '
		}
		return r
	}, p.text)
	return p
}
