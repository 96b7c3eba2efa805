package pattern

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"sort"
	"strconv"
)

// A place is a state between two characters.
type place struct {
	threads [][]thread // for each condition, those that read the next character, or ask what it is
	behind  [][]thread // for each lookbehind
	word    bool       // the last character is one of words, and an expression has a word boundary
	begins  bool       // it is the beginning of the text
	matched []bool     // conditions that match whatever follows
	count   int        // of characters, up to the last number that makes a difference
	accept  bool
	next    []int // by class: the number of the next place, or -1

	known map[syntax.EmptyOp]*vantage
}

// A thread is an instruction that may come next. It counts only if the lookaheads that it has passed
// come true.
type thread struct {
	pc   uint32
	debt int32 // an index into debts; 0 for none
}

// A vantage is a place when it is known what follows: the end of the text, or a character of a word or
// not. Threads have passed boundaries and lookarounds, or ended there.
type vantage struct {
	threads, behind [][]thread
	matched         []bool
}

// start is the thread with which a match begins.
func (p *program) start() thread { return thread{pc: uint32(p.Start)} } //nolint:gosec // a program is short

// first returns the place at the beginning of a text.
func (m *machine) first() *place {
	p := &place{begins: true, threads: make([][]thread, len(m.progs)), behind: make([][]thread, len(m.behind)), matched: make([]bool, len(m.progs))}
	for i, prog := range m.progs {
		p.threads[i], p.matched[i] = m.closure(prog, []thread{prog.start()}, syntax.EmptyBeginText, nil)
	}
	for i, look := range m.behind {
		p.behind[i], _ = m.closure(look, []thread{look.start()}, syntax.EmptyBeginText, nil)
	}
	return p
}

// explore finds all places that can be reached, the beginning first.
func (m *machine) explore() error {
	m.numbers = map[string]int{}
	m.enter(m.first())
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
				from.next[class] = m.enter(to)
			}
			if len(m.places) > maxPlaces || m.left < 0 {
				return errLarge
			}
		}
		from.known = nil
	}
	return nil
}

// enter returns the number of a place.
func (m *machine) enter(p *place) int {
	key := p.key()
	if n, known := m.numbers[key]; known && !p.begins {
		return n
	}
	p.accept = m.accepts(p)
	n := len(m.places)
	m.places = append(m.places, p)
	if !p.begins { // the beginning accepts other texts than the same threads later
		m.numbers[key] = n
	}
	return n
}

// accepts reports whether the text may end at a place.
func (m *machine) accepts(p *place) bool {
	if p.count < m.least {
		return false
	}
	end := m.vantage(p, syntax.EmptyEndText|boundary(p.word, false))
	for i, prog := range m.progs {
		if end.matched[i] == prog.not {
			return false
		}
	}
	return true
}

// key identifies a place after the beginning.
func (p *place) key() string {
	key := binary.LittleEndian.AppendUint32(nil, uint32(p.count)) //nolint:gosec // below maxPlaces
	key = strconv.AppendBool(key, p.word)
	for i, threads := range p.threads {
		key = strconv.AppendBool(key, p.matched[i])
		if !p.matched[i] {
			key = appendThreads(key, threads)
		}
	}
	for _, threads := range p.behind {
		key = appendThreads(key, threads)
	}
	return string(key)
}

func appendThreads(key []byte, threads []thread) []byte {
	key = binary.LittleEndian.AppendUint32(key, uint32(len(threads))) //nolint:gosec // a program is short
	for _, t := range threads {
		key = binary.LittleEndian.AppendUint32(key, t.pc)
		key = binary.LittleEndian.AppendUint32(key, uint32(t.debt)) //nolint:gosec // not negative
	}
	return key
}

// span returns the span of a character.
func (m *machine) span(r rune) *span {
	return &m.spans[sort.Search(len(m.spans), func(i int) bool { return m.spans[i].to >= r })]
}

// step returns the place after a character of a class, or false if no text can match any more.
func (m *machine) step(from *place, class int) (*place, bool) {
	to := &place{threads: make([][]thread, len(m.progs)), behind: make([][]thread, len(m.behind)), count: from.count + 1}
	switch {
	case m.most >= 0 && to.count > m.most:
		return nil, false
	case m.most < 0:
		to.count = min(to.count, m.least)
	}
	at := boundary(false, false)
	if m.bounded {
		to.word = m.words[class]
		at = boundary(from.word, to.word)
	}
	now := m.vantage(from, at)
	to.matched = slices.Clone(now.matched)
	for i, prog := range m.progs {
		if to.matched[i] && prog.not {
			return nil, false
		}
		if to.matched[i] {
			continue
		}
		to.threads[i], to.matched[i] = m.closure(prog, m.after(prog, now.threads[i], class), 0, nil)
		if prog.not && to.matched[i] || !prog.not && !to.matched[i] && len(to.threads[i]) == 0 {
			return nil, false
		}
	}
	for i, look := range m.behind {
		to.behind[i], _ = m.closure(look, m.after(look, now.behind[i], class), 0, nil)
	}
	return to, true
}

