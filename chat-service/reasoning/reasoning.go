// Package reasoning separates a model's reasoning from its answer while both are written. Reasoning
// is <think>…</think> at the beginning of an answer.
//
// The tags, and the white space around the reasoning, belong to neither part; at its end at most
// maxSpace bytes are dropped. Later tags are text, because a model that writes about the tags does
// not reason again.
package reasoning

import (
	"strings"

	"github.com/whence-dev/whence/chat-service/marker"
)

// The tags of DeepSeek, Qwen and others.
const (
	Open  = "<think>"
	Close = "</think>"
)

const space = " \t\r\n"

// maxSpace bounds the white space that is held back, in bytes, because a model can write white
// space without end. An answer that begins with more is text, and at most this much is dropped at
// the end of the reasoning.
const maxSpace = 256

// A Splitter processes one answer. It is not safe for concurrent use.
type Splitter struct {
	where where
	held  string // a possible part of a tag, or white space that may belong to neither part
	any   bool   // there was some reasoning
}

type where uint8

const (
	before where = iota // before the answer: only white space so far
	inside
	behind // after the closing tag: only white space since
	over
)

// New returns a Splitter. opened means that the prompt ends with Open.
func New(opened bool) *Splitter {
	s := &Splitter{}
	if opened {
		s.where = inside
	}
	return s
}

// Thinking reports whether the answer is inside its reasoning.
func (s *Splitter) Thinking() bool { return s.where == inside }

// Next takes the next piece of the answer, and returns the text that is final.
func (s *Splitter) Next(piece string) (thought, text string) { return s.next(piece, false) }

// End returns the rest at the end of the answer.
func (s *Splitter) End() (thought, text string) { return s.next("", true) }

func (s *Splitter) next(piece string, last bool) (thought, text string) {
	if s.where == over {
		return "", piece
	}
	s.held += piece
	if s.where == before && !s.enter(last) {
		return "", s.take(s.where == over)
	}
	if s.where == inside {
		thought = s.think(last)
	}
	if s.where == behind {
		if s.held = strings.TrimLeft(s.held, space); s.held != "" {
			s.where = over
		}
	}
	return thought, s.take(s.where == over)
}

// take returns the held text if it is final.
func (s *Splitter) take(certain bool) string {
	if !certain {
		return ""
	}
	text := s.held
	s.held = ""
	return text
}

// enter reports whether the answer begins with reasoning. If it certainly does not, the splitter is
// over.
func (s *Splitter) enter(last bool) bool {
	trimmed := strings.TrimLeft(s.held, space)
	far := len(s.held)-len(trimmed) > maxSpace
	if rest, ok := strings.CutPrefix(trimmed, Open); ok && !far {
		s.held, s.where = rest, inside
		return true
	}
	if last || far || !strings.HasPrefix(Open, trimmed) {
		s.where = over
	}
	return false
}

// think returns the final part of the reasoning.
func (s *Splitter) think(last bool) string {
	if !s.any {
		s.held = strings.TrimLeft(s.held, space)
	}
	at, which := marker.Find(s.held, last, Close)
	thought := s.held[:at]
	thought = thought[:max(len(strings.TrimRight(thought, space)), len(thought)-maxSpace)]
	switch {
	case which >= 0:
		s.held, s.where = s.held[at+len(Close):], behind
	case last:
		s.held = ""
	default:
		s.held = s.held[len(thought):]
	}
	s.any = s.any || thought != ""
	return thought
}
