package grammar

import "slices"

// Parts are the unmeasured symbols of a grammar. Measured ones are shared by all grammars.
type Parts struct {
	DFAs    []*DFA
	symbols []*Symbol
}

// Survey returns the parts of a grammar that is not yet measured.
func Survey(root *Symbol) *Parts {
	p := &Parts{symbols: unmeasured(root)}
	for _, s := range p.symbols {
		if s.kind == run && s.dfa != Characters && !slices.Contains(p.DFAs, s.dfa) {
			p.DFAs = append(p.DFAs, s.dfa)
		}
	}
	return p
}

// Lacks reports whether one of the parts needs a byte that is not in alone, the bytes that a
// vocabulary has a token for: a text could reach a state that allows no token.
func (p *Parts) Lacks(alone *Class) bool {
	for _, s := range p.symbols {
		for i := range len(s.text) {
			if !alone.Has(s.text[i]) {
				return true
			}
		}
		for _, part := range s.parts {
			if part.kind == oneByte && !part.class.meets(alone) {
				return true
			}
		}
	}
	return slices.ContainsFunc(p.DFAs, func(d *DFA) bool { return !d.spelledBy(alone) })
}

// Size returns the approximate number of bytes of the parts in memory.
func (p *Parts) Size() int {
	size := 0
	for _, s := range p.symbols {
		size += 112 + 8*cap(s.parts) + len(s.text)
	}
	for _, d := range p.DFAs {
		size += d.size()
	}
	return size
}
