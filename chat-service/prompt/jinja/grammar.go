package jinja

import (
	"slices"
	"strings"
)

// tuple reads an expression, or several with commas between them. conditional allows "a if b else c".
// It ends at the end of the tag, at a bracket, or at one of ends.
func (p *parser) tuple(conditional bool, ends ...string) expression {
	var items []expression
	comma := false
	for {
		if t := p.peek(); t.kind == tokenEnd || t.is(")") || slices.ContainsFunc(ends, t.is) {
			break
		}
		items = append(items, p.expression(conditional))
		if !p.skip(",") {
			break
		}
		comma = true
	}
	switch {
	case comma:
		return &tupleExpression{items}
	case len(items) == 0:
		syntax(p.peek().line, "expected an expression, but found %s", p.peek())
	}
	return items[0]
}

func (p *parser) expression(conditional bool) expression {
	defer p.nest()()
	e := p.or()
	for conditional && p.skip("if") {
		c := &conditionalExpression{then: e, test: p.or(), otherwise: noElse}
		if p.skip("else") {
			c.otherwise = p.expression(true)
		}
		e = c
	}
	return e
}

func (p *parser) or() expression {
	e := p.and()
	for p.skip("or") {
		e = &logicExpression{left: e, right: p.and(), or: true}
	}
	return e
}

func (p *parser) and() expression {
	e := p.not()
	for p.skip("and") {
		e = &logicExpression{left: e, right: p.not()}
	}
	return e
}

func (p *parser) not() expression {
	n := 0
	for p.skip("not") {
		n++
	}
	e := p.compare()
	for i := 0; n > 0 && i < 2-n%2; i++ { // an even number of them gives a bool, too
		e = folded(&notExpression{e}, e)
	}
	return e
}

func (p *parser) compare() expression {
	c := &compareExpression{first: p.sum()}
	for {
		t := p.peek()
		op := t.text
		switch {
		case t.kind == tokenOperator && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, op), t.is("in"):
			p.next()
		case t.is("not") && p.ahead().is("in"):
			p.pos += 2
			op = "not in"
		case len(c.ops) == 0:
			return c.first
		default:
			return folded(c, append([]expression{c.first}, c.operands...)...)
		}
		c.ops, c.operands = append(c.ops, op), append(c.operands, p.sum())
	}
}

func (p *parser) sum() expression {
	e := p.concat()
	for {
		switch {
		case p.skip("+"):
			right := p.concat()
			if chain, ok := e.(*addExpression); ok {
				chain.operands = append(chain.operands, right)
				continue
			}
			e = folded(&addExpression{[]expression{e, right}}, e, right)
		case p.skip("-"):
			right := p.concat()
			e = folded(&mathExpression{"-", e, right}, e, right)
		default:
			return e
		}
	}
}

