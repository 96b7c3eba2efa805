package jinja

import (
	"slices"
	"strings"
)

// A parser reads the statements and expressions of a template from its tokens.
type parser struct {
	tokens []token
	pos    int
	levels int // of blocks and expressions
	loops  int // around the current statement, within its macro

	root   *function
	scope  *scope // of the current statement
	scopes []*scope
	names  []*nameExpression
	free   map[string]int
}

// A block is a list of statements.
type block struct {
	statements []statement
	cost       int // of one execution, in steps
}

func newParser(tokens []token) *parser {
	p := &parser{tokens: tokens, free: map[string]int{}}
	p.root = p.open(true).of
	return p
}

func (p *parser) peek() token { return p.tokens[p.pos] }

// ahead returns the token after the next one.
func (p *parser) ahead() token { return p.tokens[min(p.pos+1, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokenEOF {
		p.pos++
	}
	return t
}

// skip consumes the next token if it has this text.
func (p *parser) skip(text string) bool {
	if p.peek().is(text) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) expect(text string) token {
	t := p.next()
	if !t.is(text) {
		syntax(t.line, "expected '%s', but found %s", text, t)
	}
	return t
}

func (p *parser) word() string {
	t := p.next()
	if t.kind != tokenName {
		syntax(t.line, "expected a name, but found %s", t)
	}
	return t.text
}

// nest counts a level. The returned function leaves it.
func (p *parser) nest() func() {
	if p.levels++; p.levels > 3*maxLevels {
		syntax(p.peek().line, "%w: more than %d nested blocks and brackets", ErrLimit, maxLevels)
	}
	return func() { p.levels-- }
}

// body reads statements up to a tag that begins with one of ends, which it leaves to the caller.
// Without ends it reads up to the end of the template.
func (p *parser) body(ends ...string) *block {
	defer p.nest()()
	b := &block{}
	var out *outputStatement // the last statement, if it is an output
	write := func(e expression, line int) {
		if out == nil {
			out = &outputStatement{}
			b.statements = append(b.statements, out)
		}
		out.parts = append(out.parts, part{e, line})
	}
	for {
		start := p.pos
		switch t := p.next(); {
		case t.kind == tokenEOF:
			if len(ends) > 0 {
				syntax(t.line, "the template ends before '%s'", ends[len(ends)-1])
			}
			return b
		case t.kind == tokenData:
			write(&constant{t.text}, t.line)
		case t.is("{{"):
			write(p.tuple(true), t.line)
			p.expect("}}")
		case slices.ContainsFunc(ends, p.peek().is):
			return b
		case p.skip("print"):
			for !p.skip("%}") {
				write(p.expression(true), t.line)
				p.skip(",")
			}
		default:
			out = nil
			b.statements = append(b.statements, p.statement())
		}
		b.cost += 1 + min(p.pos-start, maxTokens)/16
	}
}

// inner reads the rest of a tag and the statements after it, up to a tag that begins with one of ends.
// It consumes that word.
func (p *parser) inner(ends ...string) (*block, string) {
	p.skip(":")
	p.expect("%}")
	return p.body(ends...), p.next().text
}

// last reads the rest of a tag and the statements after it, and the end tag.
func (p *parser) last(end string) *block {
	b, _ := p.inner(end)
	p.expect("%}")
	return b
}

// statement reads a statement whose tag has begun.
func (p *parser) statement() statement {
	t := p.next()
	switch t.text {
	case "if":
		return p.ifStatement(t.line)
	case "for":
		return p.forStatement(t.line)
	case "set":
		return p.setStatement(t.line)
	case "macro":
		target := p.target()
		if target.parts != nil {
			syntax(t.line, "expected a name")
		}
		return &macroStatement{target: target.name, code: p.macro(target.name.name, t.line, "endmacro", nil)}
	case "call":
		s := &callStatement{line: t.line}
		s.code = p.macro("caller", t.line, "endcall", func() {
			call, ok := p.expression(true).(*callExpression)
			if !ok {
				syntax(t.line, "a call block needs a call")
			}
			s.call = call
		})
		return s
	case "filter":
		text := &blockText{}
		s := &filterStatement{line: t.line}
		text.scope = p.within(false, func(*scope) {
			s.filter = p.filters(text, true)
			text.body = p.last("endfilter")
		})
		return s
	case "with":
		return p.withStatement()
	case "generation": // marks the assistant's text for training
		s := &withStatement{}
		s.scope = p.within(false, func(*scope) { s.body = p.outside("endgeneration") })
		return s
	case "break", "continue":
		if p.loops == 0 {
			syntax(t.line, "'%s' stands outside of a loop", t.text)
		}
		p.expect("%}")
		return controlStatement(map[string]flow{"break": flowBreak, "continue": flowContinue}[t.text])
	case "include", "import", "from", "extends", "block", "autoescape":
		syntax(t.line, "the statement '%s' is not supported, because a chat template is alone; write the text of the other template into it", t.text)
	}
	syntax(t.line, "expected a statement, but found %s", t)
	return nil
}

// outside reads a body from which break and continue reach no loop.
func (p *parser) outside(end string) *block {
	loops := p.loops
	p.loops = 0
	b := p.last(end)
	p.loops = loops
	return b
}

func (p *parser) ifStatement(line int) statement {
	s := &ifStatement{}
	for {
		b := branch{line: line, test: p.tuple(false)}
		var end string
		b.body, end = p.inner("elif", "else", "endif")
		s.branches = append(s.branches, b)
		line = p.peek().line
		switch end {
		case "elif":
			continue
		case "else":
			s.otherwise = p.last("endif")
		default:
			p.expect("%}")
			s.otherwise = &block{}
		}
		return s
	}
}

func (p *parser) forStatement(line int) statement {
	s := &forStatement{line: line}
	start := p.pos
	p.within(false, func(*scope) { p.targets("in") }) // only to skip them
	after := p.expect("in")
	s.over = p.tuple(false, "recursive")
	read := func(s *scope) target { // the names again, in scope s
		end := p.pos
		p.pos = start
		t := p.targets("in")
		p.pos = end
		for name, v := range s.variables {
			if v.parameter = true; name == "loop" {
				syntax(after.line, "a loop cannot set 'loop'")
			}
		}
		return t
	}
	var function *function
	scoped := func(f func(*scope)) *scope {
		return p.within(false, func(sc *scope) {
			if function != nil {
				sc.of = function
			}
			f(sc)
		})
	}
	tested := p.skip("if")
	test := p.pos
	if tested {
		p.within(false, func(*scope) { p.expression(true) }) // only to skip it
	}
	if p.skip("recursive") {
		s.function = p.within(true, func(*scope) {}).of
		function = s.function
	}
	if tested {
		s.testScope = scoped(func(sc *scope) {
			s.testTarget = read(sc)
			end := p.pos
			p.pos = test
			s.test = p.expression(true)
			p.pos = end
		})
	}
	var end string
	s.scope = scoped(func(sc *scope) {
		s.target = read(sc)
		s.loop = sc.declare("loop", true)
		p.loops++
		s.body, end = p.inner("else", "endfor")
		p.loops--
	})
	s.otherwise = &block{}
	if end == "endfor" {
		p.expect("%}")
	} else {
		s.elseScope = scoped(func(*scope) { s.otherwise = p.last("endfor") })
	}
	return s
}

// targets reads the names that a loop or an assignment sets, up to a token end.
func (p *parser) targets(end string) target {
	t := p.target()
	if !p.peek().is(",") {
		return t
	}
	list := []target{t}
	for p.skip(",") && !p.peek().is(end) {
		list = append(list, p.target())
	}
	return target{parts: list}
}

// target reads a name that is set, or names in parentheses.
func (p *parser) target() target {
	defer p.nest()()
	if p.skip("(") {
		t := p.targets(")")
		p.expect(")")
		return t
	}
	line, name := p.peek().line, p.word()
	if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name) {
		syntax(line, "'%s' cannot be set", name)
	}
	p.scope.declare(name, false)
	return target{name: p.name(name)}
}

func (p *parser) setStatement(line int) statement {
	s := &setStatement{line: line}
	if p.ahead().is(".") {
		s.target.name = p.name(p.word())
		p.expect(".")
		s.target.attribute = p.word()
	} else {
		s.target = p.targets("=")
	}
	if p.skip("=") {
		s.value = p.tuple(true)
		p.expect("%}")
		return s
	}
	text := &blockText{}
	text.scope = p.within(false, func(*scope) {
		s.value = p.filters(text, false)
		text.body = p.last("endset")
	})
	return s
}

// macro reads the parameters and the body of a macro or a call block. between reads what stands
// between them.
func (p *parser) macro(name string, line int, end string, between func()) *macroCode {
	m := &macroCode{name: name, line: line}
	around := p.scope
	s := p.open(true)
	m.function = s.of
	if between == nil || p.peek().is("(") {
		p.expect("(")
		for !p.peek().is(")") {
			m.parameters = append(m.parameters, parameter{name: p.target().name})
			if p.skip("=") {
				m.parameters[len(m.parameters)-1].otherwise = p.expression(true)
			}
			if !p.skip(",") {
				break
			}
		}
		p.expect(")")
	}
	for _, v := range s.variables {
		v.parameter = true
	}
	for i, name := range specials {
		if s.variables[name] == nil {
			m.special[i] = s.declare(name, true)
		}
	}
	if between != nil {
		p.scope = around
		between()
		p.scope = s
	}
	m.body = p.outside(end)
	p.scope = around
	return m
}

func (p *parser) withStatement() statement {
	s := &withStatement{}
	around := p.scope
	s.scope = p.within(false, func(sc *scope) {
		for !p.peek().is("%}") && !p.peek().is(":") {
			s.targets = append(s.targets, p.targets("="))
			p.expect("=")
			p.scope = around
			s.values = append(s.values, p.expression(true))
			p.scope = sc
			if !p.skip(",") {
				break
			}
		}
		for _, v := range sc.variables {
			v.parameter = true
		}
		s.body = p.last("endwith")
	})
	return s
}

// folded returns the value of an expression of constants, or the expression.
func folded(e expression, operands ...expression) (result expression) {
	const limit = 1 << 10 // bytes
	for _, o := range operands {
		if _, ok := o.(*constant); !ok {
			return e
		}
	}
	defer func() {
		if recover() != nil {
			result = e // fails again when it is evaluated
		}
	}()
	switch v := e.eval(&run{budget: budget{fuel: limit, made: limit}}).(type) {
	case string, bool, int, float64:
		return &constant{v}
	}
	return e
}

// dotted reads a name with points in it.
func (p *parser) dotted() string {
	parts := []string{p.word()}
	for p.skip(".") {
		parts = append(parts, p.word())
	}
	return strings.Join(parts, ".")
}
