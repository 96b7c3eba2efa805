package jinja

import (
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

// An attributeExpression is an attribute of a value, such as message.role.
type attributeExpression struct {
	of     expression
	name   string
	text   method   // of texts with this name, or nil
	inDict bool     // dicts have a method of this name
	absent *absence // of a dict without a member of this name
}

func newAttribute(of expression, name string) *attributeExpression {
	return &attributeExpression{of, name, textMethods[name], isDictAttribute(name), absent(NewDict(), name)}
}

// The methods that the sandbox forbids.
const (
	changesDict = " clear pop popitem setdefault update "
	changesList = " append extend insert remove reverse sort "
)

// isDictAttribute reports whether Python's dict has an attribute.
func isDictAttribute(name string) bool {
	return dictMethods[name] != nil || strings.Contains(changesDict, " "+name+" ")
}

func (e *attributeExpression) eval(r *run) Value {
	v := e.of.eval(r)
	if d, ok := v.(*Dict); ok && !e.inDict {
		if i := d.find(e.name); i >= 0 {
			return d.values[i]
		}
		return e.absent
	}
	return r.attribute(v, e.name)
}

// attribute is the attribute of a value, or undefined.
func (r *run) attribute(v Value, name string) Value {
	changes := ""
	var m method
	switch v := defined(v).(type) {
	case *Dict:
		m, changes = dictMethods[name], changesDict
		if member, ok := v.Get(name); ok && !isDictAttribute(name) {
			return member
		}
	case string, markup:
		m = textMethods[name]
	case *List:
		if i := slices.Index(v.names, name); i >= 0 {
			return v.Items[i]
		}
		if v.kind == "" {
			m, changes = listMethods[name], changesList
		} else if v.kind == kindTuple && (name == "count" || name == "index") {
			m = listMethods[name]
		}
	case *loopState:
		return v.attribute(name)
	case *namespace:
		if member, ok := v.attrs.Get(name); ok {
			return member
		}
	case *macro:
		if name == "name" {
			return v.of.name
		}
	}
	switch {
	case m != nil:
		return builtin(func(r *run, a actuals) Value { return m(r, v, a) })
	case strings.Contains(changes, " "+name+" "):
		return &absence{"access to attribute '" + name + "' of '" + typeName(v) + "' object is unsafe"}
	}
	return absent(v, name)
}

// An itemExpression is an element of a value, such as messages[0].
type itemExpression struct {
	of, key expression
	absent  *absence // of a dict without a member of a constant key
}

func newItem(of, key expression) *itemExpression {
	e := &itemExpression{of: of, key: key}
	if c, ok := key.(*constant); ok {
		if name, ok := c.v.(string); ok && !isDictAttribute(name) {
			e.absent = absent(NewDict(), name)
		}
	}
	return e
}

func (e *itemExpression) eval(r *run) Value {
	v, key := e.of.eval(r), e.key.eval(r)
	if d, ok := v.(*Dict); ok {
		if name, ok := key.(string); ok {
			r.spend(len(name) / bytesPerStep)
			if i := d.find(name); i >= 0 {
				return d.values[i]
			}
			if e.absent != nil {
				return e.absent
			}
		}
	}
	return r.element(v, key)
}

// element is the element of a value, or undefined.
func (r *run) element(v, key Value) Value {
	if d, ok := defined(v).(*Dict); ok {
		if l, ok := key.(*List); (!ok || l.kind == kindTuple) && !isMapping(key) {
			if i := d.find(codeOf(key)); i >= 0 {
				return d.values[i]
			}
		}
	}
	if name, ok := textOf(key); ok {
		found := r.attribute(v, name)
		if _, ok := found.(*absence); ok {
			return absent(v, "") // the key may be a part of a conversation
		}
		return found
	}
	if i, ok := intOf(key); ok {
		if item, ok := at(v, i); ok {
			return item
		}
	}
	return absent(v, "")
}

// at returns the item i of a sequence. Negative numbers count from the end.
func at(v Value, i int) (item Value, ok bool) {
	var items []Value
	switch v := v.(type) {
	case *List:
		if v.hasElements() {
			items = v.Items
		}
	case string, markup:
		s, _ := textOf(v)
		if start := offset(s, i); start >= 0 && start < len(s) {
			_, n := utf8.DecodeRuneInString(s[start:])
			return as(s[start:start+n], isMarkup(v)), true
		}
	case span:
		if i < 0 {
			i += v.len()
		}
		return v.start + i*v.step, i >= 0 && i < v.len()
	}
	if i < 0 {
		i += len(items)
	}
	if i < 0 || i >= len(items) {
		return nil, false
	}
	return items[i], true
}

// as returns a text, as a markup if it was made from one.
func as(s string, isMarkup bool) Value {
	if isMarkup {
		return markup(s)
	}
	return s
}

// offset returns the position of the character i in bytes. Negative numbers count from the end. It is
// -1 before the text, and len(s) behind it.
func offset(s string, i int) int {
	if i >= 0 {
		for at := range s {
			if i == 0 {
				return at
			}
			i--
		}
		return len(s)
	}
	end := len(s)
	for ; i < 0; i++ {
		if end == 0 {
			return -1
		}
		_, n := utf8.DecodeLastRuneInString(s[:end])
		end -= n
	}
	return end
}

// slice is a part of a sequence, such as messages[1:]. A bound that is missing is nil.
func (r *run) slice(v Value, expressions [3]expression) Value {
	var bounds [3]*int
	for i, b := range expressions {
		if b == nil {
			continue
		}
		bound := b.eval(r)
		n, ok := intOf(bound)
		if large, isLarge := bound.(*big.Int); isLarge {
			n, ok = large.Sign()*(1<<62), true
		}
		if ok {
			bounds[i] = &n
		} else if bound != nil {
			return absent(v, "")
		}
	}
	if bounds[2] != nil && *bounds[2] == 0 {
		panic(unusable("the step of a slice is 0"))
	}
	switch v := v.(type) {
	case string, markup:
		s, _ := textOf(v)
		return as(r.sliceText(s, bounds), isMarkup(v))
	case *List:
		if v.hasElements() {
			start, n, step := sliceRange(len(v.Items), bounds)
			return &List{Items: r.fill(n, func(i int) Value { return v.Items[start+i*step] }), kind: v.kind}
		}
	case span:
		start, n, step := sliceRange(v.len(), bounds)
		return span{v.start + start*v.step, v.start + (start+n*step)*v.step, step * v.step}
	}
	return absent(v, "")
}

// sliceRange returns the first index, the number of items and the step of a slice of n items.
func sliceRange(n int, bounds [3]*int) (start, count, step int) {
	step, first, stop := 1, 0, n
	if bounds[2] != nil {
		step = max(-n-1, min(*bounds[2], n+1)) // a larger step takes one item, too
	}
	low, high := 0, n
	if step < 0 {
		first, stop, low, high = n-1, -1, -1, n-1
	}
	for i, p := range []*int{&first, &stop} {
		if bounds[i] != nil {
			if *p = *bounds[i]; *p < 0 {
				*p += n
			}
			*p = max(low, min(*p, high))
		}
	}
	return first, span{first, stop, step}.len(), step
}

func (r *run) sliceText(s string, bounds [3]*int) string {
	if r.spend(len(s) / bytesPerStep); bounds[2] == nil || *bounds[2] == 1 {
		start, stop := 0, len(s)
		if bounds[0] != nil {
			start = max(offset(s, *bounds[0]), 0)
		}
		if bounds[1] != nil {
			stop = offset(s, *bounds[1])
		}
		if start >= stop {
			return ""
		}
		return s[start:stop]
	}
	chars := r.items(s)
	start, n, step := sliceRange(len(chars), bounds)
	return r.capture(func() {
		for i := range n {
			r.writeValue(chars[start+i*step])
		}
	})
}

// items returns the items over which a loop over v goes.
func (r *run) items(v Value) []Value {
	switch v := v.(type) {
	case *List:
		items := v.Items
		if v.isLazy() {
			v.Items = nil
		}
		return items
	case *absence:
		return nil
	case string, markup:
		s, _ := textOf(v)
		r.list(len(s))
		items := make([]Value, 0, len(s))
		for s != "" {
			_, n := utf8.DecodeRuneInString(s)
			items = append(items, s[:n])
			s = s[n:]
		}
		return items
	case span:
		return r.fill(v.len(), func(i int) Value { return v.start + i*v.step })
	case *Dict:
		return r.fill(v.Len(), v.key)
	}
	panic(unusable("%s is not iterable", typeName(v)))
}

// fill returns n items.
func (r *run) fill(n int, item func(i int) Value) []Value {
	r.list(n)
	items := make([]Value, n)
	for i := range items {
		items[i] = item(i)
	}
	return items
}
