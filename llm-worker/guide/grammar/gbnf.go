package grammar

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a GBNF. llama.cpp refuses a larger bound of repetitions.
const (
	maxGBNF    = 1 << 20 // bytes
	maxRepeats = 2000
)

// GBNF returns the grammar of a measured symbol, which matches something, in the notation of
// llama.cpp. Its rules are over characters, so it has only the texts of the symbol that are valid
// UTF-8. A bound of repetitions that is above llama.cpp's is left out, so that there are more of them.
func GBNF(root *Symbol) (string, error) {
	w := &gbnf{symbols: map[*Symbol]string{}, dfas: map[*DFA]string{}}
	first := w.name(root)
	if w.err != nil {
		return "", w.err
	}
	return "root ::= " + first + "\n" + w.rules.String(), nil
}

// A gbnf is a grammar that is being written.
type gbnf struct {
	rules   strings.Builder
	symbols map[*Symbol]string // names of rules
	dfas    map[*DFA]string
	err     error
}

// fail sets the first error.
func (w *gbnf) fail(problem string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(problem, args...)
	}
}

// rule writes a rule.
func (w *gbnf) rule(name, body string) {
	if w.rules.Len()+len(body) > maxGBNF {
		w.fail("the grammar is too large for llama.cpp")
		return
	}
	w.rules.WriteString(name + " ::= " + body + "\n")
}

// name returns a symbol as a part of a rule's body: a literal, a class, or the name of its own rule,
// which it writes.
func (w *gbnf) name(s *Symbol) string {
	switch s.kind {
	case literal:
		return quoteLiteral(s.text)
	case oneByte:
		return w.oneByte(s.class)
	case inOrder, oneOf:
		parts := liveParts(s)
		if len(parts) == 1 { // not s again: it would match nothing
			return w.name(parts[0])
		}
		if len(parts) == 0 {
			return empty
		}
	case repeat, run:
	}
	if known, ok := w.symbols[s]; ok {
		return known
	}
	name := "r" + strconv.Itoa(len(w.symbols))
	w.symbols[s] = name // before the body, which may contain s
	if w.err == nil {
		w.rule(name, w.body(s))
	}
	return name
}

const empty = `""`

// liveParts returns the parts of a sequence that are not empty, and those of a choice that match
// something.
func liveParts(s *Symbol) (parts []*Symbol) {
	for _, p := range s.parts {
		if s.kind == inOrder && p.kind == inOrder && len(p.parts) == 0 || s.kind == oneOf && p.need >= Endless {
			continue
		}
		parts = append(parts, p)
	}
	return parts
}

func (w *gbnf) body(s *Symbol) string {
	switch s.kind {
	case inOrder, oneOf:
		var names []string
		for _, p := range liveParts(s) {
			names = append(names, w.name(p))
		}
		return strings.Join(names, map[kind]string{inOrder: " ", oneOf: " | "}[s.kind])
	case repeat:
		if s.parts[0].need >= Endless {
			return empty
		}
		return w.name(s.parts[0]) + w.times(s.min, s.max)
	default: // a run
		if s.dfa.Counts {
			return w.dfa(s.dfa) + w.times(s.min, s.max)
		}
		return w.dfa(s.dfa)
	}
}

// times returns the operator for least to most repetitions; most is negative if there is no upper
// bound.
func (w *gbnf) times(least, most int) string {
	if least = min(least, maxRepeats); most > maxRepeats {
		most = -1
	}
	switch {
	case least == 0 && most < 0:
		return "*"
	case most < 0:
		return fmt.Sprintf("{%d,}", least)
	default:
		return fmt.Sprintf("{%d,%d}", least, most)
	}
}

func (w *gbnf) oneByte(c *Class) string {
	var all []leap
	for b := range utf8.RuneSelf {
		if c.Has(byte(b)) {
			all = addLeap(all, leap{rune(b), rune(b), Start})
		}
	}
	return class(all)
}

