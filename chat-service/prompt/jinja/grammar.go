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
		return lambda(func(r *run) Value { return newTuple(r.evalAll(items)...) })
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

// logic reads operands of "and" or "or".
func (p *parser) logic(op string, operand func() expression) expression {
	e := operand()
	for p.skip(op) {
		left, right := e, operand()
		e = lambda(func(r *run) Value {
			if v := left.eval(r); truth(v) == (op == "or") {
				return v
			}
			return right.eval(r)
		})
	}
	return e
}

func (p *parser) or() expression { return p.logic("or", p.and) }

func (p *parser) and() expression { return p.logic("and", p.not) }

func (p *parser) not() expression {
	negations := 0
	for p.skip("not") {
		negations++
	}
	e := p.compare()
	if negations == 0 {
		return e
	}
	return folded(lambda(func(r *run) Value { return truth(e.eval(r)) == (negations%2 == 0) }), e)
}

// compare reads a chain of comparisons, such as a < b < c.
func (p *parser) compare() expression {
	operands := []expression{p.sum()}
	var ops []string
	for {
		t := p.peek()
		op := t.text
		switch {
		case t.kind == tokenOperator && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, op), t.is("in"):
			p.next()
		case t.is("not") && p.ahead().is("in"):
			p.pos += 2
			op = "not in"
		case len(ops) == 0:
			return operands[0]
		default:
			return folded(lambda(func(r *run) Value {
				left := operands[0].eval(r)
				for i, op := range ops {
					right := operands[i+1].eval(r)
					if !r.compare(op, left, right) {
						return false
					}
					left = right
				}
				return true
			}), operands...)
		}
		ops, operands = append(ops, op), append(operands, p.sum())
	}
}

func (p *parser) sum() expression {
	e := p.concat()
	for p.peek().is("+") || p.peek().is("-") {
		op := p.next().text
		right := p.concat()
		chain, ok := e.(*addExpression)
		switch {
		case op == "-":
			e = operation(op, e, right)
		case ok:
			chain.operands = append(chain.operands, right)
		default:
			e = folded(&addExpression{[]expression{e, right}}, e, right)
		}
	}
	return e
}

func operation(op string, left, right expression) expression {
	return folded(lambda(func(r *run) Value {
		a := left.eval(r)
		return r.operate(op, a, right.eval(r))
	}), left, right)
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

func (p *parser) product() expression {
	e := p.power()
	for p.peek().kind == tokenOperator && slices.Contains([]string{"*", "/", "//", "%"}, p.peek().text) {
		op := p.next().text
		e = operation(op, e, p.power())
	}
	return e
}

func (p *parser) power() expression {
	e := p.unary(true)
	for p.skip("**") {
		e = operation("**", e, p.unary(true))
	}
	return e
}

// unary reads an operand with its sign and with what follows it: attributes, elements and calls, and
// filters and tests if filtered is set.
func (p *parser) unary(filtered bool) expression {
	defer p.nest()()
	var e expression
	if op := p.peek().text; p.skip("-") || p.skip("+") {
		of := p.unary(false)
		e = folded(lambda(func(r *run) Value { return sign(op, of.eval(r)) }), of)
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
	return lambda(func(r *run) Value { return r.slice(defined(of.eval(r)), bounds) })
}

// callArguments reads the arguments of a call.
func (p *parser) callArguments() (a arguments) {
	p.expect("(")
	p.list(")", func() {
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
	})
	return a
}

func (p *parser) call(of expression) expression {
	line := p.peek().line
	return &callExpression{of: of, arguments: p.callArguments(), line: line}
}

// dotted reads a name with points in it.
func (p *parser) dotted() string {
	parts := []string{p.word()}
	for p.skip(".") {
		parts = append(parts, p.word())
	}
	return strings.Join(parts, ".")
}

// filters reads filters of an expression. With first the first filter stands without "|".
func (p *parser) filters(of expression, first bool) expression {
	for first || p.skip("|") {
		first = false
		var a arguments
		value, name := of, p.dotted()
		apply := filters[name]
		plain := !p.peek().is("(")
		if !plain {
			a = p.callArguments()
		}
		of = lambda(func(r *run) (v Value) {
			v = value.eval(r)
			switch {
			case apply == nil:
				panic(&unknownError{"filter", name})
			case plain:
				return apply(r, v, actuals{})
			}
			a.with(r, nil, func(a actuals) { v = apply(r, v, a) })
			return v
		})
	}
	return of
}

// test reads "is name(arguments)".
func (p *parser) test(of expression) expression {
	p.expect("is")
	negated := p.skip("not")
	name := p.dotted()
	var a arguments
	plain := false
	switch next := p.peek(); {
	case next.is("("):
		a = p.callArguments()
	case next.is("is"):
		syntax(next.line, "tests with 'is' cannot follow each other")
	case next.is("else") || next.is("or") || next.is("and"):
		plain = true
	case next.kind == tokenName, next.kind == tokenText, next.kind == tokenNumber, next.is("["), next.is("{"):
		// As in Jinja2, the operand of a test is any name, also "if" and "in".
		a.values = []expression{p.postfix(p.primary())}
	default:
		plain = true
	}
	apply := tests[name]
	return lambda(func(r *run) Value {
		v := of.eval(r)
		switch {
		case apply == nil:
			panic(&unknownError{"test", name})
		case plain:
			return apply(r, v, actuals{}) != negated
		}
		ok := false
		a.with(r, nil, func(a actuals) { ok = apply(r, v, a) })
		return ok != negated
	})
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

// literals are the names that are values.
var literals = map[string]Value{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) primary() expression {
	switch t := p.next(); {
	case t.kind == tokenName:
		if v, ok := literals[t.text]; ok {
			return &constant{v}
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
			return lambda(func(*run) Value { return newTuple() })
		}
		e := p.tuple(true)
		p.expect(")")
		return e
	case t.is("["):
		var items []expression
		p.list("]", func() { items = append(items, p.expression(true)) })
		return lambda(func(r *run) Value { return NewList(r.evalAll(items)...) })
	case t.is("{"):
		var keys, values []expression
		p.list("}", func() {
			keys = append(keys, p.expression(true))
			p.expect(":")
			values = append(values, p.expression(true))
		})
		return lambda(func(r *run) Value {
			r.list(2 * len(keys))
			d := NewDict()
			for i, key := range keys {
				k := key.eval(r)
				d.put(k, values[i].eval(r))
			}
			return d
		})
	default:
		syntax(t.line, "expected an expression, but found %s", t)
		return nil
	}
}
