package pattern

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"unicode/utf8"
)

// A dialect is a syntax of expressions and their meaning.
type dialect int

const (
	oniguruma dialect = iota // of tokenizer.json
	tiktoken                 // of tiktoken and tekken files: the crate fancy-regex
)

type nodeKind uint8

const (
	textNode     nodeKind = iota // characters, one after the other
	setNode                      // one character of a set
	sequenceNode                 // subs, one after the other
	choiceNode                   // the first of subs that matches
	repeatNode                   // subs[0], from low to high times
	atomicNode                   // the first match of subs[0], and no other
	lookNode                     // subs[0] matches here (or, with behind, ends here), or, with not, does not
	assertNode                   // a position
	graphemeNode                 // a grapheme cluster: \X
)

// A node is a part of an expression.
type node struct {
	kind      nodeKind
	text      []rune
	fold      bool // text matches in any case
	set       set
	subs      []*node
	low, high int // high is many if there is no bound
	lazy      bool
	not       bool
	behind    bool
	at        position
}

// many is the high of a repeatNode without a bound.
const many = -1

// A position is what an assertNode asserts.
type position uint8

const (
	lineStart position = iota
	lineEnd
	textStart
	textEnd
	lastLineEnd // \Z: the end, or before a line end there
	searchStart // \G
	wordEdge
	notWordEdge
)

// Bounds of an expression.
const (
	maxDepth  = 200     // levels of groups and classes
	maxRepeat = 100_000 // as in Oniguruma
	maxSets   = 1 << 18 // spans of all sets; those of models have less than 10,000
	foldCost  = 1 << 12 // of a class that ignores case, in spans
)

// A parser reads one expression.
type parser struct {
	dialect dialect
	src     string
	at      int
	depth   int
	behind  bool // within a lookbehind
	spans   int  // of all sets
	flags
}

type flags struct{ fold, dotAll, lines, extended bool }

// unsupported is the error of a construct that has no meaning here.
func unsupported(what string) error { return fmt.Errorf("%s is not supported", what) }

func parse(text string, d dialect) (*node, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("the expression is not UTF-8")
	}
	p := &parser{dialect: d, src: text}
	p.lines = d == oniguruma
	n, err := p.choice()
	if err == nil && p.at < len(p.src) {
		err = fmt.Errorf("a parenthesis at byte %d closes no group", p.at)
	}
	return n, err
}

// count adds to the cost of the expression's sets.
func (p *parser) count(spans int) error {
	if p.spans += spans; p.spans > maxSets {
		return errors.New("the expression is too large, because of its classes")
	}
	return nil
}

func (p *parser) more() bool { return p.at < len(p.src) }

// take consumes s if it comes next.
func (p *parser) take(s string) bool {
	if strings.HasPrefix(p.src[p.at:], s) {
		p.at += len(s)
		return true
	}
	return false
}

func (p *parser) next() rune {
	r, n := utf8.DecodeRuneInString(p.src[p.at:])
	p.at += n
	return r
}

// choice reads branches up to the end of the group.
func (p *parser) choice() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, fmt.Errorf("there are more than %d levels of groups", maxDepth)
	}
	defer func() { p.depth-- }()
	var branches []*node
	for {
		n, err := p.sequence()
		if err != nil {
			return nil, err
		}
		if branches = append(branches, n); !p.take("|") {
			break
		}
	}
	if len(branches) == 1 {
		return branches[0], nil
	}
	all := make(set, 0)
	for _, b := range branches { // a choice of single characters is a set
		s, ok := b.single()
		if !ok {
			return &node{kind: choiceNode, subs: branches}, nil
		}
		all = all.union(s)
	}
	return &node{kind: setNode, set: all}, nil
}

// single returns the characters that n matches if it matches exactly one character.
func (n *node) single() (set, bool) {
	switch {
	case n.kind == setNode:
		return n.set, true
	case n.kind == textNode && len(n.text) == 1 && !n.fold:
		return setOf(n.text[0]), true
	case n.kind == textNode && len(n.text) == 1 && len(unfold(n.text[0])) == 0:
		return setOf(variants(n.text[0])...), true
	}
	return nil, false
}

// sequence reads a branch.
func (p *parser) sequence() (*node, error) {
	out := &node{kind: sequenceNode}
	for p.more() {
		if p.extended && p.skipSpace() {
			continue
		}
		switch p.src[p.at] {
		case '|', ')':
			return out.reduce(), nil
		}
		n, err := p.atom()
		if err != nil {
			return nil, err
		}
		if n == nil { // a comment
			continue
		}
		if n, err = p.quantifiers(n); err != nil {
			return nil, err
		}
		out.append(n)
	}
	return out.reduce(), nil
}

