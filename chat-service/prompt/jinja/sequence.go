package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// getter returns the function that follows an attribute such as "function.name", or a number.
// otherwise stands for undefined attributes, if it is not nil.
func (r *run) getter(attribute, otherwise Value) func(Value) Value {
	keys := steps(attribute, ".")
	return func(v Value) Value {
		r.spend(1)
		for _, key := range keys {
			if key != nil {
				v = r.element(v, key)
			}
			if otherwise != nil && isUndefined(v) {
				v = otherwise
			}
		}
		return v
	}
}

// steps returns the names and numbers of a path, or the path itself if it is not a text.
func steps(path Value, separator string) []Value {
	s, ok := textOf(path)
	if !ok {
		return []Value{path}
	}
	var all []Value
	for part := range strings.SplitSeq(s, separator) {
		if n, err := strconv.Atoi(part); err == nil {
			all = append(all, n)
		} else {
			all = append(all, part)
		}
	}
	return all
}

// lazyItems returns the items of a value for map and select, which take None for an empty list.
func (r *run) lazyItems(v Value) []Value {
	if !truth(v) {
		return nil
	}
	return r.items(v)
}

func mapFilter(r *run, v Value, a actuals) Value {
	f := r.getter(a.value(0, "attribute", nil), a.value(1, "default", nil))
	if len(a.values) > 0 {
		apply := filters[a.text(0, "")]
		if apply == nil {
			panic(&unknownError{"filter", a.text(0, "")})
		}
		rest := actuals{a.values[1:], a.names, a.named}
		f = func(v Value) Value { return apply(r, v, rest) }
	}
	items := r.lazyItems(v)
	return generator(r.fill(len(items), func(i int) Value { return f(items[i]) }))
}

// choose returns select or reject, or the variants for an attribute.
func choose(want, byAttribute bool) filter {
	return func(r *run, v Value, a actuals) Value {
		get, values := r.getter(nil, nil), a.values
		if byAttribute {
			get = r.getter(a.value(0, "", nil), nil)
			values = values[min(1, len(values)):]
		}
		passes := func(_ *run, v Value, _ actuals) bool { return truth(v) }
		if len(values) > 0 {
			name := mustText(values[0])
			if passes = tests[name]; passes == nil {
				panic(&unknownError{"test", name})
			}
			values = values[1:]
		}
		rest := actuals{values, a.names, a.named}
		return r.filtered(r.lazyItems(v), func(item Value) bool { return passes(r, get(item), rest) == want })
	}
}

// filtered returns the items that keep accepts.
func (r *run) filtered(items []Value, keep func(Value) bool) Value {
	var kept []Value
	for _, item := range items {
		if r.list(1); keep(item) {
			kept = append(kept, item)
		}
	}
	return generator(kept)
}

// keys returns the function that returns the keys of an item for sorting: the attributes, with commas
// between them, in lower case unless exact is set. otherwise stands for undefined attributes.
func (r *run) keys(attribute, otherwise Value, exact bool) func(Value) Value {
	attributes := steps(attribute, ",")
	return func(v Value) Value {
		return NewList(r.fill(len(attributes), func(i int) Value {
			key := r.getter(attributes[i], otherwise)(v)
			if s, ok := textOf(key); ok && !exact {
				r.text(len(s))
				key = lower(s)
			}
			return key
		})...)
	}
}

// sorted sorts items by keys, stably.
func (r *run) sorted(items []Value, key func(Value) Value, backwards bool) []Value {
	pairs := r.fill(len(items), func(i int) Value { return [2]Value{key(items[i]), items[i]} })
	slices.SortStableFunc(pairs, func(a, b Value) int {
		r.spend(1)
		n := r.order(a.([2]Value)[0], b.([2]Value)[0], "<", 0)
		if backwards {
			return -n
		}
		return n
	})
	for i, pair := range pairs {
		pairs[i] = pair.([2]Value)[1]
	}
	return pairs
}

func sortFilter(r *run, v Value, a actuals) Value {
	keys := r.keys(a.value(2, "attribute", nil), nil, a.flag(1, "case_sensitive"))
	return NewList(r.sorted(r.items(v), keys, a.flag(0, "reverse"))...)
}

func dictSort(r *run, v Value, a actuals) Value {
	d, ok := defined(v).(*Dict)
	if !ok {
		panic(unusable("dictsort needs a mapping, not %s", typeName(v)))
	}
	position := 0
	if a.value(1, "by", nil) == "value" {
		position = 1
	}
	return NewList(r.sorted(r.view(d, "items").Items, r.keys(position, nil, a.flag(0, "case_sensitive")), a.flag(2, "reverse"))...)
}

func unique(r *run, v Value, a actuals) Value {
	keys, seen := r.keys(a.value(1, "attribute", nil), nil, a.flag(0, "case_sensitive")), map[string]bool{}
	return r.filtered(r.items(v), func(item Value) bool {
		code := codeOf(newTuple(r.items(keys(item))...))
		r.make(len(code))
		before := seen[code]
		seen[code] = true
		return !before
	})
}

// extreme returns min or max.
func extreme(sign int) filter {
	return func(r *run, v Value, a actuals) Value {
		keys, items := r.keys(a.value(1, "attribute", nil), nil, a.flag(0, "case_sensitive")), r.items(v)
		if len(items) == 0 {
			return &absence{"No aggregated item, sequence was empty."}
		}
		best := items[0]
		for _, item := range items[1:] {
			if sign*r.order(keys(item), keys(best), "<", 0) > 0 {
				best = item
			}
		}
		return best
	}
}

func sum(r *run, v Value, a actuals) Value {
	get, total := r.getter(a.value(0, "attribute", nil), nil), a.value(1, "start", 0)
	for _, item := range r.items(v) {
		total = r.add(total, get(item))
	}
	return total
}

func groupBy(r *run, v Value, a actuals) Value {
	attribute, groups := a.value(0, "attribute", nil), NewList()
	get, keys := r.getter(attribute, a.value(1, "default", nil)), r.keys(attribute, a.value(1, "default", nil), a.flag(2, "case_sensitive"))
	var group *List
	for _, item := range r.sorted(r.items(v), keys, false) {
		if group == nil || !r.equal(keys(group.Items[0]), keys(item), 0) {
			group = NewList()
			groups.Items = append(groups.Items, &List{[]Value{get(item), group}, kindTuple, []string{"grouper", "list"}})
		}
		group.Items = append(group.Items, item)
	}
	return groups
}
