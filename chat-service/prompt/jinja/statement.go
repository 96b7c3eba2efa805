package jinja

// A statement writes or sets something, or executes other statements.
type statement func(*run) flow

// A flow says where a statement continues.
type flow int

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

// A block is a list of statements.
type block struct {
	statements []statement
	cost       int // of one execution, in steps
}

func (b *block) add(s statement) { b.statements = append(b.statements, s) }

// exec executes a block.
func (r *run) exec(b *block) flow {
	r.spend(b.cost)
	for _, s := range b.statements {
		if f := s(r); f != flowNext {
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

// output returns the statement that writes an expression.
func output(e expression, line int) statement {
	return func(r *run) flow {
		r.line = line
		r.write(e)
		return flowNext
	}
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
	if s, ok := textOf(v); ok {
		r.out = append(r.out, s...)
	} else if !isUndefined(v) {
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
