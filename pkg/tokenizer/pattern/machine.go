package pattern

import (
	"fmt"
	"sync"
	"unicode/utf8"
)

// An expression is a regular expression without a scanner. It backtracks, as the Rust library's
// engine does, and counts its steps.
type expression struct {
	source  string
	program *program
	steps   int       // of a text, beside stepsPerByte
	pool    sync.Pool // of *machine
}

// Bounds of the work on one text. A step takes some nanoseconds, and the expressions of models take
// about ten steps per byte. The text of an expression that takes more steps is refused: to go on
// without the match would give other tokens.
const (
	maxSteps     = 1 << 24
	stepsPerByte = 1 << 10
	maxChoices   = 1 << 21 // choices that a machine may take back, which take 24 bytes each
	// maxExpression bounds an expression, in bytes. Those of models have less than 2000.
	maxExpression = 8 << 10
)

func newExpression(text string, d dialect) (*expression, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("a regular expression has %d bytes; at most %d are allowed", len(text), maxExpression)
	}
	n, err := parse(text, d)
	var prog *program
	if err == nil {
		prog, err = compile(n)
	}
	if err != nil {
		return nil, fmt.Errorf("regular expression %.200q: %w", text, err)
	}
	return &expression{source: text, program: prog, steps: maxSteps}, nil
}

// Matches implements Pattern.
func (e *expression) Matches(dst []Span, s string) ([]Span, error) {
	m, _ := e.pool.Get().(*machine)
	if m == nil {
		m = &machine{program: e.program, registers: make([]int, e.program.registers)}
	}
	defer e.pool.Put(m)
	m.s, m.whole, m.left = s, s, e.steps+stepsPerByte*len(s)
	defer func() { m.s, m.whole = "", "" }()
	last := -1 // the end of the last match
	for m.begin = 0; m.begin <= len(s); {
		start, end := m.search(m.begin)
		if m.left < 0 {
			return dst, fmt.Errorf("%w: %.200q", ErrSlow, e.source)
		}
		if start < 0 {
			break
		}
		// An empty match at the end of the previous match is ignored; elsewhere it splits the text.
		if start == end && end == last {
			_, n := utf8.DecodeRuneInString(s[m.begin:])
			m.begin += max(n, 1)
			continue
		}
		dst = append(dst, Span{start, end})
		m.begin, last = end, end
	}
	return dst, nil
}

// A machine runs a program on a text. Only one goroutine may use it.
type machine struct {
	*program
	whole     string
	s         string // whole, or within a lookbehind the part before its end
	begin     int    // of the search
	left      int    // steps that are left; negative when there were too few
	target    int    // of a lookbehind: where its match must end
	choices   []choice
	registers []int
}

// A choice is what a machine does when the code behind it does not match.
type choice struct {
	pc   int32
	kind choiceKind
	at   int // the position, or the earlier value of register pc
	low  int // of a loop: the least position. Of a lazy loop: the number of characters
}

type choiceKind uint8

const (
	goOn     choiceKind = iota // go to pc, at the position
	giveBack                   // give back a character of a loop, and go to pc
	takeMore                   // take another character of the lazy loop at pc
	restore                    // restore a register, and look for another choice
)

