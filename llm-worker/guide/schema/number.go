package schema

import (
	"math"
	"strconv"
	"strings"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// maxDigits is the number of digits that a float64 keeps of every decimal.
const maxDigits = 15

var (
	digit = grammar.OneByte('0', '9')
	// tails holds the symbols for the text behind the digits before a point, by the maximum number
	// of digits behind it.
	tails = func() (all [maxDigits + 1]*grammar.Symbol) {
		all[0] = grammar.Measure(grammar.Sequence())
		for n := 1; n <= maxDigits; n++ {
			all[n] = grammar.Measure(grammar.Optional(grammar.Sequence(grammar.Literal("."), grammar.Repeat(1, n, digit))))
		}
		return all
	}()
	// rests[n][k] is the symbol for the text behind k digits of a number with at most n digits
	// before the point.
	rests = func() (all [maxDigits + 1][maxDigits + 1]*grammar.Symbol) {
		for n := 1; n <= maxDigits; n++ {
			all[n][n] = tails[maxDigits-n]
			for k := n - 1; k > 0; k-- {
				all[n][k] = grammar.Measure(grammar.Choice(tails[maxDigits-k], grammar.Sequence(digit, all[n][k+1])))
			}
		}
		return all
	}()

	// anyNumber matches every number.
	anyNumber = grammar.Measure(grammar.Sequence(grammar.Optional(grammar.Literal("-")), grammar.Choice(grammar.Sequence(grammar.Literal("0"), tails[maxDigits]), grammar.Sequence(grammar.OneByte('1', '9'), rests[maxDigits][1]))))
	// anyInteger matches every whole number.
	anyInteger = grammar.Measure(grammar.Sequence(grammar.Optional(grammar.Literal("-")), grammar.Choice(grammar.Literal("0"), grammar.Sequence(grammar.OneByte('1', '9'), grammar.Repeat(0, maxDigits-1, digit)))))
)

// A numberLimit is one end of an interval of numbers; nil is unbounded.
type numberLimit struct {
	Value float64
	Open  bool // Value itself is outside
}

// numbersBetween returns the numbers from low to high that have at most places digits after the
// point; a negative number of places sets no bound.
//
// Numbers are written in decimal, without exponents, with at most maxDigits digits before and after
// the point together; a zero before the point does not count. Two such decimals that differ are
// different float64s in the same order. So a number whose decimal form is within its bounds is also
// within them as a float64.
func numbersBetween(low, high *numberLimit, places int) *grammar.Symbol {
	one := grammar.Choice()
	if high == nil || high.Value > 0 || high.Value == 0 && !high.Open {
		var lo *numberBound
		if low != nil && low.Value >= 0 {
			lo = newNumberBound(low)
		}
		one.Or(magnitudes{lo, newNumberBound(high), places}.symbol())
	}
	if low == nil || low.Value < 0 {
		lo := &numberBound{whole: "0", open: true} // 0 has no sign
		if high != nil && high.Value < 0 {
			lo = newNumberBound(high)
		}
		one.Or(grammar.Sequence(grammar.Literal("-"), magnitudes{lo, newNumberBound(low), places}.symbol()))
	}
	return grammar.Measure(one)
}

// A numberBound is a limit in decimal, without its sign.
type numberBound struct {
	whole    string // digits before the point, without zeros in front; "0" for none
	fraction string // digits behind it, without zeros at the end
	open     bool
}

// newNumberBound returns the shortest decimal that is read as the limit; nil for nil.
func newNumberBound(l *numberLimit) *numberBound {
	if l == nil {
		return nil
	}
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(math.Abs(l.Value), 'f', -1, 64), ".")
	return &numberBound{whole, fraction, l.Open}
}

// magnitudes are the numbers without a sign between two bounds; a nil bound is absent.
type magnitudes struct {
	low, high *numberBound
	places    int // maximum number of digits behind the point; negative for no other bound than maxDigits
}

// digits returns the maximum number of digits behind the point if there are n before it.
func (m magnitudes) digits(n int) int {
	if m.places >= 0 {
		return min(m.places, maxDigits-n)
	}
	return maxDigits - n
}

