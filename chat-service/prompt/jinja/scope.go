package jinja

// A function is a part of a template that runs with a frame of its own: the template, a macro, the
// body of a call block, or a recursive loop.
type function struct {
	around *function
	slots  int
}

// A frame has the variables of a function that runs.
type frame struct {
	slots  []Value
	around *frame // of the function around it
}

func newFrame(f *function, around *frame) *frame {
	slots := make([]Value, f.slots)
	for i := range slots {
		slots[i] = missing{}
	}
	return &frame{slots, around}
}

// A scope is a part of a template with variables of its own. As in Jinja2, a name that a scope sets
// anywhere is a variable of that scope, which has at first the value of the variable around it.
type scope struct {
	around    *scope
	of        *function
	variables map[string]*variable
	entry     []copying
}

// A variable is a slot in the frames of a function.
type variable struct {
	slot      int
	parameter bool // gets its value from the statement that opens the scope
	used      bool
}

// A reference is a variable as seen from a function: the number of functions between them, and the
// slot.
type reference struct{ up, slot int }

// A copying gives a variable its value when its scope is entered.
type copying struct {
	slot int
	from reference
}

// enterScope gives the variables of a scope their first values.
func (r *run) enterScope(s *scope) {
	for _, c := range s.entry {
		r.frame.slots[c.slot] = r.at(c.from)
	}
}

// at returns the content of a variable.
func (r *run) at(ref reference) Value {
	f := r.frame
	for range ref.up {
		f = f.around
	}
	return f.slots[ref.slot]
}

// open begins a scope in a function, or in that of the current scope.
func (p *parser) open(of *function) *scope {
	if of == nil {
		of = p.scope.of
	}
	s := &scope{around: p.scope, of: of, variables: map[string]*variable{}}
	p.scope = s
	p.scopes = append(p.scopes, s)
	return s
}

// within reads something in a scope of its own.
func (p *parser) within(of *function, read func(*scope)) *scope {
	around := p.scope
	s := p.open(of)
	read(s)
	p.scope = around
	return s
}

// declare returns the variable of a name in the scope.
func (s *scope) declare(name string, parameter bool) *variable {
	v := s.variables[name]
	if v == nil {
		v = &variable{slot: s.of.slots}
		s.of.slots++
		s.variables[name] = v
	}
	v.parameter = v.parameter || parameter
	return v
}

// find returns the reference of a function to a name, beginning in scope s.
func (p *parser) find(name string, from *function, s *scope) reference {
	up := 0
	for f := from; s != nil; s = s.around {
		for ; f != s.of; f = f.around {
			up++
		}
		if v := s.variables[name]; v != nil {
			v.used = true
			return reference{up, v.slot}
		}
	}
	if _, known := p.free[name]; !known {
		p.free[name] = p.root.slots
		p.root.slots++
	}
	return reference{up, p.free[name]}
}

// resolve gives all names their variables when the whole template is read, because a macro may use a
// variable that is set after it. It returns the slots of the names that no scope sets.
func (p *parser) resolve() map[string]int {
	for _, n := range p.names {
		n.at = p.find(n.name, n.scope.of, n.scope)
	}
	for _, s := range p.scopes {
		for name, v := range s.variables {
			if !v.parameter {
				s.entry = append(s.entry, copying{v.slot, p.find(name, s.of, s.around)})
			}
		}
	}
	return p.free
}

// name returns the expression of a name, which resolve gives its variable.
func (p *parser) name(name string) *nameExpression {
	n := &nameExpression{name: name, scope: p.scope, absence: &absence{"'" + name + "' is undefined"}}
	p.names = append(p.names, n)
	return n
}