// after returns the threads after a character of a class, and the one with which a match begins there.
func (m *machine) after(p *program, threads []thread, class int) []thread {
	var after []thread
	for _, t := range threads {
		waits := p.Inst[t.pc].Op == syntax.InstMatch && !p.back // for its debts
		if in := p.reads[t.pc]; !waits && (in == nil || !in[class]) {
			continue
		}
		debt, ok := m.later(t.debt, class)
		if !ok {
			continue
		}
		if !waits {
			t.pc = p.Inst[t.pc].Out
		}
		after = append(after, thread{t.pc, debt})
	}
	if !p.ahead { // a match may begin anywhere
		after = append(after, p.start())
	}
	return after
}

// vantage returns a place when the conditions at hold there.
func (m *machine) vantage(p *place, at syntax.EmptyOp) *vantage {
	if p.begins {
		at |= syntax.EmptyBeginText
	}
	if v := p.known[at]; v != nil {
		return v
	}
	v := &vantage{threads: make([][]thread, len(m.progs)), behind: make([][]thread, len(m.behind)), matched: slices.Clone(p.matched)}
	seen := make(map[*program]bool, len(m.behind))
	for i, look := range m.behind {
		v.behind[i], seen[look] = m.closure(look, p.behind[i], at, nil)
	}
	for i, prog := range m.progs {
		if v.matched[i] {
			continue
		}
		if !m.bounded && len(prog.looks) == 0 && at&syntax.EmptyEndText == 0 { // nothing asks what follows
			v.threads[i] = p.threads[i]
			continue
		}
		var threads []thread
		for _, t := range p.threads[i] {
			if debt, ok := m.now(t.debt, at); ok {
				threads = append(threads, thread{t.pc, debt})
			}
		}
		v.threads[i], v.matched[i] = m.closure(prog, threads, at, seen)
	}
	if p.known == nil {
		p.known = map[syntax.EmptyOp]*vantage{}
	}
	p.known[at] = v
	return v
}

// closure returns the threads that can be reached from others without reading. at has the conditions
// that hold at the place; without a boundary among them it is not known what follows, so that threads
// wait at boundaries and lookarounds. seen has the lookbehinds that match. matched reports whether the
// program has matched, which ends all threads but those of a lookbehind.
func (m *machine) closure(p *program, from []thread, at syntax.EmptyOp, seen map[*program]bool) (threads []thread, matched bool) {
	p.stamp++
	visited := map[thread]bool{} // those with debts
	for queue := slices.Clone(from); len(queue) > 0 && m.left >= 0; {
		t := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if t.debt == 0 && p.seen[t.pc] == p.stamp || visited[t] {
			continue
		}
		if t.debt == 0 {
			p.seen[t.pc] = p.stamp
		} else {
			visited[t] = true
		}
		m.left--
		switch inst := &p.Inst[t.pc]; inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			queue = append(queue, thread{inst.Out, t.debt}, thread{inst.Arg, t.debt})
		case syntax.InstNop:
			queue = append(queue, thread{inst.Out, t.debt})
		case syntax.InstCapture:
			look := p.looks[int(inst.Arg/2)]
			if look == nil || inst.Arg%2 == 1 {
				queue = append(queue, thread{inst.Out, t.debt})
			} else if at&boundaries == 0 {
				threads = append(threads, t)
			} else if debt, ok := m.look(look, t.debt, at, seen); ok {
				queue = append(queue, thread{inst.Out, debt})
			}
		case syntax.InstEmptyWidth:
			needs := syntax.EmptyOp(inst.Arg) //nolint:gosec // an EmptyOp has 8 bits
			if needs&^at == 0 {
				queue = append(queue, thread{inst.Out, t.debt})
			} else if at&boundaries == 0 && (needs == syntax.EmptyEndText || needs&boundaries != 0) {
				threads = append(threads, t)
			}
		case syntax.InstMatch:
			if t.debt == 0 && !p.back {
				return nil, true
			}
			matched = matched || p.back
			threads = append(threads, t)
		case syntax.InstFail:
		default:
			threads = append(threads, t)
		}
	}
	// A thread without debts counts whenever the same one with debts does.
	threads = slices.DeleteFunc(threads, func(t thread) bool { return t.debt != 0 && p.seen[t.pc] == p.stamp })
	slices.SortFunc(threads, func(a, b thread) int {
		if a.pc != b.pc {
			return int(a.pc) - int(b.pc)
		}
		return int(a.debt) - int(b.debt)
	})
	return threads, matched
}
