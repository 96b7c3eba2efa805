package schema

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// A reader follows texts through a symbol byte by byte, without a vocabulary.
type reader struct {
	automaton *grammar.Automaton
	start     *grammar.State
}

func newReader(s *grammar.Symbol) *reader {
	a, start := grammar.New(s)
	return &reader{a, start}
}

// accepts reports whether the symbol matches a text.
func (r *reader) accepts(text string) bool {
	at := r.start
	for i := range len(text) {
		if at = r.automaton.Step(at, text[i]); at == nil {
			return false
		}
	}
	return at.Done()
}

// draw draws a random text of the symbol.
func (r *reader) draw(random *rand.Rand) string {
	at := r.start
	for text := []byte(nil); ; {
		var may []byte
		for i := range 256 {
			if b := byte(i); r.automaton.Step(at, b) != nil {
				may = append(may, b)
			}
		}
		if at.Done() && (len(may) == 0 || random.IntN(12) == 0) {
			return string(text)
		}
		b := may[random.IntN(len(may))]
		text, at = append(text, b), r.automaton.Step(at, b)
	}
}

// A span holds the bounds of a schema; nil means no bound.
type span struct {
	low, high         *float64
	lowOpen, highOpen bool
	integer           bool
	places            int // digits behind the point; 0 for no bound
}

func (s span) schema() schema {
	all := map[string]json.RawMessage{}
	put := func(name string, v *float64) {
		if v != nil {
			all[name] = json.RawMessage(strconv.FormatFloat(*v, 'g', -1, 64))
		}
	}
	put(map[bool]string{false: "minimum", true: "exclusiveMinimum"}[s.lowOpen], s.low)
	put(map[bool]string{false: "maximum", true: "exclusiveMaximum"}[s.highOpen], s.high)
	if s.places > 0 {
		all["multipleOf"] = json.RawMessage(fmt.Sprintf("1e-%d", s.places))
	}
	return schema{node: node{at: &place{root: "#"}}, is: all}
}

// holds compares decimals exactly. A bound is the shortest decimal of its float64.
func (s span) holds(t testing.TB, text string) bool {
	t.Helper()
	v, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Fatalf("%q is no number", text)
	}
	cmp := func(bound float64) int {
		b, _ := new(big.Rat).SetString(strconv.FormatFloat(bound, 'g', -1, 64))
		return v.Cmp(b)
	}
	if s.low != nil {
		if c := cmp(*s.low); c < 0 || c == 0 && s.lowOpen {
			return false
		}
	}
	if s.high != nil {
		if c := cmp(*s.high); c > 0 || c == 0 && s.highOpen {
			return false
		}
	}
	return true
}

// holdsAsFloat compares float64s, as most readers do.
func (s span) holdsAsFloat(text string) bool {
	v, err := strconv.ParseFloat(text, 64)
	return err == nil && (s.low == nil || v > *s.low || v == *s.low && !s.lowOpen) && (s.high == nil || v < *s.high || v == *s.high && !s.highOpen)
}

var (
	whole   = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)
)

// writable reports whether a text is a number in the form that guides write.
func (s span) writable(text string) bool {
	form := decimal
	if s.integer {
		form = whole
	}
	before, behind, _ := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	if before == "0" {
		before = ""
		if s.low != nil || s.high != nil || s.places > 0 && !s.integer {
			if v, _ := strconv.ParseFloat(text, 64); v == 0 && text[0] == '-' {
				return false // with bounds, 0 has no sign
			}
		}
	}
	if s.places > 0 && !s.integer && (len(behind) > s.places || len(before) > maxDigits-s.places) {
		return false
	}
	return form.MatchString(text) && len(before)+len(behind) <= maxDigits
}

func (s span) String() string { return fmt.Sprintf("%s, integer %t", s.schema().is, s.integer) }

