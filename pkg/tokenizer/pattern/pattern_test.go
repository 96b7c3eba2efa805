package pattern

import (
	"errors"
	"strings"
	"testing"
)

func TestExpressionThatBacktracksEndsWithErrSlow(t *testing.T) {
	for expression, s := range map[string]string{
		`((?:a|aa)+)+$`:        strings.Repeat("a", 60) + "b",
		`(a*)*b`:               strings.Repeat("a", 1<<15),
		`(?:(?:ab?)*a)*c`:      strings.Repeat("ab", 1<<10),
		`(?:[ab]{1,9}){1,99}c`: strings.Repeat("a", 1000),
	} {
		e, err := newExpression(expression, oniguruma)
		if err != nil {
			t.Fatal(err)
		}
		e.steps = 1 << 10
		if spans, err := e.Matches(nil, s); !errors.Is(err, ErrSlow) {
			t.Errorf("%s: %d matches, %v", expression, len(spans), err)
		}
	}
}

func TestLongExpressionIsRefused(t *testing.T) {
	for _, expression := range []string{strings.Repeat("(", 1<<20), strings.Repeat("a", maxExpression+1)} {
		if _, err := New(expression); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.1000v", err)
		}
	}
	for _, expression := range []string{strings.Repeat("(", maxDepth+1) + strings.Repeat(")", maxDepth+1), "((a|bc){1000}){1000}", strings.Repeat(`(?i:[\p{L}])`, 600)} {
		if _, err := New(expression); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.1000v", err)
		}
	}
}

// TestRepetitionsAreMadeOnce: the tables of a repeated class are 8 KiB, and take long to make.
func TestRepetitionsAreMadeOnce(t *testing.T) {
	for _, text := range []string{`(?:\p{L}\p{N}){2000}`, `(?i:(?:a\p{L}st){2000})`} {
		n, err := parse(text, oniguruma)
		if err != nil {
			t.Fatal(err)
		}
		prog, err := compile(n)
		if err != nil {
			t.Fatal(err)
		}
		sets := make(map[*charset]bool)
		for _, in := range prog.code {
			if in.set != nil {
				sets[in.set] = true
			}
		}
		if len(prog.code) < 4000 || len(sets) > 6 {
			t.Errorf("%s: %d instructions with %d sets", text, len(prog.code), len(sets))
		}
	}
}

// TestRepetitionsOfNothingTakeNoTime: a compiler that repeats them would never end.
func TestRepetitionsOfNothingTakeNoTime(t *testing.T) {
	for _, expression := range []string{`(?:(?:(?:){100000}){100000}){100000}a`, `(?:(?:(?:b|c){0}){100000}){100000}a`, `((()|){9999})*a`} {
		e, err := New(expression)
		if err != nil {
			t.Fatal(err)
		}
		if spans, err := e.Matches(nil, "ba"); err != nil || len(spans) == 0 {
			t.Errorf("%s: %v, %v", expression, spans, err)
		}
	}
}
