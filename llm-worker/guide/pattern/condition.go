package pattern

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// A Condition is an expression that a string must match, or must not match.
type Condition struct {
	Expression string
	Not        bool
}

// Match returns a function that reports whether a text matches an expression.
func Match(expression string) (func(text string) bool, error) {
	parts := Condition{Expression: expression}.split()
	all := make([]*regexp.Regexp, len(parts))
	for i, part := range parts {
		translated, err := part.translate()
		if err != nil {
			return nil, err
		}
		if all[i], err = regexp.Compile(translated); err != nil {
			return nil, fmt.Errorf("it is not a regular expression: %w", err)
		}
	}
	return func(text string) bool {
		for i, part := range parts {
			if all[i].MatchString(text) == part.Not {
				return false
			}
		}
		return true
	}, nil
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

// translate returns the expression in Go's syntax.
func (c Condition) translate() (string, error) {
	if len(c.Expression) > maxExpression {
		return "", fmt.Errorf("it has %d bytes; it can have %d", len(c.Expression), maxExpression)
	}
	return translate(c.Expression)
}

func (c Condition) compile() (*syntax.Prog, error) {
	translated, err := c.translate()
	if err != nil {
		return nil, err
	}
	var prog *syntax.Prog
	parsed, err := syntax.Parse(translated, syntax.Perl)
	if err == nil {
		prog, err = syntax.Compile(parsed.Simplify())
	}
	if err != nil {
		return nil, fmt.Errorf("it is not a regular expression: %w", err)
	}
	return prog, nil
}

// split returns conditions without lookaround that together are equal to c: lookaheads after a ^ that
// begins the expression, and lookbehinds before a $ that ends it, become conditions of their own. It
// leaves lookaround at other places, and that of an expression that must not match.
func (c Condition) split() []Condition {
	c.Expression = plain(c.Expression)
	e := c.Expression
	groups, ok := outerGroups(e)
	if !ok || c.Not {
		return []Condition{c}
	}
	var all []Condition
	from, to := 0, len(e)
	if strings.HasPrefix(e, "^") {
		from = 1
		for ; len(groups) > 0 && groups[0].from == from; groups = groups[1:] {
			inside, not, is := groups[0].lookaround(e, "(?=", "(?!")
			if repeated := strings.IndexByte("*+?{", (e + " ")[groups[0].to]) >= 0; !is || repeated {
				break
			}
			all = append(all, Condition{"^(?:" + inside + ")", not})
			from = groups[0].to
		}
	}
	if strings.HasSuffix(e, "$") {
		to--
		for ; len(groups) > 0 && groups[len(groups)-1].to == to; groups = groups[:len(groups)-1] {
			last := groups[len(groups)-1]
			inside, not, is := last.lookaround(e, "(?<=", "(?<!")
			if !is {
				break
			}
			all = append(all, Condition{"(?:" + inside + ")$", not})
			to = last.from
		}
	}
	if len(all) == 0 {
		return []Condition{c}
	}
	rest := e[from:to]
	if strings.HasPrefix(e, "^") {
		rest = "^" + rest
	}
	if strings.HasSuffix(e, "$") {
		rest += "$"
	}
	return append(all, Condition{Expression: rest})
}

// A group is a parenthesized part of an expression, as the range of its bytes.
type group struct{ from, to int }

// lookaround returns the expression inside a lookaround group of e, which begins with positive or
// negative. ok is false for other groups.
func (g group) lookaround(e, positive, negative string) (inside string, not, ok bool) {
	text := e[g.from:g.to]
	not = strings.HasPrefix(text, negative)
	if !not && !strings.HasPrefix(text, positive) {
		return "", false, false
	}
	return text[len(positive) : len(text)-1], not, true // both have one length
}

// outerGroups returns the groups of an expression that are not within others. ok is false if it has
// alternatives outside groups.
func outerGroups(e string) (all []group, ok bool) {
	depth, from := 0, 0
	for i := 0; i < len(e); i++ {
		switch e[i] {
		case '\\':
			i++
		case '[':
			for i++; i < len(e) && e[i] != ']'; i++ {
				if e[i] == '\\' {
					i++
				}
			}
		case '(':
			if depth++; depth == 1 {
				from = i
			}
		case ')':
			if depth--; depth == 0 {
				all = append(all, group{from, i + 1})
			}
		case '|':
			if depth == 0 {
				return nil, false
			}
		}
	}
	return all, true
}
