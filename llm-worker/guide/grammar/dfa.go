package grammar

// A DFA is a deterministic automaton over bytes, for a symbol that reads many bytes without a stack.
// It is immutable. A vocabulary is matched with a DFA in one pass, which is why symbols that allow
// most tokens are runs.
type DFA struct {
	// Counts means that each arrival at an accepting state completes a character. The start accepts,
	// and only complete characters lead back to it.
	Counts bool
	// After is the set of bytes that may follow a text. No accepting state has a transition for one
	// of them, so a text's end is never ambiguous.
	After Class

	class  [256]uint8
	width  int
	next   []uint16 // by state and class of byte
	accept []bool
	need   []int32 // bytes of the shortest text to an accepting state
	live   []Class // the bytes with a transition
}

// Dead is the state after a byte that is not allowed, and Start is the first state.
const (
	Dead  = 0
	Start = 1
)

// NewDFA returns the DFA with these transitions: next[i] are those of state i, and accept[i] reports
// whether a text may end there. State 0 is Dead and has none. Transitions into states from which no
// accepting state can be reached are removed.
func NewDFA(next [][256]uint16, accept []bool) *DFA {
	d := &DFA{accept: accept, need: make([]int32, len(next)), live: make([]Class, len(next))}
	d.measure(next)
	for s := range next {
		for b, to := range next[s] {
			if d.need[to] >= Endless {
				next[s][b] = Dead
			} else {
				d.live[s].Add(byte(b), byte(b))
			}
		}
	}
	classes := map[string]uint8{}
	column := make([]byte, 2*len(next))
	var of []int // a byte of each class
	for b := range 256 {
		for s := range next {
			column[2*s], column[2*s+1] = byte(next[s][b]), byte(next[s][b]>>8)
		}
		id, known := classes[string(column)]
		if !known {
			id = uint8(len(classes)) //nolint:gosec // there are at most 256 columns
			classes[string(column)] = id
			of = append(of, b)
		}
		d.class[b] = id
	}
	d.width = len(of)
	d.next = make([]uint16, 0, len(next)*d.width)
	for s := range next {
		for _, b := range of {
			d.next = append(d.next, next[s][b])
		}
	}
	return d
}

// measure sets need: a breadth-first search backwards from the accepting states.
func (d *DFA) measure(next [][256]uint16) {
	from := make([][]uint16, len(next))
	for s := range next {
		last := uint16(Dead)
		for _, to := range next[s] {
			if to != Dead && to != last {
				from[to] = append(from[to], uint16(s)) //nolint:gosec // states have 16 bits
				last = to
			}
		}
	}
	var queue []uint16
	for s := range next {
		d.need[s] = Endless
		if s != Dead && d.accept[s] {
			d.need[s] = 0
			queue = append(queue, uint16(s)) //nolint:gosec // states have 16 bits
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, s := range from[queue[0]] {
			if d.need[s] == Endless {
				d.need[s] = d.need[queue[0]] + 1
				queue = append(queue, s)
			}
		}
	}
}

// States returns the number of states, with Dead.
func (d *DFA) States() int { return len(d.accept) }

// Next returns the state after b.
func (d *DFA) Next(state uint16, b byte) uint16 { return d.next[int(state)*d.width+int(d.class[b])] }

// Accepts reports whether a text may end in a state.
func (d *DFA) Accepts(state uint16) bool { return d.accept[state] }

// Need returns the number of bytes to the end of the shortest text from a state, with at least min
// more characters, the one that the state is in included. Every character has one byte or more.
func (d *DFA) Need(state uint16, min int) int {
	if d.need[state] >= Endless {
		return Endless
	}
	if min > 0 && !d.accept[state] {
		min--
	}
	return int(d.need[state]) + min
}

// size returns the approximate number of bytes in memory.
func (d *DFA) size() int { return 400 + len(d.next)*2 + len(d.accept)*40 }

// spelledBy reports whether a shortest text from each state can be spelled with bytes of alone.
func (d *DFA) spelledBy(alone *Class) bool {
	for s := Start; s < len(d.accept); s++ {
		found := d.need[s] == 0 || d.need[s] >= Endless
		for b := 0; b < 256 && !found; b++ {
			to := d.Next(uint16(s), byte(b)) //nolint:gosec // states have 16 bits
			found = to != Dead && d.need[to] < d.need[s] && alone.Has(byte(b))
		}
		if !found {
			return false
		}
	}
	return true
}

// Characters are the characters of a JSON string: all of Unicode, escaped where necessary, and
// without \u escapes.
var Characters = func() *DFA {
	const (
		one, two, three = 2, 3, 4 // more bytes of a character
		e0, ed, f0, f4  = 5, 6, 7, 8
		escape          = 9
	)
	next := make([][256]uint16, 10)
	set := func(s int, from, to byte, next16 uint16) {
		for b := int(from); b <= int(to); b++ {
			next[s][b] = next16
		}
	}
	set(Start, ' ', '~', Start)
	set(Start, '"', '"', Dead)
	set(Start, '\\', '\\', escape)
	set(Start, 0xc2, 0xdf, one)
	set(Start, 0xe0, 0xe0, e0)
	set(Start, 0xe1, 0xef, two)
	set(Start, 0xed, 0xed, ed)
	set(Start, 0xf0, 0xf0, f0)
	set(Start, 0xf1, 0xf3, three)
	set(Start, 0xf4, 0xf4, f4)
	set(one, 0x80, 0xbf, Start)
	set(two, 0x80, 0xbf, one)
	set(three, 0x80, 0xbf, two)
	set(e0, 0xa0, 0xbf, one)
	set(ed, 0x80, 0x9f, one) // without surrogates
	set(f0, 0x90, 0xbf, two)
	set(f4, 0x80, 0x8f, two)
	for _, b := range []byte(`"\bfnrt`) {
		next[escape][b] = Start
	}
	accept := make([]bool, len(next))
	accept[Start] = true
	d := NewDFA(next, accept)
	d.Counts = true
	d.After.Add('"', '"')
	return d
}()
