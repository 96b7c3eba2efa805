package pattern

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

type opcode uint8

const (
	opText     opcode = iota // text
	opSet                    // one character of set
	opLoop                   // characters of set, low to high, as many as possible
	opLazyLoop               // the same, as few as possible
	opRun                    // the same as opLoop, and never fewer
	opSplit                  // go to x, or else to y
	opJump                   // go to x
	opMark                   // note the position in register x
	opMoved                  // go to y if the position is that in register x
	opAtomic                 // the code behind this, up to opDone, once; then go to x
	opLook                   // the same, at this position, or ending at it
	opAssert                 // at
	opGrapheme               // a grapheme cluster
	opDone                   // the end of the expression or of the code of opAtomic and opLook
	opDoneAt                 // the same within a lookbehind, if the position is right
)

// An instruction is one step of a program.
type instruction struct {
	op          opcode
	not, behind bool
	at          position
	x, y        int32
	low, high   int // high is many if there is no bound
	set         *charset
	text        string
}

// A program is an expression as instructions. It is immutable.
type program struct {
	code      []instruction
	registers int
	first     *charset // the characters with which matches begin, or nil if a match may be empty
}

// maxProgram bounds the instructions of a program. Quantifiers of groups repeat them.
const maxProgram = 1 << 15

var errProgram = errors.New("the expression is too large, because of its quantifiers")

// A compiler makes a program.
type compiler struct {
	program
	sets map[string]*charset // by their spans
	// Quantifiers repeat nodes, so what a node needs is made once.
	charsets map[*node]*charset
	folds    map[*node]*node // texts in any case, as sets
}

func compile(n *node) (*program, error) {
	c := &compiler{sets: make(map[string]*charset), charsets: make(map[*node]*charset), folds: make(map[*node]*node)}
	if err := c.node(n); err != nil {
		return nil, err
	}
	c.emit(instruction{op: opDone})
	if !n.empty() {
		c.first = newCharset(n.first())
	}
	return &c.program, nil
}

func (c *compiler) emit(i instruction) int {
	c.code = append(c.code, i)
	return len(c.code) - 1
}

// charset returns the characters of a node that matches one character, or nil.
func (c *compiler) charset(n *node) *charset {
	if known, ok := c.charsets[n]; ok {
		return known
	}
	if s, ok := n.single(); ok {
		key := fmt.Sprint(s)
		if c.sets[key] == nil {
			c.sets[key] = newCharset(s)
		}
		c.charsets[n] = c.sets[key]
	} else {
		c.charsets[n] = nil
	}
	return c.charsets[n]
}

// wordCharset returns the characters of words, for \b and \B.
var wordCharset = sync.OnceValue(func() *charset { return newCharset(union("word")) })

func (c *compiler) node(n *node) error {
	if len(c.code) > maxProgram {
		return errProgram
	}
	switch n.kind {
	case textNode:
		return c.text(n)
	case setNode:
		c.emit(instruction{op: opSet, set: c.charset(n)})
	case sequenceNode:
		for _, sub := range n.subs {
			if err := c.node(sub); err != nil {
				return err
			}
		}
	case choiceNode:
		return c.choice(n.subs)
	case repeatNode:
		return c.repeat(n, opLoop)
	case atomicNode:
		if r := n.subs[0]; r.kind == repeatNode && !r.lazy && c.charset(r.subs[0]) != nil {
			return c.repeat(r, opRun)
		}
		return c.inner(instruction{op: opAtomic}, n.subs[0], opDone)
	case lookNode:
		in := instruction{op: opLook, not: n.not, behind: n.behind}
		if !n.behind {
			return c.inner(in, n.subs[0], opDone)
		}
		in.low, in.high = n.subs[0].width()
		return c.inner(in, n.subs[0], opDoneAt)
	case assertNode:
		in := instruction{op: opAssert, at: n.at}
		if n.at == wordEdge || n.at == notWordEdge {
			in.set = wordCharset()
		}
		c.emit(in)
	case graphemeNode:
		c.emit(instruction{op: opGrapheme})
	}
	return nil
}

// inner emits in, and n as its code.
func (c *compiler) inner(in instruction, n *node, end opcode) error {
	at := c.emit(in)
	if err := c.node(n); err != nil {
		return err
	}
	c.emit(instruction{op: end})
	c.code[at].x = int32(len(c.code))
	return nil
}

func (c *compiler) choice(branches []*node) error {
	var jumps []int
	for i, branch := range branches {
		split := -1
		if i < len(branches)-1 {
			split = c.emit(instruction{op: opSplit, x: int32(len(c.code) + 1)})
		}
		if err := c.node(branch); err != nil {
			return err
		}
		if split >= 0 {
			jumps = append(jumps, c.emit(instruction{op: opJump}))
			c.code[split].y = int32(len(c.code))
		}
	}
	for _, jump := range jumps {
		c.code[jump].x = int32(len(c.code))
	}
	return nil
}

// text emits the characters of a text.
func (c *compiler) text(n *node) error {
	if !n.fold {
		c.emit(instruction{op: opText, text: string(n.text)})
		return nil
	}
	if c.folds[n] == nil {
		c.folds[n] = n.unfolded()
	}
	return c.node(c.folds[n])
}