// check compares the span's symbol with the span, for texts drawn from the symbol and for others.
func (s span) check(t testing.TB, r *rand.Rand, others ...string) {
	t.Helper()
	one, err := NewCompiler().number(s.schema(), s.integer)
	if one == nil {
		one = grammar.Measure(grammar.Choice())
	}
	numbers := newReader(one)
	if err == nil {
		for range 10 {
			text := numbers.draw(r)
			if !s.writable(text) || !s.holds(t, text) || !s.holdsAsFloat(text) {
				t.Fatalf("%s: allows %s", s, text)
			}
		}
	}
	for _, text := range others {
		if want, got := s.writable(text) && s.holds(t, text), numbers.accepts(text); got != want {
			t.Fatalf("%s: accepts %s: %t, want %t (%v)", s, text, got, want, err)
		}
	}
}

// near returns decimals at and around a bound, with few and with many digits.
func near(v float64, r *rand.Rand) (all []string) {
	for _, digits := range []int{0, 1, 2, 3, 8, 14, 15} {
		step := math.Pow(10, -float64(digits))
		for _, by := range []float64{-step, 0, step, step * r.Float64()} {
			all = append(all, strconv.FormatFloat(v+by, 'f', digits, 64))
		}
	}
	return append(all, strconv.FormatFloat(v, 'f', -1, 64), strconv.FormatFloat(v, 'f', -1, 64)+"0")
}

// randomBound returns a bound with few or many digits: small, large, or a whole number.
func randomBound(r *rand.Rand) *float64 {
	v := (r.Float64()*2 - 1) * math.Pow(10, float64(r.IntN(20)-6))
	switch r.IntN(4) {
	case 0:
		return nil
	case 1:
		v = math.Trunc(v)
	case 2:
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 1+r.IntN(4), 64), 64)
	}
	return &v
}

func TestNumbersAreWithinTheirBoundsExactly(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range tier.Of(300, 1500) {
		s := span{randomBound(r), randomBound(r), r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(3) == 0, max(0, r.IntN(12)-6)}
		if s.low != nil && s.high != nil && *s.low > *s.high {
			s.low, s.high = s.high, s.low
		}
		others := []string{"0", "-0", "0.0", "1", "-1", "1.0", "999999999999999", "9999999999999999", "0.000000000000001", "0.0000000000000001", "01"}
		for _, v := range []*float64{s.low, s.high} {
			if v != nil {
				others = append(others, near(*v, r)...)
			}
		}
		if s.low != nil && s.high != nil {
			for range 10 {
				others = append(others, strconv.FormatFloat(*s.low+(*s.high-*s.low)*r.Float64(), 'f', r.IntN(16), 64))
			}
		}
		s.check(t, r, others...)
	}
}

func FuzzNumbersAreWithinTheirBoundsExactly(f *testing.F) {
	f.Add(0.0, 1.0, uint8(1), 0.5, uint8(3), uint64(1))
	f.Add(0.2, 0.8, uint8(0), 0.75, uint8(15), uint64(2))
	f.Add(-120.0, -7.0, uint8(6), -7.5, uint8(0), uint64(3))
	f.Add(0.30000000000000004, 1e300, uint8(1), 0.3, uint8(15), uint64(4))
	f.Add(-1e-300, 5e-324, uint8(3), 0.0, uint8(15), uint64(5))
	f.Add(-3.25, 1000.5, uint8(2<<5), 0.75, uint8(2), uint64(6))
	f.Add(99.99, 123456789012.3456, uint8(5<<5+3), 100.12345, uint8(5), uint64(7))
	f.Fuzz(func(t *testing.T, low, high float64, flags uint8, v float64, digits uint8, seed uint64) {
		if math.IsNaN(low+high+v) || math.IsInf(low, 0) || math.IsInf(high, 0) || math.IsInf(v, 0) {
			return
		}
		s := span{&low, &high, flags&1 != 0, flags&2 != 0, flags&4 != 0, int(flags >> 5)}
		if flags&8 != 0 {
			s.low = nil
		}
		if flags&16 != 0 {
			s.high = nil
		}
		r := rand.New(rand.NewPCG(seed, 1))
		s.check(t, r, append(append(near(low, r), near(high, r)...), strconv.FormatFloat(v, 'f', int(digits%20), 64))...)
	})
}

