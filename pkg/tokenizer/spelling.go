package tokenizer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A spelling is the compiled decoder section: the text of every token, as far as that does not
// depend on other tokens, and the remaining steps for a stream of tokens. It is immutable.
//
// The file describes a decoder as steps that each convert a list of tokens to another list. In all
// families, the list passes through the same phases, which are the phases of a spelling:
//
//	each token by itself:      Replace, Strip, Metaspace, WordPiece   (early)
//	runs of byte tokens:       ByteFallback                           (fallback)
//	each token by itself:      Replace, Strip, Metaspace, WordPiece   (late)
//	all tokens, become one:    Fuse, or ByteLevel                     (bytes)
//	that text:                 Strip, Metaspace, Replace of a String  (text)
//
// Steps in another order are an error.
type spelling struct {
	tokens []spelledToken // by id

	early, late []tokenStep
	fallback    bool
	bytes       bool              // tokens spell bytes; a character may continue in the next token
	gap         string            // text between tokens: a space if the file has no decoder
	text        []func() textStep // constructors: each stream has its own steps

	// first has the tokens as the file writes them. It is nil unless tokens decode differently at
	// the beginning of a text.
	first []string
}

// A spelledToken is a token after the steps that depend only on the token.
type spelledToken struct {
	text  string
	value byte // of a byte token
	flags tokenFlags
}

type tokenFlags uint8

const (
	known    tokenFlags = 1 << iota // the id has a token
	special                         // may be skipped
	byteOnly                        // a byte token: ignore text
	whole                           // text begins and ends with whole characters
)

func (t *spelledToken) is(f tokenFlags) bool { return t.flags&f != 0 }

// A tokenStep rewrites one token; first reports that it is the first token.
type tokenStep func(token string, first bool) string

func apply(steps []tokenStep, token string, first bool) string {
	for _, step := range steps {
		token = step(token, first)
	}
	return token
}

func newSpelling(c *component, tokens map[uint32]string, size int) (spelling, error) {
	var s spelling
	if c == nil {
		s.gap = " "
	}
	steps, err := c.steps("decoders")
	if err != nil {
		return s, err
	}
	var firstDiffers, fused bool
	for i := range steps {
		step := &steps[i]
		switch step.Type {
		case "ByteFallback":
			if s.fallback || fused {
				return s, step.fail(errors.New("follows a step that leaves no byte tokens"))
			}
			s.fallback = true
		case "ByteLevel":
			if s.fallback || fused {
				return s, step.fail(errors.New("follows a step that leaves no byte-level tokens"))
			}
			s.bytes, fused = true, true
		case "Fuse":
			fused = true
		default:
			if fused {
				newStep, err := newTextStep(step)
				if err != nil {
					return s, err
				}
				s.text = append(s.text, newStep)
				continue
			}
			one, err := newTokenStep(step)
			if err != nil {
				return s, err
			}
			firstDiffers = firstDiffers || step.Type == "Metaspace" || step.Type == "WordPiece"
			if s.fallback {
				s.late = append(s.late, one)
			} else {
				s.early = append(s.early, one)
			}
		}
	}
	s.tokens = make([]spelledToken, size)
	if firstDiffers {
		s.first = make([]string, size)
	}
	began := time.Now()
	for id, content := range tokens {
		s.tokens[id] = s.spell(content, false)
		if time.Since(began) > maxTime {
			return s, fmt.Errorf("%w: the decoder takes too long for the vocabulary", ErrLimit)
		}
		if firstDiffers {
			s.first[id] = content
		}
	}
	return s, nil
}

func newTokenStep(c *component) (tokenStep, error) {
	switch c.Type {
	case "Replace":
		re, err := readReplacement(c)
		if err != nil {
			return nil, err
		}
		return func(token string, _ bool) string { return re.replace(token) }, nil
	case "Strip":
		opt, err := readStrip(c)
		if err != nil {
			return nil, err
		}
		return func(token string, _ bool) string { return opt.strip(token) }, nil
	case "Metaspace":
		m, err := newMetaspace(c)
		if err != nil {
			return nil, err
		}
		return m.decode, nil
	case "WordPiece":
		return newWordPieceStep(c)
	}
	return nil, c.unsupported()
}

// spell applies the steps that depend only on the token.
func (s *spelling) spell(content string, first bool) spelledToken {
	t := spelledToken{text: apply(s.early, content, first), flags: known}
	switch {
	case s.bytes:
		raw, ok := readBytes(nil, t.text)
		if ok {
			t.text = string(raw) // otherwise the token is plain text, like most added tokens
		}
		if utf8.ValidString(t.text) {
			t.flags |= whole
		}
	case s.fallback:
		if b, ok := byteToken(t.text); ok {
			t.value = b
			t.flags |= byteOnly
			break
		}
		t.text = apply(s.late, t.text, first)
		t.flags |= whole
	default:
		t.flags |= whole
	}
	return t
}

// byteToken returns the byte of a token such as <0x0A>.
func byteToken(token string) (byte, bool) {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(strings.TrimPrefix(token[3:5], "+"), 16, 8) // Rust's from_str_radix accepts a plus
	return byte(b), err == nil
}

// markSpecial marks the special tokens, and those in listed with an equal text: a list may have a token
// twice.
func (s *spelling) markSpecial(added []addedToken, listed []scoredToken) {
	texts := make(map[string]bool, len(added))
	for _, token := range added {
		if token.Special && token.Content != "" {
			texts[token.Content] = true
			s.tokens[*token.ID].flags |= special
		}
	}
	for id, token := range listed {
		if texts[token.text] {
			s.tokens[id].flags |= special
		}
	}
}

// stripFile has the options of the decoder Strip, which removes up to Start and Stop repetitions of
// Content from the two ends of a text.
type stripFile struct {
	Content     string
	Start, Stop int
}

func readStrip(c *component) (*stripFile, error) {
	opt := new(stripFile)
	if err := c.options(opt); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(opt.Content) != 1 {
		return nil, c.fail(fmt.Errorf("content %q is not one character", opt.Content))
	}
	if opt.Start < 0 || opt.Stop < 0 {
		return nil, c.fail(errors.New("start or stop is negative"))
	}
	return opt, nil
}

func (opt *stripFile) strip(s string) string {
	for i := 0; i < opt.Start && strings.HasPrefix(s, opt.Content); i++ {
		s = s[len(opt.Content):]
	}
	for i := 0; i < opt.Stop && strings.HasSuffix(s, opt.Content); i++ {
		s = s[:len(s)-len(opt.Content)]
	}
	return s
}
