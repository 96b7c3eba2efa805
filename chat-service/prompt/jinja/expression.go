package jinja

// An expression is a node of the tree that has a value.
type expression interface{ eval(*run) Value }

// evalAll evaluates expressions.
func (r *run) evalAll(all []expression) []Value {
	r.list(len(all))
	values := make([]Value, len(all))
	for i, e := range all {
		values[i] = e.eval(r)
	}
	return values
}

// A constant is a literal value, or text outside of tags.
type constant struct{ v Value }

func (e *constant) eval(*run) Value { return e.v }

// A nameExpression is the name of a variable.
type nameExpression struct {
	name      string
	scope     *scope // in which it stands
	at        reference
	undefined *undefined // its value if it is not set
}

func (e *nameExpression) eval(r *run) Value {
	v := r.at(e.at)
	if _, unset := v.(missing); unset {
		return e.undefined
	}
	return v
}

type listExpression struct{ items []expression }

func (e *listExpression) eval(r *run) Value { return &List{r.evalAll(e.items)} }

type tupleExpression struct{ items []expression }

func (e *tupleExpression) eval(r *run) Value { return &tuple{items: r.evalAll(e.items)} }

type dictExpression struct{ keys, values []expression }

func (e *dictExpression) eval(r *run) Value {
	r.list(2 * len(e.keys))
	d := NewDict()
	for i := range e.keys {
		key := e.keys[i].eval(r)
		d.put(key, e.values[i].eval(r))
	}
	return d
}

// A logicExpression is "and" or "or".
type logicExpression struct {
	left, right expression
	or          bool
}

func (e *logicExpression) eval(r *run) Value {
	if v := e.left.eval(r); truth(v) == e.or {
		return v
	}
	return e.right.eval(r)
}

type notExpression struct{ of expression }

func (e *notExpression) eval(r *run) Value { return !truth(e.of.eval(r)) }

// A conditionalExpression is "then if test else otherwise".
type conditionalExpression struct{ test, then, otherwise expression }

// noElse is the value of a condition without else that is false.
var noElse = &constant{&undefined{"the inline if-expression evaluated to false and no else section was defined"}}

// branch returns the expression that has the value.
func (e *conditionalExpression) branch(r *run) expression {
	if truth(e.test.eval(r)) {
		return e.then
	}
	return e.otherwise
}

func (e *conditionalExpression) eval(r *run) Value { return e.branch(r).eval(r) }

// A compareExpression is a chain of comparisons, such as a < b < c.
type compareExpression struct {
	first    expression
	ops      []string
	operands []expression
}

func (e *compareExpression) eval(r *run) Value {
	left := e.first.eval(r)
	for i, op := range e.ops {
		right := e.operands[i].eval(r)
		if !r.compare(op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (r *run) compare(op string, a, b Value) bool {
	switch op {
	case "==":
		return r.equal(a, b, 0)
	case "!=":
		return !r.equal(a, b, 0)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	switch n := r.order(a, b, op, 0); {
	case n == notANumber:
		return false
	case op == "<":
		return n < 0
	case op == "<=":
		return n <= 0
	case op == ">":
		return n > 0
	default:
		return n >= 0
	}
}

// An addExpression is a sum. Texts are gathered in the output.
type addExpression struct{ operands []expression }

func (e *addExpression) eval(r *run) Value {
	start := len(r.out)
	v, gathered := e.gather(r)
	if gathered {
		r.text(len(r.out) - start)
		v = string(r.out[start:])
	}
	r.out = r.out[:start]
	return v
}

// gather returns a sum, or appends it to the output if it is a text.
func (e *addExpression) gather(r *run) (v Value, gathered bool) {
	start := len(r.out)
	v = e.operands[0].eval(r)
	text, gathered := v.(string)
	r.out = append(r.out, text...)
	for _, o := range e.operands[1:] {
		right := o.eval(r)
		text, ok := right.(string)
		if gathered && ok {
			if r.out = append(r.out, text...); len(r.out) > 2*MaxOutput {
				panic(errOutput)
			}
			continue
		}
		if gathered {
			v = string(r.out[start:])
			r.out, gathered = r.out[:start], false
		}
		v = r.add(v, right)
	}
	r.spend((len(r.out) - start) / bytesPerStep)
	return v, gathered
}

// add is Python's a + b.
func (r *run) add(a, b Value) Value {
	x, xok := a.(*List)
	y, yok := b.(*List)
	if xok && yok {
		return &List{r.joined(x.Items, y.Items)}
	}
	p, pok := a.(*tuple)
	q, qok := b.(*tuple)
	if pok && qok {
		return &tuple{items: r.joined(p.items, q.items)}
	}
	s, sok := textOf(a)
	t, tok := textOf(b)
	if !sok || !tok {
		return arithmetic("+", a, b)
	}
	if r.text(len(s) + len(t)); isMarkup(a) || isMarkup(b) {
		return r.escaped(a) + r.escaped(b)
	}
	return s + t
}

func isMarkup(v Value) bool {
	_, ok := v.(markup)
	return ok
}

func (r *run) joined(a, b []Value) []Value {
	r.list(len(a) + len(b))
	return append(append(make([]Value, 0, len(a)+len(b)), a...), b...)
}

// A mathExpression is any other operation on two operands.
type mathExpression struct {
	op          string
	left, right expression
}

func (e *mathExpression) eval(r *run) Value {
	a := e.left.eval(r)
	b := e.right.eval(r)
	if format, ok := textOf(a); ok && e.op == "%" {
		return r.percent(format, b, isMarkup(a))
	}
	if e.op == "*" {
		if n, ok := intOf(a); ok {
			if v := r.repeat(b, n); v != nil {
				return v
			}
		} else if n, ok := intOf(b); ok {
			if v := r.repeat(a, n); v != nil {
				return v
			}
		}
	}
	return arithmetic(e.op, a, b)
}

// A concatExpression is "~": the texts of values, one after the other.
type concatExpression struct{ parts []expression }

func (e *concatExpression) eval(r *run) Value { return r.capture(func() { r.write(e) }) }

// A signExpression is "-" or "+" before a number.
type signExpression struct {
	sign string
	of   expression
}

func (e *signExpression) eval(r *run) Value {
	v := defined(e.of.eval(r))
	if f, ok := v.(float64); ok && e.sign == "-" {
		return -f
	}
	return arithmetic(e.sign, 0, v)
}
