package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// A preTokenizer splits a non-empty piece, and appends the parts to dst. Its caller drops empty
// parts.
type preTokenizer interface {
	split(dst []piece, p piece, sc *scratch) []piece
}

// newPreTokenizers returns the stages of c, in order. byteLevel reports that their words are bytes,
// which the vocabulary writes as characters of its own.
func newPreTokenizers(c *component) (stages []preTokenizer, byteLevel bool, err error) {
	steps, err := c.steps("pretokenizers")
	if err != nil {
		return nil, false, err
	}
	for i := range steps {
		some, err := newPreTokenizer(&steps[i])
		if err != nil {
			return nil, false, err
		}
		stages = append(stages, some...)
		if steps[i].Type == "ByteLevel" {
			if byteLevel {
				return nil, false, steps[i].fail(errors.New("there is more than one"))
			}
			byteLevel = true
			if i < len(steps)-1 {
				stages = append(stages, spellingStage{})
			}
		}
	}
	if byteLevel && steps[len(steps)-1].Type != "ByteLevel" {
		stages = append(stages, readingStage{})
	}
	return stages, byteLevel, nil
}

func newPreTokenizer(c *component) ([]preTokenizer, error) {
	switch c.Type {
	case "Split":
		return one(newSplitter(c))
	case "ByteLevel":
		opt := struct {
			AddPrefixSpace bool  `json:"add_prefix_space"`
			UseRegex       *bool `json:"use_regex"`
		}{}
		if err := c.options(&opt); err != nil {
			return nil, err
		}
		var stages []preTokenizer
		if opt.AddPrefixSpace {
			stages = append(stages, prefixSpace{})
		}
		if opt.UseRegex == nil || *opt.UseRegex {
			stages = append(stages, splitter{pattern: pattern.GPT2, behavior: isolated})
		}
		return stages, nil
	case "Digits":
		var opt struct {
			Individual bool `json:"individual_digits"`
		}
		if err := c.options(&opt); err != nil {
			return nil, err
		}
		s := splitter{pattern: pattern.Char(pattern.IsNumber), behavior: contiguous}
		if opt.Individual {
			s.behavior = isolated
		}
		return []preTokenizer{s}, nil
	case "Punctuation":
		opt := struct{ Behavior behavior }{isolated}
		if err := c.options(&opt); err != nil {
			return nil, err
		}
		return []preTokenizer{splitter{pattern: pattern.Char(pattern.IsPunctuation), behavior: opt.Behavior}}, nil
	case "WhitespaceSplit":
		return []preTokenizer{splitter{pattern: pattern.Char(unicode.IsSpace), behavior: removed}}, nil
	case "CharDelimiterSplit":
		var opt struct{ Delimiter string }
		if err := c.options(&opt); err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(opt.Delimiter) != 1 {
			return nil, c.fail(fmt.Errorf("delimiter %q is not one character", opt.Delimiter))
		}
		return []preTokenizer{splitter{pattern: pattern.Literal(opt.Delimiter), behavior: removed}}, nil
	case "BertPreTokenizer":
		return []preTokenizer{
			splitter{pattern: pattern.Char(unicode.IsSpace), behavior: removed},
			splitter{pattern: pattern.Char(pattern.IsPunctuation), behavior: isolated},
		}, nil
	case "Whitespace":
		return []preTokenizer{splitter{pattern: pattern.Words, behavior: removed, invert: true}}, nil
	case "Metaspace":
		return one(newMetaspace(c))
	}
	return nil, c.unsupported()
}

func one[P preTokenizer](p P, err error) ([]preTokenizer, error) { return []preTokenizer{p}, err }

// prefixSpace makes every piece begin with a space.
type prefixSpace struct{}

func (prefixSpace) split(dst []piece, p piece, _ *scratch) []piece {
	if !strings.HasPrefix(p.text, " ") {
		p.text = " " + p.text
	}
	return append(dst, p)
}

// Stages after a ByteLevel see the characters that represent bytes, which spellingStage writes.
// readingStage converts them back to bytes for the model.
type (
	spellingStage struct{}
	readingStage  struct{}
)

func (spellingStage) split(dst []piece, p piece, _ *scratch) []piece {
	return append(dst, piece{spellBytes(p.text), p.first})
}

func (readingStage) split(dst []piece, p piece, _ *scratch) []piece {
	raw, _ := readBytes(nil, p.text)
	return append(dst, piece{string(raw), p.first})
}

// A metaspace makes spaces visible, like SentencePiece, and splits before each space. It is also a
// decoder, which reverses that.
type metaspace struct {
	mark string // the character for a space
	// scheme says which pieces get a mark at their beginning: "always", "never", or "first" for the
	// piece that begins the text.
	scheme string
	cut    preTokenizer
}

func newMetaspace(c *component) (*metaspace, error) {
	opt := struct {
		Replacement    string
		AddPrefixSpace *bool  `json:"add_prefix_space"`
		Scheme         string `json:"prepend_scheme"`
		Split          *bool
	}{Scheme: "always"}
	if err := c.options(&opt); err != nil {
		return nil, err
	}
	r, n := utf8.DecodeRuneInString(opt.Replacement)
	if n == 0 || n != len(opt.Replacement) {
		return nil, c.fail(fmt.Errorf("replacement %q is not one character", opt.Replacement))
	}
	if opt.AddPrefixSpace != nil && !*opt.AddPrefixSpace {
		opt.Scheme = "never" // the form of files before prepend_scheme
	}
	switch opt.Scheme {
	case "always", "never", "first":
	default:
		return nil, c.fail(fmt.Errorf("prepend_scheme %q is not supported", opt.Scheme))
	}
	m := &metaspace{mark: opt.Replacement, scheme: opt.Scheme}
	if opt.Split == nil || *opt.Split {
		m.cut = splitter{pattern: pattern.Char(func(c rune) bool { return c == r }), behavior: mergedWithNext}
	}
	return m, nil
}

func (m *metaspace) split(dst []piece, p piece, sc *scratch) []piece {
	p.text = strings.ReplaceAll(p.text, " ", m.mark)
	if !strings.HasPrefix(p.text, m.mark) && (m.scheme == "always" || m.scheme == "first" && p.first) {
		p.text = m.mark + p.text
	}
	if m.cut == nil {
		return append(dst, p)
	}
	return m.cut.split(dst, p, sc)
}

// decode is Metaspace as a decoder. The marks in the first token do not belong to the text, unless
// the scheme is never.
func (m *metaspace) decode(token string, first bool) string {
	if first && m.scheme != "never" {
		return strings.ReplaceAll(token, m.mark, "")
	}
	return strings.ReplaceAll(token, m.mark, " ")
}