func (m magnitudes) symbol() *grammar.Symbol {
	one := grammar.Choice()
	shortest, longest := 1, maxDigits-max(m.places, 0) // digits before the point, of numbers from 1 on
	if m.low == nil || m.low.whole == "0" {
		one.Or(grammar.Sequence(grammar.Literal("0"), m.behind(m.low != nil, m.high != nil && m.high.whole == "0", m.digits(0))))
	} else {
		shortest = len(m.low.whole)
	}
	if m.high != nil {
		longest = min(longest, len(m.high.whole))
		if m.high.whole == "0" {
			longest = 0
		}
	}
	for n := shortest; n <= longest; n++ {
		low, high := m.low != nil && m.low.whole != "0" && len(m.low.whole) == n, m.high != nil && len(m.high.whole) == n
		if low || high {
			one.Or(m.whole(n, 0, low, high))
			continue
		}
		last := longest // of the lengths that no bound has
		if m.high != nil && len(m.high.whole) == longest {
			last--
		}
		rest := grammar.Sequence(grammar.Repeat(n-1, last-1, digit), tails[m.digits(last)])
		if m.places < 0 {
			rest = grammar.Sequence(grammar.Repeat(n-1, n-1, digit), rests[last][n])
		}
		one.Or(grammar.Sequence(grammar.OneByte('1', '9'), rest))
		n = last
	}
	return one
}

// whole returns the numbers with n digits before the point, from the digit at on. low and high
// report whether the digits before it equal those of the lower and the upper bound.
func (m magnitudes) whole(n, at int, low, high bool) *grammar.Symbol {
	if at == n {
		return m.behind(low, high, m.digits(n))
	}
	if !low && !high {
		return grammar.Sequence(grammar.Repeat(n-at, n-at, digit), tails[m.digits(n)])
	}
	from, to := byte('0'), byte('9')
	switch {
	case low:
		from = m.low.whole[at]
	case at == 0:
		from = '1'
	}
	if high {
		to = m.high.whole[at]
	}
	return digitBranch(from, to, low, high, func(low, high bool) *grammar.Symbol { return m.whole(n, at+1, low, high) })
}

// digitBranch returns the digits from one to another, each with its continuation, which depends on
// whether the digits so far equal those of the lower and of the upper bound.
func digitBranch(from, to byte, low, high bool, next func(low, high bool) *grammar.Symbol) *grammar.Symbol {
	if from == to {
		return grammar.Sequence(grammar.Byte(from), next(low, high))
	}
	one := grammar.Choice()
	if low {
		one.Or(grammar.Sequence(grammar.Byte(from), next(true, false)))
		from++
	}
	if high {
		one.Or(grammar.Sequence(grammar.Byte(to), next(false, true)))
		to--
	}
	if from <= to {
		one.Or(grammar.Sequence(grammar.OneByte(from, to), next(false, false)))
	}
	return one
}

// behind returns the text that may follow the digits before the point, with at most n digits behind
// it.
func (m magnitudes) behind(low, high bool, n int) *grammar.Symbol {
	one := grammar.Choice()
	if m.mayEnd(0, low, high) {
		one.Or(grammar.Sequence())
	}
	if n > 0 {
		one.Or(grammar.Sequence(grammar.Literal("."), m.fraction(0, low, high, n)))
	}
	return one
}

// mayEnd reports whether a number may end in front of the digit at behind the point.
func (m magnitudes) mayEnd(at int, low, high bool) bool {
	return (!low || at >= len(m.low.fraction) && !m.low.open) && (!high || at < len(m.high.fraction) || !m.high.open)
}

// fraction returns one to n digits behind the point, from the digit at on. low and high report
// whether the digits before it equal those of the bound; a bound is padded with zeros.
func (m magnitudes) fraction(at int, low, high bool, n int) *grammar.Symbol {
	low = low && (at < len(m.low.fraction) || m.low.open) // else every digit makes the number larger
	switch {
	case n == 0 || high && at >= len(m.high.fraction) && m.high.open: // no digit is left
		return grammar.Choice()
	case !low && !high:
		return grammar.Repeat(1, n, digit)
	}
	from, to := byte('0'), byte('9')
	if low && at < len(m.low.fraction) {
		from = m.low.fraction[at]
	}
	if high {
		if to = '0'; at < len(m.high.fraction) {
			to = m.high.fraction[at]
		}
	}
	if from > to {
		return grammar.Choice()
	}
	return digitBranch(from, to, low, high, func(low, high bool) *grammar.Symbol {
		one := grammar.Choice()
		if m.mayEnd(at+1, low, high) {
			one.Or(grammar.Sequence())
		}
		one.Or(m.fraction(at+1, low, high, n-1))
		return one
	})
}
