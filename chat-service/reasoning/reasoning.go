// Package reasoning separates a model's reasoning from its answer while both are written. The
// reasoning stands between two tags at the beginning of an answer; a Form has the tags of a model.
//
// The tags, and the white space around the reasoning, belong to neither part; at its end at most
// maxSpace bytes are dropped. Later tags are text, because a model that writes about the tags does
// not reason again. Tags that are special tokens of the model are never text.
package reasoning

import (
	"slices"
	"strings"
)

const space = " \t\r\n"

// maxSpace bounds the white space that is held back, in bytes, because a model can write white
// space without end. An answer that begins with more is text, and at most this much is dropped at
// the end of the reasoning.
const maxSpace = 256

// A Splitter processes one answer. It is not safe for concurrent use.
//
//	model ─> Next ─> answer, with its tool calls ─> parser of calls ─> Text ─> text
//	           └─> think                                                └─> reasoning
type Splitter struct {
	form  *Form
	opts  Options
	think func(thought string, last bool) (called bool)

	// Next.
	where where
	held  string // a possible part of a tag, or white space that may belong to neither part
	any   bool   // there was some reasoning

	// Text.
	markers []string // texts that are not text of the answer
	ends    int      // the first markers are dropped only at the end of the answer
	stray   bool     // Close may follow the call that has ended the reasoning
	rest    string   // a possible part of a marker, or white space before it
	again   bool     // the answer is inside its reasoning again
	parted  bool     // the next reasoning is a new paragraph
	trims   bool     // white space before the next text is dropped
}

type where uint8

const (
	before where = iota // before the answer: only white space so far
	inside
	behind // after the closing tag: only white space since
	over
)

// Options describe an answer.
type Options struct {
	// Opened means that the prompt ends within the reasoning.
	Opened bool
	// Special means that the tags are special tokens, which are no text wherever they stand.
	Special bool
	// Hidden lists the special tokens of the tags that no parser of calls needs.
	Hidden []string
}

// New returns a Splitter for answers in form f. think takes the reasoning, piece by piece, and
// reports whether a tool call has begun in it, which ends the reasoning: the rest of the answer comes
// from Next. last means that no reasoning follows.
func New(f *Form, opts Options, think func(thought string, last bool) (called bool)) *Splitter {
	s := &Splitter{form: f, opts: opts, think: think}
	if opts.Opened {
		s.where = inside
	}
	if opts.Special {
		s.markers = slices.Concat([]string{f.Open, f.Close}, f.Before, f.After, opts.Hidden)
	}
	return s
}

// Thinking reports whether the answer is inside its reasoning.
func (s *Splitter) Thinking() bool { return s.where == inside || s.again }

// Done reports whether all the rest of the answer is text.
func (s *Splitter) Done() bool {
	return s.where == over && len(s.markers) == 0 && s.rest == "" && !s.trims
}

// Next takes the next piece of the answer, and returns the part of it that follows the reasoning.
func (s *Splitter) Next(piece string) string { return s.next(piece, false) }

// End returns the rest at the end of the answer.
func (s *Splitter) End() string { return s.next("", true) }

func (s *Splitter) next(piece string, last bool) string {
	if s.where == over {
		return piece
	}
	s.held += piece
	for more := true; more; {
		switch s.where {
		case before:
			more = s.enter(last)
		case inside:
			more = s.reflect(last)
		case behind:
			more = s.leave(last)
		case over:
			rest := s.held
			s.held = ""
			return rest
		}
	}
	return ""
}

// enter looks for the opening tag. A closing tag alone ends reasoning that was left out.
func (s *Splitter) enter(last bool) bool {
	trimmed := strings.TrimLeft(s.held, space)
	if len(s.held)-len(trimmed) > maxSpace || s.form.guess && trimmed != s.held {
		s.where = over
		return true
	}
	found, unsure := begins(trimmed, last, append([]string{s.form.Open, s.form.Close}, s.form.Before...))
	switch found {
	case "":
		if unsure {
			return false
		}
		s.where = over
		return true
	case s.form.Open:
		s.where = inside
	case s.form.Close:
		s.where = behind
	default:
		s.wrap()
	}
	s.held = trimmed[len(found):]
	return true
}

// reflect takes the reasoning up to the closing tag, or up to a call.
func (s *Splitter) reflect(last bool) bool {
	if !s.any {
		s.held = strings.TrimLeft(s.held, space)
		found, unsure := begins(s.held, last, []string{s.form.Open}) // some models repeat it after the prompt
		if unsure || found != "" {
			s.held = s.held[len(found):]
			return !unsure
		}
	}
	at, which := FindMarker(s.held, last, s.form.Close)
	thought := s.held[:at]
	thought = thought[:max(len(strings.TrimRight(thought, space)), len(thought)-maxSpace)]
	s.any = s.any || thought != ""
	closed := which >= 0
	s.held = s.held[len(thought):]
	switch called := s.think(thought, closed || last); {
	case called:
		s.where, s.stray = over, true
		if !s.opts.Special {
			s.markers = append(s.markers, s.form.Close)
		}
		return true
	case closed:
		s.held, s.where = s.held[at-len(thought)+len(s.form.Close):], behind
		if len(s.form.Before) == 0 {
			s.wrap()
		}
		return true
	case last:
		s.held = ""
	}
	return false
}

// leave drops what stands between the reasoning and the answer.
func (s *Splitter) leave(last bool) bool {
	s.held = strings.TrimLeft(s.held, space)
	found, unsure := begins(s.held, last, s.form.Before)
	switch {
	case found != "":
		s.held = s.held[len(found):]
		s.wrap()
	case unsure || s.held == "":
		return false
	default:
		s.where = over
	}
	return true
}

// wrap notes that the answer has begun as one that a text of After ends.
func (s *Splitter) wrap() {
	if !s.opts.Special && s.ends == 0 {
		s.markers, s.ends = slices.Clip(s.form.After), len(s.form.After)
	}
}

// begins returns the text that s begins with; "" for none. unsure means that more of s is needed.
func begins(s string, last bool, texts []string) (found string, unsure bool) {
	for _, text := range texts {
		if strings.HasPrefix(s, text) {
			return text, false
		}
		unsure = unsure || !last && strings.HasPrefix(text, s)
	}
	return "", unsure
}
