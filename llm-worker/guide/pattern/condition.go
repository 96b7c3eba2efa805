package pattern

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
)

// A Condition is an expression that a string must match, or must not match.
type Condition struct {
	Expression string
	Not        bool
}

// Exactly returns an expression that only these texts match.
func Exactly(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quote.Replace(text)
	}
	return "^(?:" + strings.Join(quoted, "|") + ")$"
}

var quote = func() *strings.Replacer {
	var pairs []string
	for _, special := range `\^$.*+?()[]{}|/` {
		pairs = append(pairs, string(special), `\`+string(special))
	}
	return strings.NewReplacer(pairs...)
}()

// compile returns the program of the expression.
func (c Condition) compile() (*program, error) {
	if len(c.Expression) > maxExpression {
		return nil, fmt.Errorf("it has %d bytes; it can have %d", len(c.Expression), maxExpression)
	}
	t := &translator{in: c.Expression}
	if err := t.translate(); err != nil {
		return nil, err
	}
	p, names, err := newProgram(t.out.String())
	if err != nil {
		return nil, err
	}
	p.not, p.looks = c.Not, make(map[int]*program, len(t.looks))
	for _, l := range t.looks {
		look, _, err := newProgram("(?:" + l.translated + ")")
		if err != nil {
			return nil, err
		}
		look.not, look.ahead, look.back = l.not, !l.back, l.back
		p.looks[slices.Index(names, l.name)] = look
	}
	return p, nil
}

// newProgram compiles an expression of Go's syntax. It returns the names of its groups, by their
// numbers.
func newProgram(expression string) (*program, []string, error) {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, nil, fmt.Errorf("it is not a regular expression: %w", err)
	}
	names := parsed.CapNames()
	compiled, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, nil, fmt.Errorf("it is not a regular expression: %w", err)
	}
	return &program{Prog: compiled}, names, nil
}
