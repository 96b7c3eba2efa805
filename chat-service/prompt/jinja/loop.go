package jinja

import "slices"

// A forStatement executes its body for each item of a value.
type forStatement struct {
	line       int
	target     target
	over, test expression
	body       *block
	otherwise  *block
	function   *function // of a recursive loop, or nil
	loop       *variable // the variable loop
	scope      *scope
	testTarget target // the names of target in the scope of the test
	testScope  *scope
	elseScope  *scope
}

func (s *forStatement) exec(r *run) flow {
	r.line = s.line
	v := s.over.eval(r)
	if s.function != nil {
		r.recurse(s, v, r.frame, 0)
	} else {
		r.iterate(s, v, 0)
	}
	return flowNext
}

// recurse executes a recursive loop over v in a frame of its own.
func (r *run) recurse(s *forStatement, v Value, around *frame, depth int) {
	r.enter()
	before := r.frame
	r.frame = newFrame(s.function, around)
	r.iterate(s, v, depth)
	r.frame = before
	r.leave()
}

// iterate executes a loop over v.
func (r *run) iterate(s *forStatement, v Value, depth int) {
	st := &loopState{r: r, s: s, frame: r.frame, around: r.loop, index0: -1, depth0: depth, tested: s.test == nil}
	r.loop = st
	st.begin(v)
	completed := false // an iteration without break and continue, as in Jinja2
	for st.advance() {
		f := st.iteration()
		completed = completed || f == flowNext
		if f == flowBreak {
			break
		}
	}
	r.loop = st.around
	if !completed && s.elseScope != nil {
		r.enterScope(s.elseScope)
		r.exec(s.otherwise)
	}
}

// iteration executes the body of a loop for one item.
func (st *loopState) iteration() flow {
	r, s := st.r, st.s
	r.spend(1)
	r.assign(&s.target, st.item)
	if s.loop.used {
		r.frame.slots[s.loop.slot] = st
	}
	r.enterScope(s.scope)
	return r.exec(s.body)
}

// A loopState is the variable loop.
type loopState struct {
	r      *run
	s      *forStatement
	frame  *frame
	around *loopState
	list   *List // may change while the loop reads it
	read   int   // items of list
	tested bool  // the items need no test

	index0, depth0 int
	before, item   Value
	ahead          Value // an item that was read early
	peeked, more   bool
	last           []Value // arguments of the last call of changed
}

func (st *loopState) begin(v Value) {
	s := st.s
	if !st.tested {
		st.r.enterScope(s.testScope)
	}
	var ok bool
	if st.list, ok = v.(*List); !ok || st.list.isLazy() {
		st.list = NewList(st.r.items(v)...)
	}
}

// advance moves to the next item.
func (st *loopState) advance() bool {
	item, ok := st.ahead, st.more
	if !st.peeked {
		item, ok = st.pull()
	}
	st.peeked = false
	if ok {
		st.index0++
		st.before, st.item = st.item, item
	}
	return ok
}

// pull reads the next item that passes the test.
func (st *loopState) pull() (item Value, ok bool) {
	for st.read < len(st.list.Items) {
		item = st.list.Items[st.read]
		st.read++
		if st.tested || st.passes(item) {
			return item, true
		}
	}
	return nil, false
}

func (st *loopState) passes(item Value) bool {
	r := st.r
	r.spend(1)
	before := r.frame
	r.frame = st.frame
	r.assign(&st.s.testTarget, item)
	ok := truth(st.s.test.eval(r))
	r.frame = before
	return ok
}

// peek reports whether there is another item.
func (st *loopState) peek() bool {
	if !st.peeked {
		st.ahead, st.more = st.pull()
		st.peeked = true
	}
	return st.more
}

// length returns the number of items. It reads all items of a loop with a test.
func (st *loopState) length() int {
	if st.tested {
		return len(st.list.Items)
	}
	passed := slices.Repeat([]Value{nil}, st.index0+1)
	for st.peek() {
		passed = append(passed, st.ahead)
		st.peeked = false
	}
	st.list, st.read, st.tested, st.peeked = NewList(passed...), st.index0+1, true, false
	return len(passed)
}

// attribute returns an attribute of the variable loop.
func (st *loopState) attribute(name string) Value {
	switch name {
	case "index":
		return st.index0 + 1
	case "index0":
		return st.index0
	case "first":
		return st.index0 == 0
	case "last":
		return !st.peek()
	case "depth":
		return st.depth0 + 1
	case "depth0":
		return st.depth0
	case "length":
		return st.length()
	case "revindex":
		return st.length() - st.index0
	case "revindex0":
		return st.length() - st.index0 - 1
	case "previtem":
		if st.index0 == 0 {
			return &absence{"there is no previous item"}
		}
		return st.before
	case "nextitem":
		if !st.peek() {
			return &absence{"there is no next item"}
		}
		return st.ahead
	case "cycle":
		return builtin(func(_ *run, a actuals) Value {
			if len(a.values) == 0 {
				panic(unusable("loop.cycle takes values"))
			}
			return a.values[st.index0%len(a.values)]
		})
	case "changed":
		return builtin(func(r *run, a actuals) Value {
			same := st.last != nil && r.equalItems(st.last, a.values, 0)
			st.last = append([]Value{}, a.values...)
			return !same
		})
	}
	return absent(st, name)
}
