package jinja

import (
	"slices"
	"unicode"
)

// tests are all tests by name.
var tests map[string]test

func init() { // a variable with this value would refer to itself
	tests = map[string]test{
		"defined":   func(_ *run, v Value, _ actuals) bool { return !isUndefined(v) },
		"undefined": func(_ *run, v Value, _ actuals) bool { return isUndefined(v) },
		"none":      func(_ *run, v Value, _ actuals) bool { return v == nil },
		"true":      func(_ *run, v Value, _ actuals) bool { return v == true },
		"false":     func(_ *run, v Value, _ actuals) bool { return v == false },
		"string":    func(_ *run, v Value, _ actuals) bool { return isText(v) },
		"mapping":   func(_ *run, v Value, _ actuals) bool { return isMapping(v) },
		"boolean":   kind("bool"),
		"integer":   kind("int"),
		"float":     kind("float"),
		"number":    kind("int", "float", "bool"),
		"escaped":   kind("Markup"),
		"callable":  kind("function", "Macro", "LoopContext", "Undefined"),
		"sequence": func(_ *run, v Value, _ actuals) bool {
			l, isList := v.(*List)
			return isText(v) || hasSize(v) && (!isList || l.hasElements())
		},
		"iterable": func(_ *run, v Value, _ actuals) bool {
			_, isList := v.(*List)
			return isText(v) || isList || hasSize(v)
		},
		"lower": func(r *run, v Value, _ actuals) bool { return cased(r.str(v), unicode.IsLower, unicode.IsUpper) },
		"upper": func(r *run, v Value, _ actuals) bool { return cased(r.str(v), unicode.IsUpper, unicode.IsLower) },
		"odd":   func(r *run, v Value, _ actuals) bool { return r.equal(r.operate("%", v, 2), 1, 0) },
		"even":  func(r *run, v Value, _ actuals) bool { return r.equal(r.operate("%", v, 2), 0, 0) },
		"divisibleby": func(r *run, v Value, a actuals) bool {
			return r.equal(r.operate("%", v, a.value(0, "num", nil)), 0, 0)
		},
		"sameas": func(r *run, v Value, a actuals) bool {
			other := a.value(0, "other", nil)
			switch v.(type) {
			case *List, *Dict:
				return v == other
			}
			return typeName(v) == typeName(other) && r.equal(v, other, 0)
		},
		"filter": func(r *run, v Value, _ actuals) bool { return filters[r.str(v)] != nil },
		"test":   func(r *run, v Value, _ actuals) bool { return tests[r.str(v)] != nil },
	}
	for op, names := range map[string][]string{
		"==": {"eq", "equalto"}, "!=": {"ne"}, ">": {"gt", "greaterthan"}, ">=": {"ge"}, "<": {"lt", "lessthan"}, "<=": {"le"}, "in": nil,
	} {
		for _, name := range append(names, op) {
			tests[name] = func(r *run, v Value, a actuals) bool { return r.compare(op, v, a.value(0, "other", nil)) }
		}
	}
}

func isText(v Value) bool {
	_, ok := textOf(v)
	return ok
}

func isMapping(v Value) bool { return is[*Dict](v) }

func hasSize(v Value) bool {
	_, ok := size(v)
	return ok
}

func isUndefined(v Value) bool { return is[*absence](v) }

// kind returns the test for values of types.
func kind(names ...string) test {
	return func(_ *run, v Value, _ actuals) bool { return slices.Contains(names, typeName(v)) }
}

// cased reports whether a text has a letter for which has is true, and none for which not is.
func cased(s string, has, not func(rune) bool) bool {
	found := false
	for _, c := range s {
		if not(c) || unicode.IsTitle(c) {
			return false
		}
		found = found || has(c)
	}
	return found
}
