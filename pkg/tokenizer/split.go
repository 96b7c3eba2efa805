package tokenizer

import (
	"errors"
	"fmt"

	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// A splitter is a pre-tokenizer that splits pieces at the matches of a pattern.
type splitter struct {
	pattern  pattern.Pattern
	behavior behavior
	invert   bool // use the text between the matches as the matches
}

// A behavior determines the treatment of matches. The examples split "the-final--countdown" at "-".
type behavior int

const (
	isolated           behavior = iota // the - final - - countdown
	removed                            // the final countdown
	contiguous                         // the - final -- countdown
	mergedWithPrevious                 // the- final- - countdown
	mergedWithNext                     // the -final - -countdown
)

// UnmarshalText reads a behavior by its name.
func (b *behavior) UnmarshalText(text []byte) error {
	for i, name := range []string{"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"} {
		if name == string(text) {
			*b = behavior(i)
			return nil
		}
	}
	return fmt.Errorf("split behavior %q is not supported", text)
}

func newSplitter(c *component) (s splitter, err error) {
	var opt struct {
		Pattern  *patternFile
		Behavior *behavior
		Invert   bool
	}
	if err := c.options(&opt); err != nil {
		return s, err
	}
	p, err := newPattern(opt.Pattern)
	if err != nil {
		return s, c.fail(err)
	}
	if opt.Behavior == nil {
		return s, c.fail(errors.New("no behavior"))
	}
	return splitter{p, *opt.Behavior, opt.Invert}, nil
}

func (s splitter) split(dst []piece, p piece, sc *scratch) []piece {
	var err error
	if sc.spans, err = s.pattern.Matches(sc.spans[:0], p.text); err != nil {
		sc.fail(err)
		return dst
	}
	if s.behavior == isolated { // invert makes no difference here
		done := 0
		for _, m := range sc.spans {
			if done < m.Start {
				dst = append(dst, piece{p.text[done:m.Start], p.first && done == 0})
			}
			dst = append(dst, piece{p.text[m.Start:m.End], p.first && m.Start == 0})
			done = m.End
		}
		if done < len(p.text) {
			dst = append(dst, piece{p.text[done:], p.first && done == 0})
		}
		return dst
	}
	sc.parts = appendParts(sc.parts[:0], sc.spans, len(p.text))
	start := 0 // of the last appended piece
	before := false
	for i, part := range sc.parts {
		match := part.match != s.invert
		var join bool // join with the last appended piece
		switch s.behavior {
		case removed:
			if match {
				continue
			}
		case contiguous:
			join = i > 0 && match == before
		case mergedWithPrevious:
			join = i > 0 && match && !before
		case mergedWithNext:
			join = i > 0 && !match && before
		case isolated:
		}
		before = match
		if join {
			dst = dst[:len(dst)-1]
		} else {
			start = part.Start
		}
		dst = append(dst, piece{p.text[start:part.End], p.first && start == 0})
	}
	return dst
}

// A part is a match or the text between two matches.
type part struct {
	pattern.Span
	match bool
}

// appendParts appends the parts of a text of n bytes with these matches.
func appendParts(dst []part, matches []pattern.Span, n int) []part {
	done := 0
	for _, m := range matches {
		if done < m.Start {
			dst = append(dst, part{pattern.Span{Start: done, End: m.Start}, false})
		}
		dst = append(dst, part{m, true})
		done = m.End
	}
	if done < n {
		dst = append(dst, part{pattern.Span{Start: done, End: n}, false})
	}
	return dst
}

// patternFile is a pattern in the file. One of its fields is set.
type patternFile struct {
	String *string
	Regex  *string
}

func newPattern(f *patternFile) (pattern.Pattern, error) {
	switch {
	case f == nil:
		return nil, errors.New("no pattern")
	case f.String != nil && *f.String == "" || f.Regex != nil && *f.Regex == "":
		return nil, errors.New("the pattern is empty")
	case f.String != nil && len(*f.String) > maxLiteral:
		return nil, fmt.Errorf("a pattern has %d bytes; at most %d are allowed", len(*f.String), maxLiteral)
	case f.String != nil:
		return pattern.Literal(*f.String), nil
	case f.Regex != nil:
		return pattern.New(*f.Regex)
	}
	return nil, errors.New("the pattern is neither String nor Regex")
}
