package pattern

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestExpressionThatBacktracksEndsWithErrSlow(t *testing.T) {
	for expression, s := range map[string]string{
		`(a+)+$`:                         strings.Repeat("a", 40) + "b",
		`(a*)*\1b`:                       strings.Repeat("a", 40),
		`((a{1,1000}){1,1000}){1,1000}b`: strings.Repeat("a", 1000),
	} {
		p, err := newEngine(expression)
		if err != nil {
			t.Fatal(err)
		}
		e := p.(engine)
		e.re.MatchTimeout = 10 * time.Millisecond // no time is enough
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
	if _, err := New(strings.Repeat("(", maxExpression/2) + strings.Repeat(")", maxExpression/2)); err != nil {
		t.Error(err)
	}
}
