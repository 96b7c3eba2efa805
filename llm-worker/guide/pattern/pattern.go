// Package pattern compiles regular expressions of JSON Schema (ECMA-262) into DFAs of the strings
// that match them, as the strings stand in JSON: in UTF-8, with escapes where they are necessary.
//
// As in a validator, an expression matches if any part of the string does, unless it has anchors.
// Backreferences, and lookaround other than at the ends of an expression, cannot be compiled, and are
// refused by name. So are expressions whose DFA is too large or takes too long to
// make.
package pattern

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"

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
	return (&machine{Budget: budget, least: least, most: most}).compile(conditions)
}

// CompileText returns the DFA of the texts, outside of JSON, that an expression matches as a whole.
// Nothing may follow a text of the DFA. Its texts have no control characters but white space.
func CompileText(expression string, budget *Budget) (*grammar.DFA, error) {
	return (&machine{Budget: budget, most: -1, bare: true}).compile([]Condition{{Expression: "^(?:" + expression + ")$"}})
}

func (m *machine) compile(conditions []Condition) (*grammar.DFA, error) {
	for _, c := range conditions {
		for _, part := range c.split() {
			prog, err := part.compile()
			if err != nil {
				return nil, err
			}
			m.progs, m.not = append(m.progs, prog), append(m.not, part.Not)
		}
	}
	if err := m.classify(); err != nil {
		return nil, err
	}
	if err := m.explore(); err != nil {
		return nil, err
	}
	return m.dfa()
}

// A machine is the product of the expressions and of a counter of characters. Its places are the
// states between two characters.
type machine struct {
	*Budget
	progs       []*syntax.Prog
	not         []bool // the expressions that must not match
	least, most int
	bare        bool // the texts do not stand in JSON
	bounded     bool // an expression has a word boundary

	spans   []span // all characters, in order
	classes int
	words   []bool     // by class: its characters are those of words
	accepts [][][]bool // by expression, instruction and class; nil for instructions that read nothing

	places  []*place
	numbers map[string]int // of places, by their keys

	seen  []int // scratch of closure
	stamp int
}

// A span is a range of characters that no expression tells apart. Spans with the same class are not
// told apart either.
type span struct {
	from, to rune
	class    int
}

// A place is a state between two characters.
type place struct {
	threads [][]uint32 // for each expression, the instructions that read the next character, or ask what it is; sorted
	word    bool       // the last character is one of words, and an expression has a word boundary
	matched []bool     // expressions that match whatever follows
	count   int        // of characters, up to the last number that makes a difference
	accept  bool
	next    []int // by class: the number of the next place, or -1
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

// classify sets spans, classes and accepts.
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
	for i, prog := range m.progs {
		all := make([][]bool, len(prog.Inst))
		for pc, set := range of[i] {
			if set < 0 {
				continue
			}
			if err := m.spend(m.classes); err != nil {
				return err
			}
			all[pc] = make([]bool, m.classes)
			for class := range members {
				all[pc][class] = members[class][set]
			}
		}
		m.accepts = append(m.accepts, all)
	}
	return nil
}

