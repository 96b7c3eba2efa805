// Package pattern compiles regular expressions of JSON Schema (ECMA-262) into DFAs of the strings
// that match them, as the strings stand in JSON: in UTF-8, with escapes where they are necessary.
//
// As in a validator, an expression matches if any part of the string does, unless it has anchors.
// Lookaheads and lookbehinds are part of the DFA: see machine. Backreferences, and lookaround within
// lookaround, cannot be compiled, and are refused by name. So are expressions whose DFA is too large or
// takes too long to make.
package pattern

import (
	"errors"
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// Bounds of one DFA.
const (
	maxExpression = 1 << 12 // bytes
	maxPlaces     = 1 << 12 // states between two characters
	maxStates     = 1 << 13 // all states
	maxWork       = 1 << 23 // steps of the construction, some tens of milliseconds
)

// A Budget bounds the work for all DFAs of a guide. It is not safe for concurrent use.
type Budget struct{ left int }

// NewBudget returns a budget for one guide.
func NewBudget() Budget { return Budget{maxWork} }

var errLarge = errors.New("the expressions are too complex to be enforced")

// Compile returns the DFA of the contents of JSON strings, without their quotes, that meet all
// conditions and have least to most characters; most is negative if there is no upper bound. A
// quote may follow a text of the DFA. The work is taken from budget.
func Compile(conditions []Condition, least, most int, budget *Budget) (*grammar.DFA, error) {
	return (&machine{Budget: budget, least: least, most: most}).compile(conditions...)
}

// CompileText returns the DFA of the texts, outside of JSON, that an expression matches as a whole.
// Nothing may follow a text of the DFA. Its texts have no control characters but white space.
func CompileText(expression string, budget *Budget) (*grammar.DFA, error) {
	return (&machine{Budget: budget, most: -1, bare: true}).compile(Condition{Expression: "^(?:" + expression + ")$"})
}

// Match returns a function that reports whether a text matches an expression. The work is taken from
// budget.
func Match(expression string, budget *Budget) (func(text string) bool, error) {
	m := &machine{Budget: budget, most: -1}
	if err := m.read(Condition{Expression: expression}); err != nil {
		return nil, err
	}
	if err := m.explore(); err != nil {
		return nil, err
	}
	return func(text string) bool {
		at := 0
		for _, r := range text {
			if at = m.places[at].next[m.span(r).class]; at < 0 {
				return false
			}
		}
		return m.places[at].accept
	}, nil
}

func (m *machine) compile(conditions ...Condition) (*grammar.DFA, error) {
	if err := m.read(conditions...); err != nil {
		return nil, err
	}
	if err := m.explore(); err != nil {
		return nil, err
	}
	return m.dfa()
}

// read sets the programs and the classes of characters.
func (m *machine) read(conditions ...Condition) error {
	m.debts, m.owed = [][]debt{nil}, map[string]int32{}
	for _, c := range conditions {
		p, err := c.compile()
		if err != nil {
			return err
		}
		m.progs, m.all = append(m.progs, p), append(m.all, p)
		for _, group := range slices.Sorted(maps.Keys(p.looks)) {
			look := p.looks[group]
			if m.all = append(m.all, look); look.back {
				m.behind = append(m.behind, look)
			}
		}
	}
	for i, p := range m.all {
		p.number = i
	}
	return m.classify()
}

// A program is a compiled expression: a condition, or a lookaround of one.
type program struct {
	*syntax.Prog
	not    bool             // it must not match
	ahead  bool             // it is a lookahead
	back   bool             // it is a lookbehind
	looks  map[int]*program // by the number of the group that stands for a lookaround
	number int              // among the programs of a machine

	reads [][]bool // by instruction and class; nil for instructions that read nothing
	seen  []int    // scratch of closure
	stamp int
}

// A machine is the product of the expressions and of a counter of characters. Its places are the
// states between two characters.
type machine struct {
	*Budget
	progs       []*program // the conditions
	behind      []*program // the lookbehinds
	all         []*program
	least, most int
	bare        bool // the texts do not stand in JSON
	bounded     bool // an expression has a word boundary

	spans   []span // all characters, in order
	classes int
	words   []bool // by class: its characters are those of words

	places  []*place
	numbers map[string]int   // of places, by their keys
	debts   [][]debt         // sets of debts by number; that of number 0 is empty
	owed    map[string]int32 // the numbers of the sets, by their keys
}

// A span is a range of characters that no expression tells apart. Spans with the same class are not
// told apart either.
type span struct {
	from, to rune
	class    int
}

// spend counts the work of the construction.
func (b *Budget) spend(n int) error {
	if b.left -= n; b.left < 0 {
		return errLarge
	}
	return nil
}

// lastRune is the last character of Unicode.
const lastRune = 0x10ffff

// classify sets spans, classes and what each instruction reads.
func (m *machine) classify() error {
	examples, of, cuts := m.sets()
	if err := m.spend(len(cuts) * (len(examples) + 1)); err != nil {
		return err
	}
	members := m.divide(cuts, examples)
	m.classes = len(members)
	if m.bounded {
		m.words = make([]bool, m.classes)
		for class := range members {
			m.words[class] = members[class][0]
		}
	}
	for i, p := range m.all {
		p.reads, p.seen = make([][]bool, len(p.Inst)), make([]int, len(p.Inst))
		for pc, set := range of[i] {
			if set < 0 {
				continue
			}
			if err := m.spend(m.classes); err != nil {
				return err
			}
			p.reads[pc] = make([]bool, m.classes)
			for class := range members {
				p.reads[pc][class] = members[class][set]
			}
		}
	}
	return nil
}

// sets returns the distinct sets of characters that instructions read: an instruction of each set,
// the set of each instruction of each program, or -1, and the first characters of the ranges that
// the sets divide all characters into, in order.
func (m *machine) sets() (examples []*syntax.Inst, of [][]int, cuts []rune) {
	sets := map[string]int{}
	cuts = []rune{0, ' ', 0x7f, 0x80, 0xd800, 0xe000}
	of = make([][]int, len(m.all))
	m.bounded = slices.ContainsFunc(m.all, hasBoundary)
	if m.bounded {
		examples, cuts = append(examples, &word), append(cuts, bounds(&word)...)
	}
	for i, p := range m.all {
		of[i] = make([]int, len(p.Inst))
		for pc := range p.Inst {
			inst := &p.Inst[pc]
			of[i][pc] = -1
			if !reads(inst) {
				continue
			}
			key := fmt.Sprint(inst.Op, inst.Rune)
			if _, known := sets[key]; !known {
				sets[key] = len(examples)
				examples = append(examples, inst)
				cuts = append(cuts, bounds(inst)...)
			}
			of[i][pc] = sets[key]
		}
	}
	slices.Sort(cuts)
	return examples, of, slices.Compact(cuts)
}

// divide sets spans. It returns, for each class and set, whether the characters of the class are in
// the set.
func (m *machine) divide(cuts []rune, examples []*syntax.Inst) (members [][]bool) {
	signatures := map[string]int{}
	for i, from := range cuts {
		to := rune(lastRune)
		if i+1 < len(cuts) {
			to = cuts[i+1] - 1
		}
		in, signature := make([]bool, len(examples)), make([]byte, len(examples))
		for set, inst := range examples {
			if in[set] = inst.MatchRune(from); in[set] {
				signature[set] = 1
			}
		}
		class, known := signatures[string(signature)]
		if !known {
			class = len(members)
			signatures[string(signature)] = class
			members = append(members, in)
		}
		m.spans = append(m.spans, span{from, to, class})
	}
	return members
}

func reads(inst *syntax.Inst) bool {
	switch inst.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	default:
		return false
	}
}

