package jinja

// arguments are the arguments of a call in a template.
type arguments struct {
	values              []expression
	names               []string
	named               []expression
	spread, spreadNamed expression // of * and **, or nil
}

// actuals are the values of arguments. They lie in the stack of the run, so a function copies those
// that it keeps.
type actuals struct {
	values []Value
	names  []string
	named  []Value
}

// with calls f with the values of the arguments, and with caller as an additional argument if it is
// not nil.
func (a *arguments) with(r *run, caller *macro, f func(actuals)) {
	mark := len(r.stack)
	push := func(all []expression) {
		for _, e := range all {
			v := e.eval(r)
			r.stack = append(r.stack, v)
		}
	}
	push(a.values)
	if a.spread != nil {
		r.stack = append(r.stack, r.joined(r.items(a.spread.eval(r)), nil)...)
	}
	middle, names := len(r.stack), a.names
	push(a.named)
	add := func(name string, v Value) {
		names = append(names[:len(names):len(names)], name)
		r.stack = append(r.stack, v)
	}
	if a.spreadNamed != nil {
		for name, v := range r.dict(actuals{values: []Value{a.spreadNamed.eval(r)}}).All() {
			add(name, v)
		}
	}
	if caller != nil {
		add(specials[0], caller)
	}
	f(actuals{r.stack[mark:middle:middle], names, r.stack[middle:len(r.stack):len(r.stack)]})
	r.stack = r.stack[:mark]
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

// text returns an argument that must be a text.
func (a *actuals) text(i int, name string) string { return mustText(a.value(i, name, nil)) }

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
	n, ok := intOf(v)
	if v == nil {
		return otherwise
	}
	if !ok {
		panic(unusable("an integer is needed, not %s", typeName(defined(v))))
	}
	return n
}

// The functions of templates.
type (
	// A builtin is a function as a value.
	builtin func(*run, actuals) Value
	// A method is a function of a value.
	method func(r *run, self Value, a actuals) Value
	// A filter changes a value.
	filter = method
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
	var callee, self Value
	var m method
	if a, ok := e.of.(*attributeExpression); ok {
		self = a.of.eval(r)
		switch self.(type) {
		case string:
			m = a.text
		case *Dict:
			m = dictMethods[a.name]
		}
		if m == nil {
			callee = r.attribute(self, a.name)
		}
	} else {
		callee = e.of.eval(r)
	}
	line := r.line
	e.arguments.with(r, caller, func(a actuals) {
		r.line = e.line
		if called, ok := callee.(*macro); ok && writes {
			r.callMacro(called, a)
			written = true
		} else if m != nil {
			v = m(r, self, a)
		} else {
			v = r.call(callee, a)
		}
	})
	r.line = line
	return v, written
}

// call calls a value.
func (r *run) call(callee Value, a actuals) Value {
	switch c := defined(callee).(type) {
	case *macro:
		return r.capture(func() { r.callMacro(c, a) })
	case builtin:
		return c(r, a)
	case *loopState:
		if c.s.function != nil && len(a.values) == 1 {
			return r.capture(func() { r.recurse(c.s, a.values[0], c.frame.around, c.depth0+1) })
		}
	}
	panic(unusable("%s is called, but is no function", typeName(callee)))
}

// An unknownError means that a template uses a filter or a test that does not exist.
type unknownError struct{ kind, name string }

func (e *unknownError) Error() string {
	return "there is no " + e.kind + " '" + e.name + "'; change the template, or take another one"
}
