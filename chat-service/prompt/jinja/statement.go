package jinja

// A statement is a node of the tree that writes or sets something.
type statement interface{ exec(*run) flow }

// A flow says where a statement continues.
type flow int

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

// exec executes a block.
func (r *run) exec(b *block) flow {
	r.spend(b.cost)
	for _, s := range b.statements {
		if f := s.exec(r); f != flowNext {
			return f
		}
	}
	return flowNext
}

// A target is what an assignment or a loop sets: a name, an attribute of a namespace, or several
// targets.
type target struct {
	name      *nameExpression
	attribute string
	parts     []target
}

// assign sets a target.
func (r *run) assign(t *target, v Value) {
	switch {
	case t.attribute != "":
		of := t.name.eval(r)
		ns, ok := of.(*namespace)
		if !ok {
			panic(unusable("the attribute %s of %s is set, which is no namespace", t.attribute, typeName(of)))
		}
		r.make(2 * valueSize)
		ns.attrs.Set(t.attribute, v)
	case t.name != nil:
		r.frame.slots[t.name.at.slot] = v
	default:
		items := r.items(v)
		if len(items) != len(t.parts) {
			panic(unusable("%d values are unpacked into %d names", len(items), len(t.parts)))
		}
		for i := range t.parts {
			r.assign(&t.parts[i], items[i])
		}
	}
}

// An outputStatement writes texts and values.
type outputStatement struct{ parts []part }

type part struct {
	of   expression
	line int
}

func (s *outputStatement) exec(r *run) flow {
	for _, p := range s.parts {
		r.line = p.line
		r.write(p.of)
	}
	return flowNext
}

// write appends the text of an expression to the output. Texts of sums, of macros and of parts of "~"
// are not made before.
func (r *run) write(e expression) {
	switch e := e.(type) {
	case *constant:
		r.writeValue(e.v)
	case *addExpression:
		start := len(r.out)
		if v, gathered := e.gather(r); !gathered {
			r.out = r.out[:start]
			r.writeValue(v)
		}
	case *concatExpression:
		for _, part := range e.parts {
			r.write(part)
		}
	case *conditionalExpression:
		r.write(e.branch(r))
	case *callExpression:
		if v, written := e.with(r, nil, true); !written {
			r.writeValue(v)
		}
	default:
		r.writeValue(e.eval(r))
	}
}

func (r *run) writeValue(v Value) {
	start := len(r.out)
	switch v := v.(type) {
	case string:
		r.out = append(r.out, v...)
	case markup:
		r.out = append(r.out, v...)
	case *undefined:
	default:
		r.out = r.repr(r.out, v, 0)
	}
	if len(r.out) > MaxOutput {
		panic(errOutput)
	}
	r.spend((len(r.out) - start) / bytesPerStep)
}

// capture returns what f writes.
func (r *run) capture(f func()) string {
	start := len(r.out)
	f()
	r.text(len(r.out) - start)
	text := string(r.out[start:])
	r.out = r.out[:start]
	return text
}

// A branch is a condition with the statements that it guards.
type branch struct {
	line int
	test expression
	body *block
}

// An ifStatement executes the first branch whose condition is true.
type ifStatement struct {
	branches  []branch
	otherwise *block
}

func (s *ifStatement) exec(r *run) flow {
	for i := range s.branches {
		b := &s.branches[i]
		if r.line = b.line; truth(b.test.eval(r)) {
			return r.exec(b.body)
		}
	}
	return r.exec(s.otherwise)
}

// A setStatement sets variables, or an attribute of a namespace.
type setStatement struct {
	line   int
	target target
	value  expression
}

func (s *setStatement) exec(r *run) flow {
	r.line = s.line
	r.assign(&s.target, s.value.eval(r))
	return flowNext
}

// A blockText is the text that a block writes, as a value.
type blockText struct {
	body  *block
	scope *scope
}

func (e *blockText) eval(r *run) Value {
	return r.capture(func() {
		r.enterScope(e.scope)
		r.exec(e.body)
	})
}

// A filterStatement writes the filtered text of its body.
type filterStatement struct {
	line   int
	filter expression
}

func (s *filterStatement) exec(r *run) flow {
	r.line = s.line
	r.writeValue(s.filter.eval(r))
	return flowNext
}

// A withStatement executes its body in a scope of its own.
type withStatement struct {
	targets []target
	values  []expression
	scope   *scope
	body    *block
}

func (s *withStatement) exec(r *run) flow {
	r.enterScope(s.scope)
	for i := range s.targets {
		r.assign(&s.targets[i], s.values[i].eval(r))
	}
	return r.exec(s.body)
}

// A controlStatement is break or continue.
type controlStatement flow

func (s controlStatement) exec(*run) flow { return flow(s) }
