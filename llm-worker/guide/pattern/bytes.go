package pattern

import (
	"fmt"
	"unicode/utf8"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// A writer makes the states between two bytes.
type writer struct {
	*machine
	next   [][256]uint16
	inside map[string]uint16 // the states within a character, by what may follow
}

// escapes are the characters that JSON writes with a backslash; all other control characters would
// need \u, which guides do not write.
var escapes = map[byte]rune{'"': '"', '\\': '\\', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// dfa returns the DFA of the places.
func (m *machine) dfa() (*grammar.DFA, error) {
	w := &writer{machine: m, next: make([][256]uint16, 1+len(m.places)), inside: map[string]uint16{}}
	for n, p := range m.places {
		if err := w.place(n, p); err != nil {
			return nil, err
		}
	}
	accept := make([]bool, len(w.next))
	for n, p := range m.places {
		accept[1+n] = p.accept
	}
	d := grammar.NewDFA(w.next, accept)
	if !m.bare {
		d.After.Add('"', '"')
	}
	return d, nil
}

// after returns the state after a character at a place.
func (w *writer) after(p *place, r rune) uint16 {
	return state(p.next[w.span(r).class])
}

// state returns the state of a place's number.
func state(number int) uint16 {
	if number < 0 {
		return grammar.Dead
	}
	return uint16(grammar.Start + number) //nolint:gosec // at most maxPlaces
}

// place sets the transitions of a place's state.
func (w *writer) place(number int, p *place) error {
	var row [256]uint16
	for b := byte(' '); b <= '~'; b++ {
		row[b] = w.after(p, rune(b))
	}
	if w.bare {
		for _, b := range []byte("\t\n\r") {
			row[b] = w.after(p, rune(b))
		}
	} else if err := w.escape(&row, p); err != nil {
		return err
	}
	if err := w.long(&row, w.sequences(p)); err != nil {
		return err
	}
	w.next[state(number)] = row
	return nil
}

// escape sets the transitions of the characters that JSON writes with a backslash.
func (w *writer) escape(row *[256]uint16, p *place) error {
	var escaped [256]uint16
	some := false
	for b, r := range escapes {
		escaped[b] = w.after(p, r)
		some = some || escaped[b] != grammar.Dead
	}
	row['"'], row['\\'] = grammar.Dead, grammar.Dead
	if !some {
		return nil
	}
	to, err := w.within(fmt.Sprint("escape", escaped), func() (row [256]uint16, err error) { return escaped, nil })
	row['\\'] = to
	return err
}

// within returns the state with a name, which make describes if it is new.
func (w *writer) within(name string, make func() (row [256]uint16, err error)) (uint16, error) {
	if known, ok := w.inside[name]; ok {
		return known, nil
	}
	row, err := make()
	if err != nil {
		return 0, err
	}
	if len(w.next) >= maxStates {
		return 0, errLarge
	}
	to := uint16(len(w.next)) //nolint:gosec // at most maxStates
	w.next, w.inside[name] = append(w.next, row), to
	return to, nil
}

// A sequence is a range of characters whose encodings have the same length, and differ in each byte
// independently.
type sequence struct {
	bytes []byteRange
	to    uint16
}

type byteRange struct{ from, to byte }

// sequences returns the characters of several bytes that may follow at a place.
func (w *writer) sequences(p *place) (all []sequence) {
	from, to, last := rune(0), uint16(grammar.Dead), rune(0)
	flush := func() {
		if to != grammar.Dead {
			all = split(all, from, last, to)
		}
	}
	for _, s := range w.spans {
		if s.from < utf8.RuneSelf || s.from >= 0xd800 && s.from < 0xe000 { // surrogates have no encoding
			continue
		}
		if next := state(p.next[s.class]); next != to || s.from != last+1 {
			flush()
			from, to = s.from, next
		}
		last = s.to
	}
	flush()
	return all
}

// split appends the sequences of a range of characters.
func split(all []sequence, from, to rune, target uint16) []sequence {
	for _, last := range []rune{0x7ff, 0xffff} {
		if from <= last && to > last {
			return split(split(all, from, last, target), last+1, to, target)
		}
	}
	for i := 1; i < utf8.RuneLen(to); i++ {
		rest := rune(1)<<(6*i) - 1 // the characters that differ in the last i bytes
		if from&^rest == to&^rest {
			continue
		}
		if from&rest != 0 {
			return split(split(all, from, from|rest, target), from|rest+1, to, target)
		}
		if to&rest != rest {
			return split(split(all, from, to&^rest-1, target), to&^rest, to, target)
		}
	}
	low, high := []byte(string(from)), []byte(string(to))
	s := sequence{to: target}
	for i := range low {
		s.bytes = append(s.bytes, byteRange{low[i], high[i]})
	}
	return append(all, s)
}

// long sets the transitions of the first bytes of sequences.
func (w *writer) long(row *[256]uint16, all []sequence) error {
	var rests [256][]sequence
	for _, s := range all {
		first := s.bytes[0]
		if err := w.spend(int(first.to-first.from) + 1); err != nil {
			return err
		}
		for b := int(first.from); b <= int(first.to); b++ {
			rests[b] = append(rests[b], sequence{s.bytes[1:], s.to})
		}
	}
	for b, rest := range rests {
		switch {
		case len(rest) == 0:
		case len(rest[0].bytes) == 0:
			row[b] = rest[0].to
		default:
			to, err := w.within(fmt.Sprint(rest), func() (row [256]uint16, err error) {
				err = w.long(&row, rest)
				return row, err
			})
			if err != nil {
				return err
			}
			row[b] = to
		}
	}
	return nil
}