// append adds n, and joins texts, because a character may match several characters of a text.
func (n *node) append(next *node) {
	if next.nothing() {
		return
	}
	if k := len(n.subs); k > 0 && next.kind == textNode {
		if last := n.subs[k-1]; last.kind == textNode && last.fold == next.fold {
			n.subs[k-1] = &node{kind: textNode, fold: last.fold, text: append(last.text[:len(last.text):len(last.text)], next.text...)}
			return
		}
	}
	n.subs = append(n.subs, next)
}

// nothing reports that n matches nothing, everywhere.
func (n *node) nothing() bool { return n.kind == sequenceNode && len(n.subs) == 0 }

func (n *node) reduce() *node {
	if len(n.subs) == 1 {
		return n.subs[0]
	}
	return n
}

// skipSpace skips white space and comments of extended expressions.
func (p *parser) skipSpace() bool {
	if strings.IndexByte(" \t\r\n\v\f", p.src[p.at]) >= 0 {
		p.at++
		return true
	}
	if p.src[p.at] != '#' {
		return false
	}
	if end := strings.IndexByte(p.src[p.at:], '\n'); end >= 0 {
		p.at += end + 1
	} else {
		p.at = len(p.src)
	}
	return true
}

// literal returns a character. Only Oniguruma knows texts that equal one character in another case.
func (p *parser) literal(r rune) *node {
	if p.fold && p.dialect == tiktoken {
		return &node{kind: setNode, set: setOf(variants(r)...)}
	}
	return &node{kind: textNode, text: []rune{r}, fold: p.fold}
}

