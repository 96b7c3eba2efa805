// Package grammar builds a pushdown automaton over bytes, and follows texts through it.
//
// A grammar is a graph of Symbols. An Automaton makes the states of one text on demand: a State is
// the set of positions that the text so far may be at. Two kinds of symbol read more than one byte
// without a stack: a run follows a DFA, such as the characters of a string, and a repeat counts.
//
// Everything is bounded: the stacks of a state by maxStacks, and the caches by Automaton.Large.
package grammar

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Symbol is a piece of a grammar. It is immutable once it is measured, and may contain itself.
type Symbol struct {
	kind  kind
	class *Class    // of one byte
	parts []*Symbol // of a sequence or choice; one for a repeat
	dfa   *DFA      // of a run
	text  string    // of a literal, not empty

	min, max int // of a repeat, or of a run of a counting DFA; max < 0 means no maximum

	need     int // bytes of the shortest text
	measured bool
}

type kind uint8

const (
	oneByte kind = iota
	inOrder      // all parts, in order
	oneOf        // one of the parts
	repeat       // one part, min to max times
	run          // a text of a DFA
	literal      // one text
)

// A Class is a set of bytes.
type Class [4]uint64

// Add adds the bytes from one to another.
func (c *Class) Add(from, to byte) {
	for b := int(from); b <= int(to); b++ {
		c[b>>6] |= 1 << (b & 63)
	}
}

// Has reports whether the class has b.
func (c *Class) Has(b byte) bool { return c[b>>6]&(1<<(b&63)) != 0 }

func (c *Class) meets(other *Class) bool {
	return c[0]&other[0]|c[1]&other[1]|c[2]&other[2]|c[3]&other[3] != 0
}

func (c *Class) join(other *Class) {
	for i := range c {
		c[i] |= other[i]
	}
}

// OneByte matches any byte of the ranges, which are pairs.
func OneByte(ranges ...byte) *Symbol {
	c := new(Class)
	for i := 0; i < len(ranges); i += 2 {
		c.Add(ranges[i], ranges[i+1])
	}
	return &Symbol{kind: oneByte, class: c, need: 1, measured: true}
}

// Sequence matches all parts, in order.
func Sequence(parts ...*Symbol) *Symbol { return &Symbol{kind: inOrder, parts: parts} }

// Choice matches one of the parts; without parts it matches nothing.
func Choice(parts ...*Symbol) *Symbol { return &Symbol{kind: oneOf, parts: parts} }

// Or adds alternatives to a choice that is not yet measured. A choice may contain itself.
func (s *Symbol) Or(parts ...*Symbol) { s.parts = append(s.parts, parts...) }

// Repeat matches min to max repetitions of a symbol, which must not match the empty text; max < 0
// means no maximum.
func Repeat(min, max int, of *Symbol) *Symbol {
	return &Symbol{kind: repeat, parts: []*Symbol{of}, min: min, max: max}
}

// Run matches the texts of d. min and max are the numbers of characters if d counts, and 0 and -1
// otherwise.
func Run(d *DFA, min, max int) *Symbol {
	return &Symbol{kind: run, dfa: d, min: min, max: max}
}

// Byte matches b.
func Byte(b byte) *Symbol { return single[b] }

// Optional matches a symbol or the empty text.
func Optional(of *Symbol) *Symbol { return Choice(Sequence(), of) }

// Literal matches text. However long the text is, a position in it is one frame.
func Literal(text string) *Symbol {
	if text == "" {
		return Sequence()
	}
	return &Symbol{kind: literal, text: text}
}

// OneText matches one of several texts, which are sorted and distinct. Common prefixes of whole
// characters are merged, so that few bytes can come next, however many texts there are.
func OneText(texts []string) *Symbol {
	one := Choice()
	if len(texts) > 0 && texts[0] == "" {
		one.parts, texts = append(one.parts, Sequence()), texts[1:]
	}
	for len(texts) > 0 {
		first, n := texts[0], len(texts)
		_, common := utf8.DecodeRuneInString(first)
		if i := slices.IndexFunc(texts, func(t string) bool { return !strings.HasPrefix(t, first[:common]) }); i > 0 {
			n = i
		}
		last := texts[n-1]
		for common < len(first) {
			_, size := utf8.DecodeRuneInString(first[common:])
			if !strings.HasPrefix(last, first[:common+size]) {
				break
			}
			common += size
		}
		rest := make([]string, n)
		for i, t := range texts[:n] {
			rest[i] = t[common:]
		}
		if texts = texts[n:]; n == 1 {
			one.parts = append(one.parts, Literal(first))
			continue
		}
		one.parts = append(one.parts, Sequence(Literal(first[:common]), OneText(rest)))
	}
	return one
}

// single are the symbols of one byte.
var single = func() (all [256]*Symbol) {
	for b := range all {
		all[b] = OneByte(byte(b), byte(b))
	}
	return all
}()

// Endless is longer than any text.
const Endless = math.MaxInt32

// Need returns the number of bytes of the shortest text of a measured symbol, or Endless if the
// symbol matches nothing.
func (s *Symbol) Need() int { return s.need }

// Measure sets Need of s and of its unmeasured parts: the least solution of their equations. It
// returns s.
func Measure(s *Symbol) *Symbol {
	all := unmeasured(s)
	for _, s := range all {
		s.need = Endless
	}
	for changed := true; changed; {
		changed = false
		for _, s := range all {
			if n := s.shortest(); n < s.need {
				s.need, changed = n, true
			}
		}
	}
	for _, s := range all {
		s.measured = true
		if s.kind == oneOf { // see maxStacks
			slices.SortStableFunc(s.parts, func(a, b *Symbol) int { return cmp.Compare(a.need, b.need) })
		}
	}
	return s
}

func (s *Symbol) shortest() int {
	n := 0
	switch s.kind {
	case oneByte:
		return 1
	case inOrder:
		for _, p := range s.parts {
			n += p.need
		}
	case oneOf:
		n = Endless
		for _, p := range s.parts {
			n = min(n, p.need)
		}
	case repeat:
		n = product(s.min, s.parts[0].need)
	case run:
		n = s.dfa.Need(Start, s.min)
	case literal:
		n = len(s.text)
	}
	return min(n, Endless)
}

func product(times, need int) int {
	if times == 0 {
		return 0
	}
	return times * min(need, Endless/times)
}

// unmeasured returns s and all unmeasured symbols that it contains; parts come before the symbols
// that contain them.
func unmeasured(s *Symbol) []*Symbol {
	var all []*Symbol
	seen := map[*Symbol]bool{}
	var visit func(s *Symbol)
	visit = func(s *Symbol) {
		if s.measured || seen[s] {
			return
		}
		seen[s] = true
		for _, p := range s.parts {
			visit(p)
		}
		all = append(all, s)
	}
	visit(s)
	return all
}