// dfa writes the rules of a DFA, one for each state between two characters, and returns the name of
// the first. Those of a DFA that counts match one character.
func (w *gbnf) dfa(d *DFA) string {
	if known, ok := w.dfas[d]; ok {
		return known
	}
	base := "d" + strconv.Itoa(len(w.dfas)) + "-"
	w.dfas[d] = base + strconv.Itoa(Start)
	tails := map[tail][]leap{}
	seen := map[uint16]bool{Start: true}
	for queue := []uint16{Start}; len(queue) > 0 && w.err == nil; queue = queue[1:] {
		var targets []uint16
		by := map[uint16][]leap{}
		for _, l := range d.leaps(queue[0], tails) {
			if by[l.state] == nil {
				targets = append(targets, l.state)
			}
			by[l.state] = append(by[l.state], l)
		}
		var choices []string
		for _, to := range targets {
			one := class(by[to])
			if ends := d.Counts && to == Start || d.accept[to] && d.live[to] == (Class{}); !ends {
				one += " " + base + strconv.Itoa(int(to))
				if !seen[to] {
					seen[to] = true
					queue = append(queue, to)
				}
			}
			choices = append(choices, one)
		}
		if d.accept[queue[0]] && !d.Counts {
			choices = append(choices, empty)
		}
		w.rule(base+strconv.Itoa(int(queue[0])), strings.Join(choices, " | "))
	}
	return w.dfas[d]
}

// A leap is a range of characters that lead to a state.
type leap struct {
	from, to rune
	state    uint16
}

// addLeap adds a range that follows all others.
func addLeap(all []leap, l leap) []leap {
	if n := len(all); n > 0 && all[n-1].to+1 == l.from && all[n-1].state == l.state {
		all[n-1].to = l.to
		return all
	}
	return append(all, l)
}

// leaps returns the characters that may follow in a state between two characters, in order.
func (d *DFA) leaps(from uint16, tails map[tail][]leap) (all []leap) {
	for b := range utf8.RuneSelf {
		if to := d.Next(from, byte(b)); to != Dead {
			all = addLeap(all, leap{rune(b), rune(b), to})
		}
	}
	for _, lead := range []struct {
		first, last byte
		bits        rune // of the character in a first byte
		more        int  // bytes
		low, high   rune
	}{{0xc2, 0xdf, 0x1f, 1, 0x80, 0x7ff}, {0xe0, 0xed, 0xf, 2, 0x800, 0xd7ff}, {0xee, 0xef, 0xf, 2, 0xe000, 0xffff}, {0xf0, 0xf4, 0x7, 3, 0x10000, utf8.MaxRune}} {
		for b := lead.first; b <= lead.last; b++ {
			base := (rune(b) & lead.bits) << (6 * lead.more)
			for _, l := range d.tail(tail{d.Next(from, b), lead.more}, tails) {
				if low, high := max(base+l.from, lead.low), min(base+l.to, lead.high); low <= high {
					all = addLeap(all, leap{low, high, l.state})
				}
			}
		}
	}
	return all
}

// A tail is the rest of a character: the state within it, and the number of bytes that follow.
type tail struct {
	state uint16
	more  int
}

// tail returns the ways on from within a character; their ranges are its last bits. known has those
// that were asked for before.
func (d *DFA) tail(at tail, known map[tail][]leap) (all []leap) {
	switch {
	case at.state == Dead:
		return nil
	case at.more == 0:
		return []leap{{0, 0, at.state}}
	}
	if all, ok := known[at]; ok {
		return all
	}
	for b := rune(0); b < 0x40; b++ {
		base := b << (6 * (at.more - 1))
		for _, l := range d.tail(tail{d.Next(at.state, byte(0x80|b)), at.more - 1}, known) { //nolint:gosec // b has six bits
			all = addLeap(all, leap{base + l.from, base + l.to, l.state})
		}
	}
	known[at] = all
	return all
}

// class returns the class of all characters of ranges.
func class(ranges []leap) string {
	var b strings.Builder
	b.WriteByte('[')
	for _, r := range ranges {
		writeCharacter(&b, r.from, false)
		if r.to > r.from {
			b.WriteByte('-')
			writeCharacter(&b, r.to, false)
		}
	}
	b.WriteByte(']')
	return b.String()
}

func quoteLiteral(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		writeCharacter(&b, r, r != '"' && r != '\\' && r >= ' ' && r <= '~')
	}
	b.WriteByte('"')
	return b.String()
}

// writeCharacter writes a character, as itself or by its number.
func writeCharacter(b *strings.Builder, r rune, plain bool) {
	switch {
	case plain, r >= '0' && r <= '9', r >= 'A' && r <= 'Z', r >= 'a' && r <= 'z':
		b.WriteRune(r)
	case r <= 0xff:
		fmt.Fprintf(b, `\x%02X`, r)
	case r <= 0xffff:
		fmt.Fprintf(b, `\u%04X`, r)
	default:
		fmt.Fprintf(b, `\U%08X`, r)
	}
}