// atom reads what a quantifier applies to. It returns nil after a comment.
func (p *parser) atom() (*node, error) {
	switch {
	case p.take("("):
		return p.group()
	case p.take("["):
		return p.class()
	case p.take("."):
		if p.dotAll {
			return &node{kind: setNode, set: set(nil).negate()}, nil
		}
		return &node{kind: setNode, set: setOf('\n').negate()}, nil
	case p.take("^"):
		if p.lines {
			return &node{kind: assertNode, at: lineStart}, nil
		}
		return &node{kind: assertNode, at: textStart}, nil
	case p.take("$"):
		if p.lines {
			return &node{kind: assertNode, at: lineEnd}, nil
		}
		return &node{kind: assertNode, at: textEnd}, nil
	case p.take(`\`):
		return p.escape()
	}
	switch p.src[p.at] {
	case '*', '+', '?':
		return nil, fmt.Errorf("there is nothing before the quantifier at byte %d", p.at)
	}
	return p.literal(p.next()), nil
}

// group reads a group, from behind its parenthesis.
func (p *parser) group() (*node, error) {
	if strings.HasPrefix(p.src[p.at:], "*") {
		return nil, unsupported("a callout, (*...),")
	}
	if !p.take("?") {
		return p.inner(nil)
	}
	switch {
	case p.take("#"):
		end := strings.IndexByte(p.src[p.at:], ')')
		if end < 0 {
			return nil, errors.New("a comment has no end")
		}
		p.at += end + 1
		return nil, nil
	case p.take(":"):
		return p.inner(nil)
	case p.take(">"):
		return p.inner(&node{kind: atomicNode})
	case p.take("="):
		return p.look(&node{kind: lookNode})
	case p.take("!"):
		return p.look(&node{kind: lookNode, not: true})
	case p.take("<="):
		return p.look(&node{kind: lookNode, behind: true})
	case p.take("<!"):
		return p.look(&node{kind: lookNode, behind: true, not: true})
	case p.take("<"), p.dialect == tiktoken && p.take("P<"):
		end := strings.IndexByte(p.src[p.at:], '>')
		if end <= 0 {
			return nil, errors.New("the name of a group has no end")
		}
		p.at += end + 1
		return p.inner(nil)
	case p.take("~"):
		return nil, unsupported("an absent group, (?~...),")
	case p.take("("):
		return nil, unsupported("a conditional, (?(...),")
	}
	return p.options()
}

// inner reads the content of a group and its parenthesis, and puts the content into wrap.
func (p *parser) inner(wrap *node) (*node, error) {
	saved := p.flags
	n, err := p.choice()
	if err != nil {
		return nil, err
	}
	p.flags = saved
	if !p.take(")") {
		return nil, errors.New("a group has no end")
	}
	if wrap != nil {
		wrap.subs = []*node{n}
		return wrap, nil
	}
	return n, nil
}

func (p *parser) look(wrap *node) (*node, error) {
	if p.behind && !wrap.behind {
		return nil, unsupported("a lookahead within a lookbehind")
	}
	outer := p.behind
	p.behind = outer || wrap.behind
	defer func() { p.behind = outer }()
	return p.inner(wrap)
}

// options reads (?i:...) and (?i). The latter applies to the rest of the group, whose branches then
// belong to the part behind the option.
func (p *parser) options() (*node, error) {
	outer, on := p.flags, true
	for p.more() {
		r := p.next()
		switch {
		case r == '-':
			on = false
		case r == 'i':
			p.fold = on
		case r == 'x':
			p.extended = on
		case r == 'm' && p.dialect == oniguruma, r == 's' && p.dialect == tiktoken:
			p.dotAll = on
		case r == 'm':
			p.lines = on
		case r == ':':
			n, err := p.choice()
			if err != nil {
				return nil, err
			}
			p.flags = outer
			if !p.take(")") {
				return nil, errors.New("a group has no end")
			}
			return n, nil
		case r == ')':
			return p.choice() // the caller's parenthesis restores the flags
		default:
			return nil, unsupported(fmt.Sprintf("the option %q", r))
		}
	}
	return nil, errors.New("a group has no end")
}

// quantifiers reads the quantifiers behind n.
func (p *parser) quantifiers(n *node) (*node, error) {
	for p.more() {
		if p.extended && p.skipSpace() {
			continue
		}
		low, high := 0, many
		interval, swapped := false, false
		switch {
		case p.take("*"):
		case p.take("+"):
			low = 1
		case p.take("?"):
			high = 1
		default:
			var err error
			if low, high, interval, err = p.interval(); err != nil || !interval {
				return n, err
			}
			if high != many && low > high {
				low, high, swapped = high, low, true
			}
		}
		lazy, atomic := false, swapped
		switch {
		case swapped:
		case interval && p.dialect == oniguruma:
			// {n}? is an optional {n}, and {n,m}+ one or more of {n,m}
			lazy = low != high && p.take("?")
		case p.take("?"):
			lazy = true
		case p.take("+"):
			atomic = true
		}
		var err error
		if n, err = repeat(n, low, high, lazy); err != nil {
			return nil, err
		}
		if atomic {
			n = &node{kind: atomicNode, subs: []*node{n}}
		}
	}
	return n, nil
}

// interval reads {n}, {n,}, {,m} or {n,m}. Other braces are characters.
func (p *parser) interval() (low, high int, ok bool, err error) {
	rest := p.src[p.at:]
	end := strings.IndexByte(rest, '}')
	if !strings.HasPrefix(rest, "{") || end < 0 {
		return 0, 0, false, nil
	}
	first, second, two := strings.Cut(rest[1:end], ",")
	number := func(s string) (n int) {
		if s == "" || strings.Trim(s, "0123456789") != "" {
			ok = false
			return 0
		}
		if n, err = strconv.Atoi(s); err != nil || n > maxRepeat {
			err = fmt.Errorf("a quantifier is larger than %d", maxRepeat)
		}
		return n
	}
	ok = true
	switch {
	case !two:
		low = number(first)
		high = low
	case first == "" && p.dialect == oniguruma:
		high = number(second)
	case second == "":
		low, high = number(first), many
	default:
		if low = number(first); err == nil && ok {
			high = number(second)
		}
	}
	if !ok {
		return 0, 0, false, nil
	}
	p.at += end + 1
	return low, high, true, err
}

// repeat returns n, low to high times. Oniguruma simplifies some quantifiers of quantifiers, which
// makes a difference if one of them is lazy.
func repeat(n *node, low, high int, lazy bool) (*node, error) {
	if high == 0 || n.nothing() {
		return &node{kind: sequenceNode}, nil
	}
	if n.kind == assertNode || n.kind == lookNode {
		return nil, unsupported("a quantifier of a position")
	}
	if n.kind == repeatNode && simple(n.low, n.high) && simple(low, high) {
		if n.lazy || lazy {
			return nil, unsupported("a lazy quantifier beside another quantifier")
		}
		if low != n.low || high != n.high {
			low, high = 0, many
		}
		n = n.subs[0]
	}
	return &node{kind: repeatNode, subs: []*node{n}, low: low, high: high, lazy: lazy}, nil
}

// simple reports that a quantifier is ?, * or +.
func simple(low, high int) bool { return high == many && low <= 1 || low == 0 && high == 1 }