func TestFractionsWithinBoundsAreAccepted(t *testing.T) {
	for text, examples := range map[string]struct{ yes, no string }{
		`{"type":"number","exclusiveMinimum":0,"maximum":1}`:            {"1 0.5 1.0 1.00 0.000000000000001 0.999999999999999", "0 0.0 1.1 1.01 -0.5 -0 2 1e0 .5 01 0.0000000000000001"},
		`{"type":"number","minimum":0.2,"maximum":0.8}`:                 {"0.2 0.20 0.5 0.8 0.80 0.25 0.79", "0.19 0.81 0.801 1 0 0.1999"},
		`{"type":"number","minimum":0.2,"exclusiveMaximum":0.25}`:       {"0.2 0.24 0.2499", "0.25 0.250 0.3"},
		`{"type":"number","minimum":-1.5,"maximum":2.25}`:               {"-1.5 -1.25 -0.5 0 1 2 2.25 2.2 -1", "-1.51 -2 2.26 2.3 3"},
		`{"type":"number","exclusiveMinimum":-3,"exclusiveMaximum":-2}`: {"-2.5 -2.001 -2.999", "-2 -3 -3.0 2.5 -2.0"},
		`{"type":"number","minimum":9.95,"maximum":1000.5}`:             {"9.95 9.96 10 99.99 100 1000 1000.5 1000.25", "9.94 9.9 1000.51 1001 9"},
		`{"type":"number","minimum":1,"exclusiveMinimum":1}`:            {"1.5 2", "1 1.0"},
		`{"type":"integer","exclusiveMinimum":0.5,"maximum":10.9}`:      {"1 9 10", "0 11 1.0 0.7"},
		`{"type":"integer","minimum":-2.5,"exclusiveMaximum":3}`:        {"-2 0 2", "-3 3 -0"},
		`{"type":"number","minimum":0.30000000000000004,"maximum":0.4}`: {"0.300000000000001 0.4", "0.3 0.300000000000000"},
		`{"type":"number","exclusiveMinimum":99999.99,"maximum":1e5}`:   {"100000 99999.991", "99999.99 100000.1"},
		`{"type":"number","multipleOf":0.01,"minimum":0.5}`:             {"0.5 0.51 1 12.30 9999999999999.99", "0.505 0.49 12.345"},
		`{"type":"number","multipleOf":1}`:                              {"-3 0 12", "0.5 1.0"},
		`{"type":"integer","multipleOf":0.1,"maximum":5}`:               {"5 -12", "0.1 6"},
		`{"multipleOf":0.1}`: {"0.1 -0.5 3", "0.11"},
		`{"type":"number"}`:  {"-0 0.123456789012345 123456789012345 1234567.12345678", "1e5 1234567.123456789 1E2 +1"},
	} {
		one, err := NewCompiler().Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		numbers := newReader(grammar.Measure(one))
		for _, v := range strings.Fields(examples.yes) {
			if !numbers.accepts(v) {
				t.Errorf("%s refuses %s", text, v)
			}
		}
		for _, v := range strings.Fields(examples.no) {
			if numbers.accepts(v) {
				t.Errorf("%s accepts %s", text, v)
			}
		}
	}
}

func TestTextsAreEscapedOnlyWhereTheyMustBe(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"object","properties":{"R&D <x>":{"type":"null"}},"required":["R&D <x>"],"additionalProperties":false}`:   `{"R&D <x>":null}`,
		`{"type":"object","properties":{"a\u2028b":{"type":"null"}},"required":["a\u2028b"],"additionalProperties":false}`: "{\"a\u2028b\":null}",
		`{"enum":["<a> & b"]}`:        `"<a> & b"`,
		`{"const":"\\u2028"}`:         `"\\u2028"`,
		`{"const":{"k&":["\u2029"]}}`: "{\"k&\":[\"\u2029\"]}",
		`{"const":"\"\\\n\u0001"}`:    `"\"\\\n\u0001"`,
	} {
		one, err := NewCompiler().Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		if !newReader(grammar.Measure(one)).accepts(want) {
			t.Errorf("%s refuses %s", text, want)
		}
	}
}