// word reads a character of words, as ECMA-262 and Go define them.
var word = syntax.Inst{Op: syntax.InstRune, Rune: []rune{'0', '9', 'A', 'Z', '_', '_', 'a', 'z'}}

const boundaries = syntax.EmptyWordBoundary | syntax.EmptyNoWordBoundary

// hasBoundary reports whether an expression asks for word boundaries.
func hasBoundary(p *program) bool {
	return slices.ContainsFunc(p.Inst, func(inst syntax.Inst) bool {
		return inst.Op == syntax.InstEmptyWidth && syntax.EmptyOp(inst.Arg)&boundaries != 0 //nolint:gosec // an EmptyOp has 8 bits
	})
}

// boundary returns what holds between two characters, or a character and an end of the text.
func boundary(before, after bool) syntax.EmptyOp {
	if before != after {
		return syntax.EmptyWordBoundary
	}
	return syntax.EmptyNoWordBoundary
}

// bounds returns the characters at which an instruction's set begins, or ends before.
func bounds(inst *syntax.Inst) (cuts []rune) {
	switch {
	case inst.Op == syntax.InstRuneAnyNotNL:
		return []rune{'\n', '\n' + 1}
	case len(inst.Rune) == 1:
		return []rune{inst.Rune[0], inst.Rune[0] + 1}
	}
	for i, r := range inst.Rune {
		if i%2 == 1 {
			r++
		}
		if r <= lastRune {
			cuts = append(cuts, r)
		}
	}
	return cuts
}
