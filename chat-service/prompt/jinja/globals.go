package jinja

import (
	"slices"
	"strings"
)

// globals are the functions that every template can call.
var globals = map[string]builtin{
	"range": rangeOf, "dict": dictOf, "cycler": cyclerOf, "joiner": joinerOf, "raise_exception": raise,
	"namespace": func(r *run, a actuals) Value { return &namespace{r.dict(a)} },
	"strftime_now": func(r *run, a actuals) Value {
		format := a.text(0, "format")
		r.text(20 * len(format))
		text, err := strftime(r.now(), format)
		if err != nil {
			panic(unusable("%v", err))
		}
		return text
	},
}

func raise(r *run, a actuals) Value {
	const limit = 4 << 10 // bytes
	message := r.str(a.value(0, "message", nil))
	if len(message) > limit {
		message = strings.ToValidUTF8(message[:limit], "") + "…"
	}
	panic(&RaisedError{message})
}

func rangeOf(_ *run, a actuals) Value {
	const large = 1 << 40
	s := span{0, 0, 1}
	if len(a.values) == 1 {
		s.stop = a.int(0, "", 0)
	} else {
		s = span{a.int(0, "", large), a.int(1, "", large), a.int(2, "", 1)}
	}
	if s.step == 0 || len(a.values) == 0 {
		panic(unusable("range takes one to three integers, of which the last is not 0"))
	}
	if max(s.start, s.stop, s.step) > large || min(s.start, s.stop, s.step) < -large || s.len() > maxRange {
		panic(limitError("a range of more than %d numbers", maxRange))
	}
	return s
}

func dictOf(r *run, a actuals) Value { return r.dict(a) }

// dict is Python's dict(mapping or pairs, name=value, ...).
func (r *run) dict(a actuals) *Dict {
	d := NewDict()
	for _, v := range a.values {
		if from, ok := v.(*Dict); ok {
			v = r.view(from, "items")
		}
		for _, pair := range r.items(v) {
			items := r.items(pair)
			if len(items) != 2 {
				panic(unusable("dict takes pairs, not %d values", len(items)))
			}
			d.put(items[0], items[1])
		}
	}
	for i, name := range a.names {
		d.Set(name, a.named[i])
	}
	r.list(2 * d.Len())
	return d
}

// cyclerOf returns a value whose method next gives the arguments in turn.
func cyclerOf(_ *run, a actuals) Value {
	values, at := append([]Value{}, a.values...), 0
	if len(values) == 0 {
		panic(unusable("cycler takes values"))
	}
	attrs := NewDict()
	turn := func(to func() int) builtin {
		return func(*run, actuals) Value {
			v := values[at]
			at = to()
			attrs.Set("current", values[at])
			return v
		}
	}
	attrs.Set("current", values[0])
	attrs.Set("next", turn(func() int { return (at + 1) % len(values) }))
	attrs.Set("reset", turn(func() int { return 0 }))
	return &namespace{attrs}
}

// joinerOf returns a function that gives a separator from the second call on.
func joinerOf(_ *run, a actuals) Value {
	separator, used := a.value(0, "sep", ", "), false
	return builtin(func(*run, actuals) Value {
		if !used {
			used = true
			return ""
		}
		return separator
	})
}

// dictMethods are the methods of mappings that the sandbox allows.
var dictMethods = map[string]method{
	"get": func(r *run, self Value, a actuals) Value {
		if s, ok := textOf(a.value(0, "key", nil)); ok {
			r.spend(len(s) / bytesPerStep)
		}
		if i := self.(*Dict).find(codeOf(a.value(0, "key", nil))); i >= 0 {
			return self.(*Dict).values[i]
		}
		return a.value(1, "default", nil)
	},
	"items": viewOf("items"), "keys": viewOf("keys"), "values": viewOf("values"),
	"copy": func(r *run, self Value, _ actuals) Value { return r.dict(actuals{values: []Value{self}}) },
}

func viewOf(kind string) method {
	return func(r *run, self Value, _ actuals) Value { return r.view(self.(*Dict), kind) }
}

// view returns the keys, values or items of a mapping.
func (r *run) view(d *Dict, kind string) *List {
	items := r.fill(d.Len(), func(i int) Value {
		switch kind {
		case "keys":
			return d.key(i)
		case "values":
			return d.values[i]
		}
		r.list(2)
		return newTuple(d.key(i), d.values[i])
	})
	return &List{Items: items, kind: "dict_" + kind}
}

// listMethods are the methods of lists that the sandbox allows.
var listMethods = map[string]method{
	"count": onList(func(r *run, l *List, a actuals) Value {
		n := 0
		for _, item := range l.Items {
			if r.equal(item, a.value(0, "value", nil), 0) {
				n++
			}
		}
		return n
	}),
	"index": onList(func(r *run, l *List, a actuals) Value {
		i := slices.IndexFunc(l.Items, func(item Value) bool { return r.equal(item, a.value(0, "value", nil), 0) })
		if i < 0 {
			panic(unusable("a list does not contain a value"))
		}
		return i
	}),
	"copy": onList(func(r *run, l *List, _ actuals) Value { return NewList(r.joined(l.Items, nil)...) }),
	"pop": onList(func(r *run, l *List, a actuals) Value {
		i := a.int(0, "index", -1)
		v, ok := at(l, i)
		if !ok {
			panic(unusable("pop has no such item"))
		}
		if i < 0 {
			i += len(l.Items)
		}
		l.Items = r.joined(l.Items[:i], l.Items[i+1:]) // others may read the old items
		return v
	}),
	"clear": onList(func(_ *run, l *List, _ actuals) Value {
		l.Items = nil
		return nil
	}),
}

func onList(f func(r *run, l *List, a actuals) Value) method {
	return func(r *run, self Value, a actuals) Value {
		l := self.(*List)
		r.spend(len(l.Items))
		return f(r, l, a)
	}
}
