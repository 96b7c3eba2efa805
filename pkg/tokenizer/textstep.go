package tokenizer

import (
	"bytes"
	"errors"

	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// A textStep rewrites a text that arrives in parts. Each stream has its own steps.
type textStep interface {
	// push adds more text, and appends the text that is now certain to dst.
	push(dst, more []byte) []byte
	// flush appends the held-back text, and resets the step for a new text.
	flush(dst []byte) []byte
	// idle reports that the step will not change or hold back any more of this text.
	idle() bool
}

func newTextStep(c *component) (func() textStep, error) {
	switch c.Type {
	case "Strip":
		opt, err := readStrip(c)
		if err != nil {
			return nil, err
		}
		return func() textStep { return &stripStep{opt: opt} }, nil
	case "Metaspace":
		// Here the whole text is one token, the first token.
		m, err := newMetaspace(c)
		if err != nil {
			return nil, err
		}
		return func() textStep { return newReplaceStep(m.mark, m.decode(m.mark, true)) }, nil
	case "Replace":
		re, err := readReplacement(c)
		if err != nil {
			return nil, err
		}
		old, ok := re.pattern.(pattern.Literal)
		if !ok {
			return nil, c.fail(errors.New("a Regex behind Fuse or ByteLevel would have to wait for the whole text"))
		}
		return func() textStep { return newReplaceStep(string(old), re.content) }, nil
	}
	return nil, c.unsupported()
}

// A stripStep removes content from the ends of the text.
type stripStep struct {
	opt  *stripFile
	cut  int  // number of cuts at the start so far
	past bool // the start has been processed
	held int  // number of held-back repetitions of the content, which may belong to the end; at most opt.Stop
}

func (s *stripStep) push(dst, more []byte) []byte {
	content := []byte(s.opt.Content)
	if !s.past {
		for s.cut < s.opt.Start && bytes.HasPrefix(more, content) {
			more = more[len(content):]
			s.cut++
		}
		if len(more) == 0 && s.cut < s.opt.Start {
			return dst
		}
		s.past = true
	}
	if s.opt.Stop == 0 {
		return append(dst, more...)
	}
	body := more
	for bytes.HasSuffix(body, content) {
		body = body[:len(body)-len(content)]
	}
	tail := (len(more) - len(body)) / len(content)
	if len(body) > 0 {
		dst = s.release(dst, s.held)
		dst = append(dst, body...)
	}
	s.held += tail
	return s.release(dst, max(0, s.held-s.opt.Stop))
}

func (s *stripStep) release(dst []byte, n int) []byte {
	s.held -= n
	for range n {
		dst = append(dst, s.opt.Content...)
	}
	return dst
}

func (s *stripStep) flush(dst []byte) []byte {
	*s = stripStep{opt: s.opt}
	return dst
}

func (s *stripStep) idle() bool { return s.opt.Stop == 0 && (s.past || s.opt.Start == 0) }

// A replaceStep replaces a string that may arrive in parts. It holds back less than that string.
type replaceStep struct {
	old, new []byte
	held     []byte
}

func newReplaceStep(old, new string) *replaceStep {
	return &replaceStep{old: []byte(old), new: []byte(new)}
}

func (s *replaceStep) push(dst, more []byte) []byte {
	s.held = append(s.held, more...)
	rest := s.held
	for {
		before, after, found := bytes.Cut(rest, s.old)
		if !found {
			break
		}
		dst = append(append(dst, before...), s.new...)
		rest = after
	}
	keep := min(len(s.old)-1, len(rest))
	for !bytes.HasSuffix(rest, s.old[:keep]) {
		keep--
	}
	dst = append(dst, rest[:len(rest)-keep]...)
	s.held = append(s.held[:0], rest[len(rest)-keep:]...)
	return dst
}

func (s *replaceStep) flush(dst []byte) []byte {
	dst = append(dst, s.held...)
	s.held = s.held[:0]
	return dst
}

func (s *replaceStep) idle() bool { return false }
