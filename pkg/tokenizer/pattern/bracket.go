package pattern

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// class reads a class outside of other classes. Ignoring case applies to the whole class, before its
// negation, and adds the texts that are equal to one of its characters, such as "ss" for "ß".
func (p *parser) class() (*node, error) {
	s, not, err := p.bracket()
	if err == nil && p.fold {
		err = p.count(foldCost)
	}
	if err != nil {
		return nil, err
	}
	n := &node{kind: setNode, set: s}
	if p.fold {
		n.set = s.folded()
	}
	if not {
		n.set = n.set.negate()
		return n, nil
	}
	if !p.fold || p.dialect == tiktoken {
		return n, nil
	}
	choice := &node{kind: choiceNode, subs: []*node{n}}
	for _, text := range longFolds() {
		if slices.ContainsFunc(text.from, s.has) {
			choice.subs = append(choice.subs, &node{kind: textNode, text: text.to, fold: true})
		}
	}
	if len(choice.subs) > 1 {
		return choice, nil
	}
	return n, nil
}

var (
	errBracket = errors.New("a class has no end")
	errRange   = errors.New("a range of a class begins or ends with a set of characters")
)

// bracket reads a class, from behind its bracket, without its negation.
func (p *parser) bracket() (s set, not bool, err error) {
	if p.depth++; p.depth > maxDepth {
		return nil, false, fmt.Errorf("there are more than %d levels of classes", maxDepth)
	}
	defer func() { p.depth-- }()
	not = p.take("^")
	var spans set
	both := set(nil).negate() // the operands of && so far
	for first := true; ; first = false {
		if !p.more() {
			return nil, false, errBracket
		}
		switch {
		case p.src[p.at] == ']' && (!first || !closes(p.src[p.at+1:])):
			p.at++
			if first {
				return nil, false, errors.New("a class is empty")
			}
			return both.intersect(newSet(spans...)), not, nil
		case p.take("&&"):
			both, spans = both.intersect(newSet(spans...)), nil
			continue
		case p.dialect == tiktoken && (strings.HasPrefix(p.src[p.at:], "--") || strings.HasPrefix(p.src[p.at:], "~~")):
			return nil, false, unsupported("a difference of classes")
		}
		more, err := p.member()
		if err == nil {
			err = p.count(len(more))
		}
		if err != nil {
			return nil, false, err
		}
		spans = append(spans, more...)
	}
}

// closes reports that s has a bracket that closes a class. A bracket that begins a class is a
// character, then.
func closes(s string) bool {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ']':
			return true
		}
	}
	return false
}

// member reads a character, a range or a set of characters within a class.
func (p *parser) member() (set, error) {
	s, ok, err := p.inside()
	if err != nil {
		return nil, err
	}
	if ok { // a hyphen behind a set is a character, and must be the last
		if strings.HasPrefix(p.src[p.at:], "-") && !strings.HasPrefix(p.src[p.at:], "-]") {
			return nil, errRange
		}
		return s, nil
	}
	low, err := p.character()
	if err != nil {
		return nil, err
	}
	rest := p.src[p.at:]
	if !strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "-]") || strings.HasPrefix(rest, "-&&") || p.dialect == tiktoken && strings.HasPrefix(rest, "--") {
		return setOf(low), nil
	}
	p.at++
	if !p.more() {
		return nil, errBracket
	}
	at := p.at
	if _, ok, err := p.inside(); ok || err != nil {
		return nil, errRange
	}
	p.at = at
	high, err := p.character()
	if err == nil && high < low {
		err = fmt.Errorf("the range from %q to %q is empty", low, high)
	}
	if err == nil && strings.HasPrefix(p.src[p.at:], "-") && !strings.HasPrefix(p.src[p.at:], "-]") {
		p.at++ // [a-c-e]: the hyphen is a character
		return newSet(runeSpan{low, high}, runeSpan{'-', '-'}), nil
	}
	return set{{low, high}}, err
}

// character reads one character of a class.
func (p *parser) character() (rune, error) {
	if !p.more() {
		return 0, errBracket
	}
	if !p.take(`\`) {
		return p.next(), nil
	}
	switch {
	case !p.more():
		return 0, errBracket
	case p.take("b"):
		return '\b', nil
	case p.dialect == oniguruma && strings.IndexByte("RXNOABGZzkgKyY", p.src[p.at]) >= 0: // letters, here
		return p.next(), nil
	}
	return p.escaped()
}

// inside reads a set within a class: a class, [:name:], \w or \p{...}. ok is false if a character
// comes next.
func (p *parser) inside() (s set, ok bool, err error) {
	switch {
	case strings.HasPrefix(p.src[p.at:], "[:") && strings.Contains(p.src[p.at:], ":]"):
		if p.dialect == tiktoken {
			return nil, false, unsupported("a POSIX class")
		}
		return p.posix()
	case p.take("["):
		s, not, err := p.bracket()
		if not {
			s = s.negate()
		}
		return s, true, err
	case p.src[p.at] == '\\' && p.at+1 < len(p.src):
		p.at++
		if s, ok, err = p.shorthand(); !ok && err == nil {
			p.at--
		}
		return s, ok, err
	}
	return nil, false, nil
}

// posix reads [:name:] or [:^name:].
func (p *parser) posix() (set, bool, error) {
	name, _, _ := strings.Cut(p.src[p.at+2:], ":]")
	if trimmed := strings.TrimPrefix(name, "^"); !slices.Contains(posixNames, trimmed) {
		return nil, false, unsupported(fmt.Sprintf("the POSIX class %.40q", name))
	}
	p.at += len("[:" + name + ":]")
	name, not := strings.CutPrefix(name, "^")
	if name == "punct" {
		name = "posixpunct" // unlike \p{Punct}
	}
	s, err := property(name)
	if not {
		s = s.negate()
	}
	return s, true, err
}

var posixNames = []string{
	"alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "xdigit", "word",
}

// folded returns s with the characters that equal one of its characters in another case.
func (s set) folded() set {
	var more []rune
	for _, r := range cased() {
		if s.has(r) {
			more = append(more, variants(r)...)
		}
	}
	return s.union(setOf(more...))
}

// variants returns the characters that equal r in any case, r among them.
func variants(r rune) []rune {
	all := []rune{r}
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		all = append(all, next)
	}
	for _, pair := range newerCases {
		if d := r - pair.upper; d >= 0 && d < pair.n {
			all = append(all, pair.lower+d)
		}
		if d := r - pair.lower; d >= 0 && d < pair.n {
			all = append(all, pair.upper+d)
		}
	}
	for _, f := range longFolds() {
		if slices.Contains(f.from, r) {
			all = append(all, f.from...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
