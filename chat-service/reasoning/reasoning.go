// Package reasoning parts what a model thinks from what it answers, while both are written: <think>…</think>, at the beginning of
// an answer.
//
// Tags and the white space around what is thought belong to neither, up to a length behind it. Tags further on are text: a model that writes about them
// has not begun to think again.
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

// maxSpace bounds the white space that is held back, in bytes, because a model can write it without end: an answer that has more in
// front is text, and behind what is thought only so much is left out.
const maxSpace = 256

// A Splitter reads one answer. It is not safe for concurrent use.
type Splitter struct {
	where where
	held  string // may be part of a tag, or white space that belongs to neither
	any   bool   // something has been thought
}

type where uint8

const (
	before where = iota // of the answer: only white space has come
	inside
	behind // only white space has come since
	over
)

// New returns a Splitter. opened says that the prompt has ended with Open.
func New(opened bool) *Splitter {
	s := &Splitter{}
	if opened {
		s.where = inside
	}
	return s
}

// Thinking reports whether the answer has not begun.
func (s *Splitter) Thinking() bool { return s.where == inside }

// Next takes the next piece, and returns what of it and before is certain.
func (s *Splitter) Next(piece string) (thought, text string) { return s.next(piece, false) }

// End returns the rest, once nothing follows.
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

// take returns what is held if it is text.
func (s *Splitter) take(certain bool) string {
	if !certain {
		return ""
	}
	text := s.held
	s.held = ""
	return text
}

// enter reports whether the answer begins with thoughts. If it is certain that it does not, the splitter is over.
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

// think returns what is thought for certain.
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
