package jinja

// An expression is a node of the tree that has a value.
type expression interface{ eval(*run) Value }

// A lambda is an expression as a function.
type lambda func(*run) Value

func (f lambda) eval(r *run) Value { return f(r) }

// A constant is a literal value, or text outside of tags.
type constant struct{ v Value }

func (e *constant) eval(*run) Value { return e.v }

// A nameExpression is the name of a variable.
type nameExpression struct {
	name    string
	scope   *scope // in which it stands
	at      reference
	absence *absence // its value if it is not set
}

func (e *nameExpression) eval(r *run) Value {
	v := r.at(e.at)
	if _, unset := v.(missing); unset {
		return e.absence
	}
	return v
}

// evalAll evaluates expressions.
func (r *run) evalAll(all []expression) []Value {
	return r.fill(len(all), func(i int) Value { return all[i].eval(r) })
}

// A conditionalExpression is "then if test else otherwise".
type conditionalExpression struct{ test, then, otherwise expression }

// noElse is the value of a condition without else that is false.
var noElse = &constant{&absence{"the inline if-expression evaluated to false and no else section was defined"}}

// branch returns the expression that has the value.
func (e *conditionalExpression) branch(r *run) expression {
	if truth(e.test.eval(r)) {
		return e.then
	}
	return e.otherwise
}

func (e *conditionalExpression) eval(r *run) Value { return e.branch(r).eval(r) }

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
	n := r.order(a, b, op, 0)
	if n == notANumber {
		return false
	}
	return n < 0 && op[0] == '<' || n > 0 && op[0] == '>' || n == 0 && len(op) == 2
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
	if xok && yok && x.kind == y.kind && x.hasElements() {
		return &List{Items: r.joined(x.Items, y.Items), kind: x.kind}
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

func (r *run) joined(a, b []Value) []Value {
	r.list(len(a) + len(b))
	return append(append(make([]Value, 0, len(a)+len(b)), a...), b...)
}

// operate is any other operation on two operands.
func (r *run) operate(op string, a, b Value) Value {
	if format, ok := textOf(a); ok && op == "%" {
		return r.percent(format, b, isMarkup(a))
	}
	if op == "*" {
		if n, ok := intOf(a); ok {
			a, b = b, n
		}
		if n, ok := intOf(b); ok {
			if v := r.repeat(a, n); v != nil {
				return v
			}
		}
	}
	return arithmetic(op, a, b)
}

// A concatExpression is "~": the texts of values, one after the other.
type concatExpression struct{ parts []expression }

func (e *concatExpression) eval(r *run) Value { return r.capture(func() { r.write(e) }) }

// sign is "-" or "+" before a number.
func sign(op string, v Value) Value {
	if f, ok := defined(v).(float64); ok && op == "-" {
		return -f
	}
	return arithmetic(op, 0, v)
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
