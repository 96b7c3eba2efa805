package reasoning

import (
	"strings"
)

// Text takes the next piece of the text of an answer, which is the answer without its tool calls. It
// returns the reasoning in the piece, and the text without markers.
func (s *Splitter) Text(piece string) (thought, text string) { return s.text(piece, false) }

// EndText returns the rest at the end of the text, or before a call, which ends reasoning.
func (s *Splitter) EndText() (thought, text string) {
	thought, text = s.text("", true)
	s.again = false
	return thought, text
}

func (s *Splitter) text(piece string, last bool) (thought, text string) {
	if len(s.markers) == 0 && !s.trims {
		return "", piece
	}
	s.rest += piece
	for {
		if s.trims {
			s.rest = strings.TrimLeft(s.rest, space)
			s.trims = s.rest == ""
		}
		if s.again {
			more, closed := s.reason(last)
			if thought += more; !closed {
				return thought, text
			}
			continue
		}
		if s.stray && !s.late(last) {
			return thought, text
		}
		at, which := FindMarker(s.rest, last, s.markers...)
		if which >= s.ends {
			text += s.rest[:at]
			s.drop(at, s.markers[which])
			continue
		}
		more, ended := s.unwrap(at, which, last)
		if text += more; ended {
			return thought, text
		}
	}
}

// reason takes reasoning that began within the text, which is a paragraph of its own.
func (s *Splitter) reason(last bool) (thought string, closed bool) {
	at, which := FindMarker(s.rest, last, s.form.Close)
	if thought = s.rest[:at]; thought != "" && s.parted {
		thought, s.parted = "\n\n"+thought, false
	}
	if s.rest = s.rest[at:]; which < 0 {
		return thought, false
	}
	s.rest, s.again, s.trims = s.rest[len(s.form.Close):], false, true
	return thought, true
}

// late drops the white space between a call within the reasoning and a closing tag. It returns false
// if it needs more text.
func (s *Splitter) late(last bool) bool {
	trimmed := strings.TrimLeft(s.rest, space)
	found, unsure := begins(trimmed, last || len(s.rest)-len(trimmed) > maxSpace, []string{s.form.Close})
	if found != "" {
		s.rest = trimmed
	}
	s.stray = unsure
	return !unsure
}

// drop drops the marker at a place of the rest, and what precedes it.
func (s *Splitter) drop(at int, m string) {
	s.rest = s.rest[at+len(m):]
	switch {
	case m == s.form.Open:
		s.again, s.trims, s.parted, s.any = true, true, s.any, true
	case m == s.form.Close && !s.opts.Special: // at most one is stray
		s.markers, s.trims = s.markers[:s.ends], true
	case m == s.form.Close:
		s.trims = true
	}
}

// unwrap takes the text up to the marker at a place of the rest, which belongs to the text unless the
// answer ends there, or up to the end of the rest if which is -1. ended means that more text is
// needed.
func (s *Splitter) unwrap(at, which int, last bool) (text string, ended bool) {
	rest := s.rest
	if which < 0 && (last || s.ends == 0) {
		s.rest = rest[at:]
		return rest[:at], true
	}
	end := at
	if which >= 0 {
		end += len(s.markers[which])
	}
	kept := len(strings.TrimRight(rest[:at], space))
	switch open := which < 0 || strings.TrimLeft(rest[end:], space) == ""; {
	case open && last:
		s.rest = ""
		return rest[:kept], true
	case open && at-kept <= maxSpace && len(rest)-end <= maxSpace:
		s.rest = rest[kept:]
		return rest[:kept], true
	default: // text follows, or endless white space
		s.rest = rest[end:]
		return rest[:end], which < 0
	}
}
