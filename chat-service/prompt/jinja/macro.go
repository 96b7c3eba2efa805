package jinja

// specials are variables of each macro: the body of a call block, and superfluous arguments.
var specials = [...]string{"caller", "kwargs", "varargs"}

// A macroCode is the code of a macro or of the body of a call block.
type macroCode struct {
	name       string
	parameters []parameter
	special    [len(specials)]*variable // nil for a name that is a parameter
	function   *function
	scope      *scope
	body       *block
}

// A parameter is a name with an optional default.
type parameter struct {
	name      *nameExpression
	otherwise expression
}

// A macro is a macro as a value, with the frame around it.
type macro struct {
	of     *macroCode
	around *frame
}

// callMacro writes the text of a macro.
func (r *run) callMacro(m *macro, a actuals) {
	r.enter()
	before := r.frame
	r.make(valueSize * m.of.function.slots)
	f := newFrame(m.of.function, m.around)
	m.of.bind(f, a)
	r.frame = f
	r.enterScope(m.of.scope)
	for _, p := range m.of.parameters {
		if _, unset := f.slots[p.name.at.slot].(missing); !unset {
			continue
		}
		if p.otherwise != nil {
			f.slots[p.name.at.slot] = p.otherwise.eval(r)
		} else {
			f.slots[p.name.at.slot] = &absence{"parameter '" + p.name.name + "' was not provided"}
		}
	}
	r.exec(m.of.body)
	r.frame = before
	r.leave()
}

// bind gives the parameters of a macro the arguments of a call.
func (m *macroCode) bind(f *frame, a actuals) {
	n := min(len(a.values), len(m.parameters))
	for i, p := range m.parameters[:n] {
		f.slots[p.name.at.slot] = a.values[i]
	}
	caller, kwargs, varargs := m.special[0], m.special[1], m.special[2]
	var rest *Dict // the named arguments without a parameter
	if caller != nil {
		f.slots[caller.slot] = &absence{"No caller defined"}
	}
names:
	for i, name := range a.names {
		for _, p := range m.parameters[n:] {
			if p.name.name == name {
				f.slots[p.name.at.slot] = a.named[i]
				continue names
			}
		}
		if name == specials[0] && caller != nil && caller.used {
			f.slots[caller.slot] = a.named[i]
			continue
		}
		if rest == nil {
			rest = NewDict()
		}
		rest.Set(name, a.named[i])
	}
	if kwargs != nil && kwargs.used {
		if f.slots[kwargs.slot] = rest; rest == nil {
			f.slots[kwargs.slot] = NewDict()
		}
	} else if rest != nil {
		panic(unusable("the macro %s takes no argument %s", m.name, rest.keys[0]))
	}
	if varargs != nil && varargs.used {
		f.slots[varargs.slot] = newTuple(append([]Value{}, a.values[n:]...)...)
	} else if len(a.values) > n {
		panic(unusable("the macro %s takes at most %d arguments", m.name, n))
	}
}

// macro reads the parameters and the body of a macro or a call block. between reads what stands
// between them, and may be nil.
func (p *parser) macro(name, end string, between func()) *macroCode {
	m := &macroCode{name: name, function: &function{around: p.scope.of}}
	around := p.scope
	m.scope = p.within(m.function, func(s *scope) {
		if between == nil || p.peek().is("(") {
			p.expect("(")
			p.list(")", func() {
				parameter := parameter{name: p.target(true).name}
				if p.skip("=") {
					parameter.otherwise = p.expression(true)
				}
				m.parameters = append(m.parameters, parameter)
			})
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
	})
	return m
}