// search returns the first match at or behind i, or -1.
func (m *machine) search(i int) (start, end int) {
	for i <= len(m.s) {
		if m.first == nil || m.first.step(m.s, i) > i {
			if end, ok := m.run(0, i); ok {
				return i, end
			}
		}
		if m.left--; m.left < 0 || i == len(m.s) {
			break
		}
		if m.s[i] < utf8.RuneSelf {
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(m.s[i:])
		i += n
	}
	return -1, -1
}

// run runs the code at pc, up to its opDone, and returns the end of the match.
func (m *machine) run(pc int32, at int) (end int, ok bool) {
	base := len(m.choices)
	defer func() { m.choices = m.choices[:base] }()
	for {
		if m.left--; m.left < 0 {
			return at, false
		}
		in := &m.code[pc]
		next, to, ok := pc+1, at, true
		switch in.op {
		case opText:
			if ok = len(m.s)-at >= len(in.text) && m.s[at:at+len(in.text)] == in.text; ok {
				to = at + len(in.text)
			}
		case opSet:
			to = in.set.step(m.s, at)
			ok = to > at
		case opLoop, opRun:
			to, ok = m.loop(in, pc, at)
		case opLazyLoop:
			to, ok = m.lazy(in, pc, at)
		case opSplit:
			next = in.x
			m.push(choice{pc: in.y, at: at})
		case opJump:
			next = in.x
		case opMark:
			m.push(choice{pc: in.x, kind: restore, at: m.registers[in.x]})
			m.registers[in.x] = at
		case opMoved:
			if m.registers[in.x] == at {
				next = in.y
			}
		case opAtomic:
			next = in.x
			to, ok = m.run(pc+1, at)
		case opLook:
			next = in.x
			ok = m.look(in, pc, at) != in.not
		case opAssert:
			ok = m.assert(in, at)
		case opGrapheme:
			to, ok = graphemeEnd(m.s, at), at < len(m.s)
		case opDone:
			return at, true
		case opDoneAt:
			if at == m.target {
				return at, true
			}
			ok = false
		}
		if ok {
			pc, at = next, to
			continue
		}
		if pc, at, ok = m.back(base); !ok {
			return at, false
		}
	}
}

func (m *machine) push(c choice) {
	if len(m.choices) >= maxChoices {
		m.left = -1
		return
	}
	m.choices = append(m.choices, c)
}

// back takes back the last choice. ok is false if there is none above base.
func (m *machine) back(base int) (pc int32, at int, ok bool) {
	for len(m.choices) > base {
		c := &m.choices[len(m.choices)-1]
		switch c.kind {
		case goOn:
			m.choices = m.choices[:len(m.choices)-1]
			return c.pc, c.at, true
		case giveBack:
			c.at--
			for c.at > c.low && !utf8.RuneStart(m.s[c.at]) {
				c.at--
			}
			pc, at = c.pc, c.at
			if at == c.low {
				m.choices = m.choices[:len(m.choices)-1]
			}
			return pc, at, true
		case takeMore:
			in := &m.code[c.pc]
			at = in.set.step(m.s, c.at)
			if pc = c.pc + 1; at == c.at || in.high != many && c.low >= in.high {
				m.choices = m.choices[:len(m.choices)-1]
				continue
			}
			c.at = at
			c.low++
			return pc, at, true
		case restore:
			m.registers[c.pc] = c.at
			m.choices = m.choices[:len(m.choices)-1]
		}
	}
	return 0, 0, false
}

// loop takes as many characters as possible.
func (m *machine) loop(in *instruction, pc int32, at int) (end int, ok bool) {
	least, n := at, 0
	for end = at; in.high == many || n < in.high; n++ {
		if n == in.low {
			least = end
		}
		next := in.set.step(m.s, end)
		if next == end {
			break
		}
		end = next
	}
	m.left -= n
	if n <= in.low {
		return end, n == in.low
	}
	if in.op == opLoop {
		m.push(choice{pc: pc + 1, kind: giveBack, at: end, low: least})
	}
	return end, true
}

// lazy takes as few characters as possible.
func (m *machine) lazy(in *instruction, pc int32, at int) (end int, ok bool) {
	for range in.low {
		next := in.set.step(m.s, at)
		if next == at {
			return at, false
		}
		at = next
	}
	m.left -= in.low
	m.push(choice{pc: pc, kind: takeMore, at: at, low: in.low})
	return at, true
}

// look reports whether the code of in matches here, or ends here.
func (m *machine) look(in *instruction, pc int32, at int) bool {
	if !in.behind {
		_, ok := m.run(pc+1, at)
		return ok
	}
	outer, target := m.s, m.target
	m.s, m.target = m.s[:at], at
	defer func() { m.s, m.target = outer, target }()
	start := at
	for n := 0; in.high == many || n <= in.high; n++ {
		if n >= in.low {
			if _, ok := m.run(pc+1, start); ok {
				return true
			}
		}
		if start == 0 || m.left < 0 {
			break
		}
		_, size := utf8.DecodeLastRuneInString(m.s[:start])
		start -= size
		m.left--
	}
	return false
}

func (m *machine) assert(in *instruction, at int) bool {
	s := m.whole
	switch in.at {
	case lineStart:
		return at == 0 || s[at-1] == '\n' && at < len(s)
	case lineEnd:
		return at == len(s) || s[at] == '\n'
	case textStart:
		return at == 0
	case textEnd:
		return at == len(s)
	case lastLineEnd:
		return at == len(s) || at == len(s)-1 && s[at] == '\n'
	case searchStart:
		return at == m.begin
	case wordEdge, notWordEdge:
	}
	before := false
	if at > 0 {
		r, _ := utf8.DecodeLastRuneInString(s[:at])
		before = in.set.has(r)
	}
	return (before != (in.set.step(s, at) > at)) == (in.at == wordEdge)
}
