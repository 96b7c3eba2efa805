package guide

import (
	"cmp"
	"math"
	"slices"
)

// A symbol is a piece of a grammar. It is immutable once it is measured, and may contain itself.
type symbol struct {
	kind  kind
	class *class    // of one byte
	parts []*symbol // of a sequence or choice; one for a repeat

	min, max int // of a repeat; max < 0 means no maximum

	need     int // bytes of the shortest text
	measured bool
}

type kind uint8

const (
	oneByte kind = iota
	inOrder      // all parts, in order
	oneOf        // one of the parts
	repeat       // one part, min to max times
)

// A class is a set of bytes.
type class [4]uint64

func (c *class) add(from, to byte) {
	for b := int(from); b <= int(to); b++ {
		c[b>>6] |= 1 << (b & 63)
	}
}

func (c *class) has(b byte) bool { return c[b>>6]&(1<<(b&63)) != 0 }

func (c *class) meets(other *class) bool {
	return c[0]&other[0]|c[1]&other[1]|c[2]&other[2]|c[3]&other[3] != 0
}

// oneOfBytes matches any byte of the ranges, which are pairs.
func oneOfBytes(ranges ...byte) *symbol {
	c := new(class)
	for i := 0; i < len(ranges); i += 2 {
		c.add(ranges[i], ranges[i+1])
	}
	return &symbol{kind: oneByte, class: c, need: 1, measured: true}
}

func sequence(parts ...*symbol) *symbol { return &symbol{kind: inOrder, parts: parts} }

func choice(parts ...*symbol) *symbol { return &symbol{kind: oneOf, parts: parts} }

// times matches min to max repetitions of a symbol, which must not be empty; max < 0 means no
// maximum.
func times(min, max int, of *symbol) *symbol {
	return &symbol{kind: repeat, parts: []*symbol{of}, min: min, max: max}
}

func optional(of *symbol) *symbol { return choice(sequence(), of) }

func literal(text string) *symbol {
	s := sequence()
	for i := range len(text) {
		s.parts = append(s.parts, single[text[i]])
	}
	return s
}

// oneText matches one of several texts, which are sorted and distinct. Common prefixes are merged,
// so that few bytes can come next, however many texts there are.
func oneText(texts []string) *symbol {
	one := choice()
	if len(texts) > 0 && texts[0] == "" {
		one.parts, texts = append(one.parts, sequence()), texts[1:]
	}
	for len(texts) > 0 {
		first, n := texts[0], len(texts)
		if i := slices.IndexFunc(texts, func(t string) bool { return t[0] != first[0] }); i > 0 {
			n = i
		}
		last, common := texts[n-1], 1
		for common < min(len(first), len(last)) && first[common] == last[common] {
			common++
		}
		rest := make([]string, n)
		for i, t := range texts[:n] {
			rest[i] = t[common:]
		}
		if texts = texts[n:]; n == 1 {
			one.parts = append(one.parts, literal(first))
			continue
		}
		one.parts = append(one.parts, sequence(literal(first[:common]), oneText(rest)))
	}
	return one
}

// single are the symbols of one byte.
var single = func() (all [256]*symbol) {
	for b := range all {
		all[b] = oneOfBytes(byte(b), byte(b))
	}
	return all
}()

// endless is longer than any answer.
const endless = math.MaxInt32

// measure sets need of s and of its unmeasured parts: the least solution of their equations. It
// returns s.
func measure(s *symbol) *symbol {
	all := unmeasured(s)
	for _, s := range all {
		s.need = endless
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
			slices.SortStableFunc(s.parts, func(a, b *symbol) int { return cmp.Compare(a.need, b.need) })
		}
	}
	return s
}

func (s *symbol) shortest() int {
	n := 0
	switch s.kind {
	case oneByte:
		return 1
	case inOrder:
		for _, p := range s.parts {
			n += p.need
		}
	case oneOf:
		n = endless
		for _, p := range s.parts {
			n = min(n, p.need)
		}
	case repeat:
		n = product(s.min, s.parts[0].need)
	}
	return min(n, endless)
}

func product(times, need int) int {
	if times == 0 {
		return 0
	}
	return times * min(need, endless/times)
}

// unmeasured returns s and all unmeasured symbols that it contains; parts come before the symbols
// that contain them.
func unmeasured(s *symbol) []*symbol {
	var all []*symbol
	seen := map[*symbol]bool{}
	var visit func(s *symbol)
	visit = func(s *symbol) {
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