// unfolded returns a text in any case as sets. A character may match several characters of the text,
// and the other way around.
func (n *node) unfolded() *node {
	out := &node{kind: sequenceNode}
	for i, r := range n.text {
		one := &node{kind: setNode, set: setOf(variants(r)...)}
		rest, then := n.text[i:], &node{kind: textNode, text: n.text[i+1:], fold: true}
		var choices []*node
		for _, f := range longFolds() {
			if len(f.to) <= len(rest) && slices.EqualFunc(f.to, rest[:len(f.to)], equalFold) {
				choices = append(choices, &node{kind: sequenceNode, subs: []*node{
					{kind: setNode, set: setOf(f.from...)}, {kind: textNode, text: rest[len(f.to):], fold: true},
				}})
			}
		}
		if to := unfold(r); to != nil {
			choices = append(choices, &node{kind: sequenceNode, subs: []*node{{kind: textNode, text: to, fold: true}, then}})
		}
		if len(choices) > 0 {
			choices = append([]*node{{kind: sequenceNode, subs: []*node{one, then}}}, choices...)
			out.subs = append(out.subs, &node{kind: choiceNode, subs: choices})
			return out
		}
		out.subs = append(out.subs, one)
	}
	return out
}

func equalFold(a, b rune) bool { return slices.Contains(variants(a), b) }

// repeat emits a repeatNode; loop is the instruction for sets.
func (c *compiler) repeat(n *node, loop opcode) error {
	sub := n.subs[0]
	if set := c.charset(sub); set != nil {
		if n.lazy {
			loop = opLazyLoop
		}
		c.emit(instruction{op: loop, set: set, low: n.low, high: n.high})
		return nil
	}
	for range n.low {
		if err := c.node(sub); err != nil {
			return err
		}
	}
	split := func() int {
		at := c.emit(instruction{op: opSplit, x: int32(len(c.code) + 1)})
		return at
	}
	exit := func(at int) {
		if c.code[at].y = int32(len(c.code)); n.lazy {
			c.code[at].x, c.code[at].y = c.code[at].y, c.code[at].x
		}
	}
	if n.high != many {
		var splits []int
		for range n.high - n.low {
			splits = append(splits, split())
			if err := c.node(sub); err != nil {
				return err
			}
		}
		for _, at := range splits {
			exit(at)
		}
		return nil
	}
	at := split()
	empty := sub.empty()
	mark := int32(c.registers)
	if empty { // a repetition that matches nothing is the last
		c.registers++
		c.emit(instruction{op: opMark, x: mark})
	}
	if err := c.node(sub); err != nil {
		return err
	}
	moved := -1
	if empty {
		moved = c.emit(instruction{op: opMoved, x: mark})
	}
	c.emit(instruction{op: opJump, x: int32(at)})
	exit(at)
	if moved >= 0 {
		c.code[moved].y = int32(len(c.code))
	}
	return nil
}

// empty reports that n may match nothing.
func (n *node) empty() bool {
	switch n.kind {
	case textNode:
		return len(n.text) == 0
	case setNode, graphemeNode:
		return false
	case sequenceNode:
		return !slices.ContainsFunc(n.subs, func(sub *node) bool { return !sub.empty() })
	case choiceNode:
		return slices.ContainsFunc(n.subs, (*node).empty)
	case repeatNode:
		return n.low == 0 || n.subs[0].empty()
	case atomicNode:
		return n.subs[0].empty()
	case lookNode, assertNode:
	}
	return true
}

// first returns the characters with which matches of n begin.
func (n *node) first() (s set) {
	switch n.kind {
	case textNode:
		return n.firstOfText()
	case setNode:
		return n.set
	case sequenceNode:
		for _, sub := range n.subs {
			if s = s.union(sub.first()); !sub.empty() {
				break
			}
		}
	case choiceNode:
		for _, sub := range n.subs {
			s = s.union(sub.first())
		}
	case repeatNode, atomicNode:
		return n.subs[0].first()
	case graphemeNode:
		return set(nil).negate()
	case lookNode, assertNode:
	}
	return s
}

func (n *node) firstOfText() set {
	if len(n.text) == 0 {
		return nil
	}
	r := n.text[0]
	if !n.fold {
		return setOf(r)
	}
	s := setOf(variants(r)...)
	for _, f := range longFolds() {
		if equalFold(f.to[0], r) {
			s = s.union(setOf(f.from...))
		}
	}
	if to := unfold(r); to != nil {
		s = s.union(setOf(variants(to[0])...))
	}
	return s
}

// width returns the least and the greatest number of characters that n matches.
func (n *node) width() (low, high int) {
	add := func(a, b int) int {
		if a == many || b == many || a+b > 1<<30 {
			return many
		}
		return a + b
	}
	switch n.kind {
	case textNode:
		if n.fold { // a character may match three
			return (len(n.text) + 2) / 3, 3 * len(n.text)
		}
		return len(n.text), len(n.text)
	case setNode:
		return 1, 1
	case sequenceNode:
		for _, sub := range n.subs {
			l, h := sub.width()
			low, high = low+l, add(high, h)
		}
	case choiceNode:
		for i, sub := range n.subs {
			l, h := sub.width()
			if i == 0 {
				low, high = l, h
				continue
			}
			low = min(low, l)
			if high != many && (h == many || h > high) {
				high = h
			}
		}
	case repeatNode:
		l, h := n.subs[0].width()
		low = min(l*n.low, 1<<30)
		if high = many; n.high != many && h != many && h*n.high <= 1<<30 {
			high = h * n.high
		}
	case atomicNode:
		return n.subs[0].width()
	case graphemeNode:
		return 1, many
	case lookNode, assertNode:
	}
	return low, high
}
