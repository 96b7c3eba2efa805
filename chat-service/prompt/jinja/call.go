package jinja

// arguments are the arguments of a call in a template.
type arguments struct {
	values              []expression
	names               []string
	named               []expression
	spread, spreadNamed expression // of * and **, or nil
	some                bool       // there are any
}

// actuals are the values of arguments. A function must copy what it keeps: they are in the stack of
// the run.
type actuals struct {
	values []Value
	names  []string
	named  []Value
}

// evaluate evaluates arguments. The caller must set r.stack to its length before when the call has
// returned.
func (a *arguments) evaluate(r *run, caller *macro) actuals {
	mark := len(r.stack)
	for _, e := range a.values {
		v := e.eval(r)
		r.stack = append(r.stack, v)
	}
	if a.spread != nil {
		items := r.items(a.spread.eval(r))
		r.list(len(items))
		r.stack = append(r.stack, items...)
	}
	middle, names := len(r.stack), a.names
	for _, e := range a.named {
		v := e.eval(r)
		r.stack = append(r.stack, v)
	}
	add := func(name string, v Value) {
		names = append(names[:len(names):len(names)], name)
		r.stack = append(r.stack, v)
	}
	if a.spreadNamed != nil {
		v := a.spreadNamed.eval(r)
		d, ok := v.(*Dict)
		if !ok {
			panic(unusable("the argument after ** is %s, not a mapping", typeName(v)))
		}
		r.list(d.Len())
		for name, v := range d.All() {
			add(name, v)
		}
	}
	if caller != nil {
		add(specials[0], caller)
	}
	return actuals{r.stack[mark:middle:middle], names, r.stack[middle:len(r.stack):len(r.stack)]}
}

// get returns the argument at a position or with a name.
func (a *actuals) get(i int, name string) (v Value, ok bool) {
	if i < len(a.values) {
		return a.values[i], true
	}
	for j, n := range a.names {
		if n == name {
			return a.named[j], true
		}
	}
	return nil, false
}

// value returns an argument, or a default.
func (a *actuals) value(i int, name string, otherwise Value) Value {
	if v, ok := a.get(i, name); ok {
		return v
	}
	return otherwise
}

// flag reports whether an argument is true.
func (a *actuals) flag(i int, name string) bool { return truth(a.value(i, name, false)) }

// text returns an argument that must be a text. None is the default.
func (a *actuals) text(i int, name, otherwise string) string {
	v := a.value(i, name, nil)
	if v == nil {
		return otherwise
	}
	return mustText(v)
}

// need returns an argument that must be a text.
func (a *actuals) need(i int, name string) string { return mustText(a.value(i, name, nil)) }

func mustText(v Value) string {
	s, ok := textOf(defined(v))
	if !ok {
		panic(unusable("a text is needed, not %s", typeName(v)))
	}
	return s
}

// int returns an argument that must be an integer. None is the default.
func (a *actuals) int(i int, name string, otherwise int) int {
	v := a.value(i, name, nil)
	if v == nil {
		return otherwise
	}
	n, ok := intOf(defined(v))
	if !ok {
		panic(unusable("an integer is needed, not %s", typeName(v)))
	}
	return n
}

// The functions of templates.
type (
	// A builtin is a function as a value.
	builtin func(*run, actuals) Value
	// A method is a function of a value.
	method func(r *run, self Value, a actuals) Value
	// A boundMethod is a method as a value.
	boundMethod struct {
		self Value
		call method
	}
	// A filter changes a value.
	filter func(r *run, v Value, a actuals) Value
	// A test says whether a value has a property.
	test func(r *run, v Value, a actuals) bool
)

// A callExpression is a call.
type callExpression struct {
	of        expression
	arguments arguments
	line      int
}

func (e *callExpression) eval(r *run) Value {
	v, _ := e.with(r, nil, false)
	return v
}

// with calls the function, with caller as an additional argument if it is not nil. If writes is set, a
// macro writes its text, and with reports that.
func (e *callExpression) with(r *run, caller *macro, writes bool) (v Value, written bool) {
	callee, self, m := e.callee(r)
	line, mark := r.line, len(r.stack)
	a := e.arguments.evaluate(r, caller)
	r.line = e.line
	if called, ok := callee.(*macro); ok && writes {
		r.callMacro(called, a)
		written = true
	} else if m != nil {
		v = m(r, self, a)
	} else {
		v = r.call(callee, a)
	}
	r.line, r.stack = line, r.stack[:mark]
	return v, written
}

// callee returns the called value, or a method and its value.
func (e *callExpression) callee(r *run) (callee, self Value, m method) {
	a, ok := e.of.(*attributeExpression)
	if !ok {
		return e.of.eval(r), nil, nil
	}
	self = a.of.eval(r)
	switch self.(type) {
	case string:
		m = a.text
	case *Dict:
		m = dictMethods[a.name]
	}
	if m != nil {
		return nil, self, m
	}
	return r.attribute(self, a.name), nil, nil
}

// call calls a value.
func (r *run) call(callee Value, a actuals) Value {
	switch c := defined(callee).(type) {
	case *macro:
		return r.capture(func() { r.callMacro(c, a) })
	case builtin:
		return c(r, a)
	case *boundMethod:
		return c.call(r, c.self, a)
	case *loopState:
		if c.s.function != nil && len(a.values) == 1 {
			return r.capture(func() { r.recurse(c.s, a.values[0], c.frame.around, c.depth0+1) })
		}
	}
	panic(unusable("%s is called, but is no function", typeName(callee)))
}

// A filterExpression is a value with a filter.
type filterExpression struct {
	of        expression
	name      string
	apply     filter // nil if there is no filter of this name
	arguments arguments
	line      int
}

func (e *filterExpression) eval(r *run) Value {
	v := e.of.eval(r)
	if e.apply == nil {
		panic(&unknownError{"filter", e.name})
	}
	if !e.arguments.some {
		return e.apply(r, v, actuals{})
	}
	mark := len(r.stack)
	v = e.apply(r, v, e.arguments.evaluate(r, nil))
	r.stack = r.stack[:mark]
	return v
}

// An unknownError means that a template uses a filter or a test that does not exist.
type unknownError struct{ kind, name string }

func (e *unknownError) Error() string {
	return "there is no " + e.kind + " '" + e.name + "'; change the template, or take another one"
}

// A testExpression is "of is name(arguments)".
type testExpression struct {
	of        expression
	name      string
	apply     test // nil if there is no test of this name
	negated   bool
	arguments arguments
	line      int
}

func (e *testExpression) eval(r *run) Value {
	v := e.of.eval(r)
	if e.apply == nil {
		panic(&unknownError{"test", e.name})
	}
	if !e.arguments.some {
		return e.apply(r, v, actuals{}) != e.negated
	}
	mark := len(r.stack)
	ok := e.apply(r, v, e.arguments.evaluate(r, nil))
	r.stack = r.stack[:mark]
	return ok != e.negated
}