func (p *parser) concat() expression {
	parts := []expression{p.product()}
	for p.skip("~") {
		parts = append(parts, p.product())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return folded(&concatExpression{parts}, parts...)
}

// operations reads operations with some operators on what operand reads.
func (p *parser) operations(operand func() expression, operators ...string) expression {
	e := operand()
	for p.peek().kind == tokenOperator && slices.Contains(operators, p.peek().text) {
		op := p.next().text
		right := operand()
		e = folded(&mathExpression{op, e, right}, e, right)
	}
	return e
}

func (p *parser) product() expression { return p.operations(p.power, "*", "/", "//", "%") }

func (p *parser) power() expression {
	return p.operations(func() expression { return p.unary(true) }, "**")
}

// unary reads an operand with its sign and with what follows it: attributes, elements and calls, and
// filters and tests if filtered is set.
func (p *parser) unary(filtered bool) expression {
	defer p.nest()()
	var e expression
	if sign := p.peek(); sign.is("-") || sign.is("+") {
		p.next()
		of := p.unary(false)
		e = folded(&signExpression{sign.text, of}, of)
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	for filtered {
		switch t := p.peek(); {
		case t.is("|"):
			e = p.filters(e, false)
		case t.is("is"):
			e = p.test(e)
		case t.is("("):
			e = p.call(e)
		default:
			return e
		}
	}
	return e
}

func (p *parser) postfix(e expression) expression {
	for {
		switch t := p.peek(); {
		case p.skip("."):
			switch name := p.next(); name.kind {
			case tokenName:
				e = newAttribute(e, name.text)
			case tokenNumber:
				e = &itemExpression{of: e, key: &constant{name.value}}
			default:
				syntax(t.line, "expected a name or a number, but found %s", name)
			}
		case p.skip("["):
			e = p.subscript(e)
		case t.is("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

// subscript reads an element or a slice.
func (p *parser) subscript(of expression) expression {
	var bounds [3]expression
	if !p.peek().is(":") {
		bounds[0] = p.expression(true)
	}
	if p.skip("]") {
		return newItem(of, bounds[0])
	}
	for i := 1; i < 3 && p.skip(":"); i++ {
		if t := p.peek(); !t.is(":") && !t.is("]") {
			bounds[i] = p.expression(true)
		}
	}
	p.expect("]")
	return &sliceExpression{of: of, bounds: bounds}
}

// callArguments reads the arguments of a call.
func (p *parser) callArguments() (a arguments) {
	p.expect("(")
	for !p.peek().is(")") {
		switch line := p.peek().line; {
		case p.skip("*"):
			a.spread = p.expression(true)
		case p.skip("**"):
			a.spreadNamed = p.expression(true)
		case p.peek().kind == tokenName && p.ahead().is("="):
			a.names = append(a.names, p.word())
			p.next()
			a.named = append(a.named, p.expression(true))
		case a.spread != nil || a.spreadNamed != nil || len(a.named) > 0:
			syntax(line, "an argument without a name follows one with a name")
		default:
			a.values = append(a.values, p.expression(true))
		}
		if !p.skip(",") {
			break
		}
	}
	p.expect(")")
	a.some = len(a.values)+len(a.named) > 0 || a.spread != nil || a.spreadNamed != nil
	return a
}

func (p *parser) call(of expression) expression {
	line := p.peek().line
	return &callExpression{of: of, arguments: p.callArguments(), line: line}
}

// filters reads filters of an expression. With first the first filter stands without "|".
func (p *parser) filters(of expression, first bool) expression {
	for first || p.skip("|") {
		first = false
		f := &filterExpression{of: of, line: p.peek().line, name: p.dotted()}
		if p.peek().is("(") {
			f.arguments = p.callArguments()
		}
		f.apply = filters[f.name]
		of = f
	}
	return of
}

func (p *parser) test(of expression) expression {
	line := p.expect("is").line
	negated := p.skip("not")
	t := &testExpression{of: of, line: line, name: p.dotted(), negated: negated}
	switch next := p.peek(); {
	case next.is("("):
		t.arguments = p.callArguments()
	case next.is("is"):
		syntax(next.line, "tests with 'is' cannot follow each other")
	case next.is("else") || next.is("or") || next.is("and"):
	case next.kind == tokenName, next.kind == tokenText, next.kind == tokenNumber, next.is("["), next.is("{"):
		// As in Jinja2, the operand of a test is any name, also "if" and "in".
		t.arguments = arguments{values: []expression{p.postfix(p.primary())}, some: true}
	}
	t.apply = tests[t.name]
	return t
}

// list reads expressions with commas between them up to closer.
func (p *parser) list(closer string, item func()) {
	for !p.peek().is(closer) {
		item()
		if !p.skip(",") {
			break
		}
	}
	p.expect(closer)
}

func (p *parser) primary() expression {
	switch t := p.next(); {
	case t.kind == tokenName:
		switch t.text {
		case "true", "True":
			return &constant{true}
		case "false", "False":
			return &constant{false}
		case "none", "None":
			return &constant{nil}
		}
		return p.name(t.text)
	case t.kind == tokenText:
		texts := []string{t.text}
		for p.peek().kind == tokenText {
			texts = append(texts, p.next().text)
		}
		return &constant{strings.Join(texts, "")}
	case t.kind == tokenNumber:
		return &constant{t.value}
	case t.is("("):
		if p.skip(")") {
			return &tupleExpression{}
		}
		e := p.tuple(true)
		p.expect(")")
		return e
	case t.is("["):
		l := &listExpression{}
		p.list("]", func() { l.items = append(l.items, p.expression(true)) })
		return l
	case t.is("{"):
		d := &dictExpression{}
		p.list("}", func() {
			d.keys = append(d.keys, p.expression(true))
			p.expect(":")
			d.values = append(d.values, p.expression(true))
		})
		return d
	default:
		syntax(t.line, "expected an expression, but found %s", t)
		return nil
	}
}
