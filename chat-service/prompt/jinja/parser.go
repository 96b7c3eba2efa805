package jinja

import "slices"

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

func newParser(tokens []token) *parser {
	p := &parser{tokens: tokens, free: map[string]int{}}
	p.root = p.open(&function{}).of
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
	for {
		start := p.pos
		switch t := p.next(); {
		case t.kind == tokenEOF:
			if len(ends) > 0 {
				syntax(t.line, "the template ends before '%s'", ends[len(ends)-1])
			}
			return b
		case t.kind == tokenData:
			b.add(output(&constant{t.text}, t.line))
		case t.is("{{"):
			b.add(output(p.tuple(true), t.line))
			p.expect("}}")
		case slices.ContainsFunc(ends, p.peek().is):
			return b
		default:
			b.add(p.statement(p.next()))
		}
		b.cost += 1 + min(p.pos-start, maxTokens)/16
	}
}

// inner reads the rest of a tag and the statements after it, up to a tag that begins with one of ends.
// It consumes that word, and the end of its tag if it is the last of ends.
func (p *parser) inner(ends ...string) (*block, string) {
	p.skip(":")
	p.expect("%}")
	b := p.body(ends...)
	end := p.next().text
	if end == ends[len(ends)-1] {
		p.expect("%}")
	}
	return b, end
}

// text returns the expression of the text that a block writes. read reads the start tag, and gets
// that expression.
func (p *parser) text(end string, read func(text expression)) {
	var body *block
	var s *scope
	s = p.within(nil, func(*scope) {
		read(lambda(func(r *run) Value {
			return r.capture(func() {
				r.enterScope(s)
				r.exec(body)
			})
		}))
		body, _ = p.inner(end)
	})
}

// statement reads the rest of a statement that begins with the word t.
func (p *parser) statement(t token) statement {
	switch t.text {
	case "if":
		return p.ifStatement(t.line)
	case "for":
		return p.forStatement(t.line)
	case "set":
		return p.setStatement(t.line)
	case "macro":
		target := p.target(false)
		m := p.macro(target.name.name, "endmacro", nil)
		return func(r *run) flow {
			r.frame.slots[target.name.at.slot] = &macro{m, r.frame}
			return flowNext
		}
	case "call":
		var call *callExpression
		m := p.macro(specials[0], "endcall", func() {
			var ok bool
			if call, ok = p.expression(true).(*callExpression); !ok {
				syntax(t.line, "a call block needs a call")
			}
		})
		return func(r *run) flow {
			r.line = t.line
			if v, written := call.with(r, &macro{m, r.frame}, true); !written {
				r.writeValue(v)
			}
			return flowNext
		}
	case "filter":
		var filtered expression
		p.text("endfilter", func(text expression) { filtered = p.filters(text, true) })
		return output(filtered, t.line)
	case "with":
		return p.withStatement()
	case "generation": // marks the assistant's text for training
		var body *block
		s := p.within(nil, func(*scope) { body = p.outside("endgeneration") })
		return func(r *run) flow {
			r.enterScope(s)
			return r.exec(body)
		}
	case "print":
		e := p.expression(true)
		p.expect("%}")
		return output(e, t.line)
	case "break", "continue":
		if p.loops == 0 {
			syntax(t.line, "'%s' stands outside of a loop", t.text)
		}
		p.expect("%}")
		leaves := map[string]flow{"break": flowBreak, "continue": flowContinue}[t.text]
		return func(*run) flow { return leaves }
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
	b, _ := p.inner(end)
	p.loops = loops
	return b
}

func (p *parser) ifStatement(line int) statement {
	defer p.nest()()
	test := p.tuple(false)
	then, end := p.inner("elif", "else", "endif")
	otherwise := &block{}
	switch at := p.peek().line; end {
	case "elif":
		otherwise.add(p.ifStatement(at))
	case "else":
		otherwise, _ = p.inner("endif")
	}
	return func(r *run) flow {
		if r.line = line; truth(test.eval(r)) {
			return r.exec(then)
		}
		return r.exec(otherwise)
	}
}

func (p *parser) forStatement(line int) statement {
	s := &forStatement{line: line}
	names := p.targets("in")
	after := p.expect("in")
	s.over = p.tuple(false, "recursive")
	end := p.pos + slices.IndexFunc(p.tokens[p.pos:], func(t token) bool { return t.kind == tokenEnd || t.kind == tokenEOF })
	if p.tokens[end-1].is("recursive") {
		s.function = &function{around: p.scope.of}
	}
	if p.skip("if") {
		s.testScope = p.within(s.function, func(sc *scope) {
			s.testTarget = p.declare(names, true)
			s.test = p.expression(true)
		})
	}
	p.skip("recursive")
	var last string
	s.scope = p.within(s.function, func(sc *scope) {
		s.target = p.declare(names, true)
		if sc.variables["loop"] != nil {
			syntax(after.line, "a loop cannot set 'loop'")
		}
		s.loop = sc.declare("loop", true)
		p.loops++
		s.body, last = p.inner("else", "endfor")
		p.loops--
	})
	if last == "else" {
		s.elseScope = p.within(s.function, func(*scope) { s.otherwise, _ = p.inner("endfor") })
	}
	return s.exec
}

// targets reads the names that a loop or an assignment sets, up to a token end.
func (p *parser) targets(end string) target {
	defer p.nest()()
	var list []target
	comma := false
	for !p.peek().is(end) {
		line := p.peek().line
		if p.skip("(") {
			list = append(list, p.targets(")"))
			p.expect(")")
		} else {
			name := p.word()
			if _, ok := literals[name]; ok {
				syntax(line, "'%s' cannot be set", name)
			}
			list = append(list, target{name: &nameExpression{name: name}})
		}
		if !p.skip(",") {
			break
		}
		comma = true
	}
	if len(list) == 1 && !comma {
		return list[0]
	}
	return target{parts: list}
}

// declare makes the names of a target variables of the current scope.
func (p *parser) declare(t target, parameter bool) target {
	if t.name != nil {
		p.scope.declare(t.name.name, parameter)
		return target{name: p.name(t.name.name)}
	}
	parts := make([]target, len(t.parts))
	for i, part := range t.parts {
		parts[i] = p.declare(part, parameter)
	}
	return target{parts: parts}
}

// target reads one name that is set.
func (p *parser) target(parameter bool) target {
	return p.declare(target{name: &nameExpression{name: p.word()}}, parameter)
}

func (p *parser) setStatement(line int) statement {
	var to target
	if p.ahead().is(".") {
		to.name = p.name(p.word())
		p.expect(".")
		to.attribute = p.word()
	} else {
		to = p.declare(p.targets("="), false)
	}
	var value expression
	if p.skip("=") {
		value = p.tuple(true)
		p.expect("%}")
	} else {
		p.text("endset", func(text expression) { value = p.filters(text, false) })
	}
	return func(r *run) flow {
		r.line = line
		r.assign(&to, value.eval(r))
		return flowNext
	}
}

func (p *parser) withStatement() statement {
	var targets []target
	var values []expression
	var body *block
	around := p.scope
	s := p.within(nil, func(s *scope) {
		for !p.peek().is("%}") {
			targets = append(targets, p.declare(p.targets("="), true))
			p.expect("=")
			p.scope = around
			values = append(values, p.expression(true))
			if p.scope = s; !p.skip(",") {
				break
			}
		}
		body, _ = p.inner("endwith")
	})
	return func(r *run) flow {
		r.enterScope(s)
		for i := range targets {
			r.assign(&targets[i], values[i].eval(r))
		}
		return r.exec(body)
	}
}
