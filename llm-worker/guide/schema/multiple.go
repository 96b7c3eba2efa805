package schema

import (
	"math"
	"math/big"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

const (
	// maxMultiples bounds the multiples that are listed.
	maxMultiples = 1 << 12
	// maxDivisor bounds the divisor of multiples without bounds, which have a symbol for each
	// remainder and digit.
	maxDivisor = 1 << 10
)

// multiples returns the multiples of step within the bounds: all of them if they are few, or else
// whole numbers by their remainders.
func (c *Compiler) multiples(s schema, step *big.Rat, integer bool, low, high *numberLimit) (*grammar.Symbol, error) {
	if integer {
		step = new(big.Rat).SetInt(step.Num()) // the least whole multiple
	}
	if low != nil && high != nil {
		texts, ok := between(step, low, high)
		switch {
		case !ok:
			return nil, s.wrong("multipleOf", "there are more than %d multiples within its bounds", maxMultiples)
		case len(texts) == 0:
			return nil, s.wrong("multipleOf", "there is no multiple within its bounds")
		}
		return grammar.OneText(texts), c.take(s.node, len(texts))
	}
	if !step.IsInt() || !step.Num().IsInt64() || step.Num().Int64() > maxDivisor {
		return nil, s.wrong("multipleOf", "it is %s; without minimum and maximum only whole numbers up to %d and negative powers of ten are supported", step.RatString(), maxDivisor)
	}
	divisor := int(step.Num().Int64())
	if err := c.take(s.node, numberParts+divisor*maxDigits); err != nil {
		return nil, err
	}
	one := grammar.Choice()
	fits := true
	if high == nil {
		fits = beyond(one, "", divisor, step, low)
	}
	if low == nil {
		fits = beyond(one, "-", divisor, step, mirrored(high)) && fits
	}
	if !fits {
		return nil, s.wrong("multipleOf", "there are more than %d multiples between its bound and the next power of ten", maxMultiples)
	}
	if low == nil && high == nil {
		one.Or(grammar.Literal("0"))
	}
	return one, nil
}

// mirrored returns the limit of the numbers with the other sign.
func mirrored(l *numberLimit) *numberLimit {
	if l == nil {
		return nil
	}
	return &numberLimit{Value: -l.Value, Open: l.Open}
}

// beyond adds to one the multiples of this sign beyond a limit, which is nil for all but 0: those up
// to the next power of ten one by one, and those with more digits by their remainders. It returns false
// if the former are too many.
func beyond(one *grammar.Symbol, sign string, divisor int, step *big.Rat, from *numberLimit) bool {
	digits := 1
	if from != nil {
		if from.Value >= math.Pow10(maxDigits-1) {
			return false
		}
		top := 1.0
		for digits = 1; top <= from.Value && digits < maxDigits; digits++ {
			top *= 10
		}
		texts, ok := between(step, from, &numberLimit{Value: top, Open: true})
		if !ok {
			return false
		}
		for i, text := range texts {
			texts[i] = negated(text, sign)
		}
		if len(texts) > 0 {
			one.Or(grammar.OneText(texts))
		}
	}
	one.Or(grammar.Sequence(grammar.Literal(sign), divisible(divisor, digits)))
	return true
}

// negated returns the number with the sign turned if sign is "-".
func negated(text, sign string) string {
	switch {
	case sign == "" || text == "0":
		return text
	case text[0] == '-':
		return text[1:]
	default:
		return sign + text
	}
}

// divisible matches the positive multiples of a divisor with at least this many digits.
func divisible(divisor, least int) *grammar.Symbol {
	type place struct{ remainder, digits int }
	known := map[place]*grammar.Symbol{}
	var after func(p place) *grammar.Symbol
	after = func(p place) *grammar.Symbol {
		if one := known[p]; one != nil {
			return one
		}
		one := grammar.Choice()
		known[p] = one
		if p.remainder == 0 && p.digits >= least {
			one.Or(grammar.Sequence())
		}
		if p.digits < maxDigits {
			for d := range 10 {
				if p.digits == 0 && d == 0 {
					continue
				}
				one.Or(grammar.Sequence(grammar.Byte(byte('0'+d)), after(place{(10*p.remainder + d) % divisor, p.digits + 1})))
			}
		}
		return one
	}
	return after(place{})
}

// between returns the multiples of step between two limits as decimals. ok is false if there are too
// many.
func between(step *big.Rat, low, high *numberLimit) (texts []string, ok bool) {
	from, to := exact(low.Value), exact(high.Value)
	n := new(big.Rat).Quo(from, step)
	k := new(big.Int).Div(n.Num(), n.Denom()) // rounded down
	places := 0
	for at := new(big.Rat).Set(step); !at.IsInt() && places < maxDigits; places++ {
		at.Mul(at, big.NewRat(10, 1))
	}
	for ; ; k.Add(k, big.NewInt(1)) {
		v := new(big.Rat).Mul(new(big.Rat).SetInt(k), step)
		if order := v.Cmp(to); order > 0 || order == 0 && high.Open {
			return texts, true
		}
		if order := v.Cmp(from); order < 0 || order == 0 && low.Open {
			continue
		}
		if len(texts) == maxMultiples {
			return nil, false
		}
		texts = append(texts, v.FloatString(places))
	}
}