// sets returns the distinct sets of characters that instructions read: an instruction of each set,
// the set of each instruction of each expression, or -1, and the first characters of the ranges that
// the sets divide all characters into, in order.
func (m *machine) sets() (examples []*syntax.Inst, of [][]int, cuts []rune) {
	sets := map[string]int{}
	cuts = []rune{0, ' ', 0x7f, 0x80, 0xd800, 0xe000}
	of = make([][]int, len(m.progs))
	m.bounded = slices.ContainsFunc(m.progs, hasBoundary)
	if m.bounded {
		examples, cuts = append(examples, &word), append(cuts, bounds(&word)...)
	}
	for i, prog := range m.progs {
		of[i] = make([]int, len(prog.Inst))
		for pc := range prog.Inst {
			inst := &prog.Inst[pc]
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
func hasBoundary(prog *syntax.Prog) bool {
	return slices.ContainsFunc(prog.Inst, func(inst syntax.Inst) bool {
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

// explore finds all places that can be reached, the beginning first.
func (m *machine) explore() error {
	m.numbers = map[string]int{}
	first := &place{threads: make([][]uint32, len(m.progs)), matched: make([]bool, len(m.progs))}
	for i, prog := range m.progs {
		first.threads[i], first.matched[i] = m.closure(prog, []uint32{uint32(prog.Start)}, syntax.EmptyBeginText) //nolint:gosec // a program is short
	}
	m.enter(first, true)
	for at := 0; at < len(m.places); at++ { //nolint:intrange // places grows
		if err := m.spend(256); err != nil { // for its state
			return err
		}
		from := m.places[at]
		from.next = make([]int, m.classes)
		for class := range m.classes {
			to, ok := m.step(from, class)
			from.next[class] = -1
			if ok {
				from.next[class] = m.enter(to, false)
			}
			if len(m.places) > maxPlaces || m.left < 0 {
				return errLarge
			}
		}
	}
	return nil
}

// enter returns the number of a place.
func (m *machine) enter(p *place, first bool) int {
	key := p.key()
	if n, known := m.numbers[key]; known && !first && n > 0 { // the beginning accepts other texts than the same threads later
		return n
	}
	p.accept = p.count >= m.least
	for i, prog := range m.progs {
		matched := p.matched[i]
		if p.accept && !matched {
			at := syntax.EmptyEndText | boundary(p.word, false)
			if first {
				at |= syntax.EmptyBeginText
			}
			_, matched = m.closure(prog, p.threads[i], at)
		}
		p.accept = p.accept && matched != m.not[i]
	}
	n := len(m.places)
	m.places, m.numbers[key] = append(m.places, p), n
	return n
}

// key identifies a place after the beginning.
func (p *place) key() string {
	key := binary.LittleEndian.AppendUint32(nil, uint32(p.count)) //nolint:gosec // below maxPlaces
	key = strconv.AppendBool(key, p.word)
	for i, threads := range p.threads {
		if p.matched[i] {
			key = append(key, 1)
			continue
		}
		key = append(key, 0)
		key = binary.LittleEndian.AppendUint32(key, uint32(len(threads))) //nolint:gosec // a program is short
		for _, pc := range threads {
			key = binary.LittleEndian.AppendUint32(key, pc)
		}
	}
	return string(key)
}

// step returns the place after a character of a class, or false if no text can match any more.
func (m *machine) step(from *place, class int) (*place, bool) {
	to := &place{threads: make([][]uint32, len(m.progs)), matched: slices.Clone(from.matched), count: from.count + 1}
	switch {
	case m.most >= 0 && to.count > m.most:
		return nil, false
	case m.most < 0:
		to.count = min(to.count, m.least)
	}
	to.word = m.bounded && m.words[class]
	for i, prog := range m.progs {
		if from.matched[i] && m.not[i] {
			return nil, false
		}
		if from.matched[i] {
			continue
		}
		pcs := []uint32{uint32(prog.Start)} //nolint:gosec // a program is short; a match may begin anywhere
		threads, matched := m.before(from, i, class)
		if matched {
			if to.matched[i] = true; m.not[i] {
				return nil, false
			}
			continue
		}
		for _, pc := range threads {
			if in := m.accepts[i][pc]; in != nil && in[class] {
				pcs = append(pcs, prog.Inst[pc].Out)
			}
		}
		to.threads[i], to.matched[i] = m.closure(prog, pcs, 0)
		if m.not[i] && to.matched[i] || !m.not[i] && !to.matched[i] && len(to.threads[i]) == 0 {
			return nil, false
		}
	}
	return to, true
}

// before returns the instructions of an expression that read a character of a class after a place, now
// that the class decides whether a word begins or ends there. matched reports whether the expression
// has matched before the character.
func (m *machine) before(from *place, expression, class int) (threads []uint32, matched bool) {
	threads = from.threads[expression]
	if !m.bounded {
		return threads, false
	}
	at := boundary(from.word, m.words[class])
	if from == m.places[0] {
		at |= syntax.EmptyBeginText
	}
	return m.closure(m.progs[expression], threads, at)
}

// unseen returns a mark for each instruction; those with the value of stamp have been seen.
func (m *machine) unseen(instructions int) []int {
	if len(m.seen) < instructions {
		m.seen = make([]int, instructions)
	}
	m.stamp++
	return m.seen
}

// closure returns the instructions that can be reached from others and read a character, or ask for the
// end of the text or for a word boundary. at has the conditions that hold at the place. matched reports
// whether the expression has matched.
func (m *machine) closure(prog *syntax.Prog, from []uint32, at syntax.EmptyOp) (threads []uint32, matched bool) {
	seen := m.unseen(len(prog.Inst))
	for queue := slices.Clone(from); len(queue) > 0; {
		pc := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if seen[pc] == m.stamp {
			continue
		}
		seen[pc] = m.stamp
		m.left--
		switch inst := &prog.Inst[pc]; inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			queue = append(queue, inst.Out, inst.Arg)
		case syntax.InstCapture, syntax.InstNop:
			queue = append(queue, inst.Out)
		case syntax.InstEmptyWidth:
			needs := syntax.EmptyOp(inst.Arg) //nolint:gosec // an EmptyOp has 8 bits
			if needs&^at == 0 {
				queue = append(queue, inst.Out)
			} else if needs == syntax.EmptyEndText || needs&boundaries != 0 && at&boundaries == 0 {
				threads = append(threads, pc)
			}
		case syntax.InstMatch:
			return nil, true
		case syntax.InstFail:
		default:
			threads = append(threads, pc)
		}
	}
	slices.Sort(threads)
	return threads, false
}
