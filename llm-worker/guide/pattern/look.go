package pattern

import (
	"cmp"
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"strings"
)

// A debt is a lookahead that a thread has passed: a positive one still has to match, a negative one must
// not.
type debt struct {
	look    *program
	threads []thread
}

// look passes a lookaround. It returns the debts of the thread then, and false if the thread ends.
func (m *machine) look(look *program, debts int32, at syntax.EmptyOp, seen map[*program]bool) (int32, bool) {
	if !look.ahead {
		return debts, seen[look] != look.not
	}
	threads, matched := m.closure(look, []thread{look.start()}, at, nil)
	switch {
	case matched:
		return debts, !look.not
	case len(threads) == 0 || at&syntax.EmptyEndText != 0:
		return debts, look.not
	default:
		return m.owe(append(slices.Clone(m.debts[debts]), debt{look, threads})), true
	}
}

// now returns the debts that are left when the conditions at hold, and false if one has failed.
func (m *machine) now(debts int32, at syntax.EmptyOp) (int32, bool) {
	return m.settle(m.debts[debts], at, func(d debt) ([]thread, bool) { return m.closure(d.look, d.threads, at, nil) })
}

// later returns the debts that are left after a character of a class, and false if one has failed.
func (m *machine) later(debts int32, class int) (int32, bool) {
	return m.settle(m.debts[debts], 0, func(d debt) ([]thread, bool) {
		return m.closure(d.look, m.after(d.look, d.threads, class), 0, nil)
	})
}

// settle moves the threads of debts, and removes the debts that are decided.
func (m *machine) settle(debts []debt, at syntax.EmptyOp, move func(debt) ([]thread, bool)) (int32, bool) {
	var left []debt
	for _, d := range debts {
		threads, matched := move(d)
		switch {
		case matched && d.look.not, !matched && !d.look.not && (len(threads) == 0 || at&syntax.EmptyEndText != 0):
			return 0, false
		case matched, len(threads) == 0, at&syntax.EmptyEndText != 0:
		default:
			left = append(left, debt{d.look, threads})
		}
	}
	return m.owe(left), true
}

// owe returns the number of a set of debts.
func (m *machine) owe(debts []debt) int32 {
	if len(debts) == 0 {
		return 0
	}
	keys := make([]string, len(debts))
	for i, d := range debts {
		key := binary.LittleEndian.AppendUint32(nil, uint32(d.look.number)) //nolint:gosec // an expression is short
		keys[i] = string(appendThreads(key, d.threads))
		m.left -= 1 + len(d.threads)
	}
	order := make([]int, len(debts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
	order = slices.CompactFunc(order, func(a, b int) bool { return keys[a] == keys[b] })
	var parts []string
	var set []debt
	for _, i := range order {
		parts, set = append(parts, keys[i]), append(set, debts[i])
	}
	all := strings.Join(parts, "")
	number, known := m.owed[all]
	if !known {
		number = int32(len(m.debts)) //nolint:gosec // bounded by the budget
		m.debts, m.owed[all] = append(m.debts, set), number
	}
	return number
}
