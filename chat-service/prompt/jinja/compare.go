package jinja

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// maxNesting bounds the depth of values that are written or compared, because a namespace can contain
// itself.
const maxNesting = 200

// nested fails if a value is nested too deeply.
func nested(depth int) {
	if depth > maxNesting {
		panic(limitError("a value is nested more than %d levels deep", maxNesting))
	}
}

// equal is Python's ==.
func (r *run) equal(a, b Value, depth int) bool {
	nested(depth)
	if x, ok := textOf(a); ok {
		y, ok := textOf(b)
		r.spend(min(len(x), len(y)) / bytesPerStep)
		return ok && x == y
	}
	switch x := a.(type) {
	case *List:
		y, ok := b.(*List)
		return x == y || ok && x.kind == y.kind && x.hasElements() && r.equalItems(x.Items, y.Items, depth)
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || x.Len() != y.Len() {
			return false
		}
		for i, key := range x.keys {
			r.spend(1)
			if v, ok := y.Get(key); !ok || !r.equal(x.values[i], v, depth+1) {
				return false
			}
		}
		return true
	case *absence:
		_, ok := b.(*absence)
		return ok
	case span:
		y, ok := b.(span)
		return ok && r.equalItems(r.items(x), r.items(y), depth)
	}
	if order, ok := compareNumbers(a, b); ok {
		return order == 0
	}
	return a == b
}

func (r *run) equalItems(a, b []Value, depth int) bool {
	return slices.EqualFunc(a, b, func(a, b Value) bool {
		r.spend(1)
		return r.equal(a, b, depth+1)
	})
}

// notANumber is the order of NaN and any number.
const notANumber = 2

// compareNumbers compares two numbers. ok is false if a or b is no number.
func compareNumbers(a, b Value) (order int, ok bool) {
	x, xok := intOf(a)
	y, yok := intOf(b)
	if xok && yok {
		return cmp.Compare(x, y), true
	}
	p, pok := bigOf(a)
	q, qok := bigOf(b)
	if pok && qok {
		return p.Cmp(q), true
	}
	f, fok := floatOf(a)
	g, gok := floatOf(b)
	if math.IsNaN(f) || math.IsNaN(g) {
		return notANumber, fok && gok
	}
	return cmp.Compare(f, g), fok && gok
}

// order is Python's order of two values for the operator op.
func (r *run) order(a, b Value, op string, depth int) int {
	nested(depth)
	if x, ok := textOf(a); ok {
		if y, ok := textOf(b); ok {
			r.spend(min(len(x), len(y)) / bytesPerStep)
			return strings.Compare(x, y)
		}
	}
	if n, ok := compareNumbers(a, b); ok {
		return n
	}
	x, xok := defined(a).(*List)
	y, yok := defined(b).(*List)
	if xok && yok && x.kind == y.kind && x.hasElements() {
		return r.orderItems(x.Items, y.Items, op, depth)
	}
	panic(unusable("%s is not possible between %s and %s", op, typeName(a), typeName(b)))
}

func (r *run) orderItems(a, b []Value, op string, depth int) int {
	for i := range min(len(a), len(b)) {
		r.spend(1)
		if !r.equal(a[i], b[i], depth+1) {
			return r.order(a[i], b[i], op, depth+1)
		}
	}
	return cmp.Compare(len(a), len(b))
}

// contains is Python's "item in container".
func (r *run) contains(container, item Value) bool {
	if s, ok := textOf(container); ok {
		sub, ok := textOf(item)
		if !ok {
			panic(unusable("'in' a text needs a text, not %s", typeName(item)))
		}
		r.spend(len(s) / bytesPerStep)
		return strings.Contains(s, sub)
	}
	if d, ok := container.(*Dict); ok {
		return d.find(codeOf(item)) >= 0
	}
	return slices.ContainsFunc(r.items(container), func(other Value) bool {
		r.spend(1)
		return r.equal(other, item, 0)
	})
}
