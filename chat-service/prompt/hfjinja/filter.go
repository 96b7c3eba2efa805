package hfjinja

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// filter returns this package's filter called name, or nil if the library's filter matches Jinja2.
// The first argument of a filter is the filtered value.
func filter(name string) function {
	switch name {
	case "trim":
		return trim
	case "tojson":
		return toJSON
	case "default", "d":
		return orDefault // the library accepts "boolean" only by name
	case "string":
		return toString
	case "list":
		return toList // the library converts a mapping to a list of one mapping
	case "length", "count":
		return length // the library returns 0 for values without a length
	case "map":
		return mapFilter
	case "select", "selectattr":
		return truthy(true)
	case "reject", "rejectattr":
		return truthy(false)
	case "many": // not a filter of templates: inserted by the translation
		return many
	}
	return nil
}

// many reports whether a value is iterable.
func many(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	_, err := iterable(args, nil)
	return jinja.NewBool(err == nil), nil
}

// replaced reports whether the filter at the start of toks must be replaced by this package's
// filter. Some filters are replaced only in one form: map('filter'), which the library ignores, and
// select or selectattr('name') without a test, on which it panics.
func replaced(toks []token) bool {
	if len(toks) == 0 || toks[0].kind != name || toks[0].text == "many" || filter(toks[0].text) == nil {
		return false
	}
	calls := len(toks) > 3 && toks[1].is(operator, "(")
	switch toks[0].text {
	case "map":
		return calls && toks[2].kind == str
	case "select", "reject":
		return !calls
	case "selectattr", "rejectattr":
		return calls && toks[2].kind == str && toks[3].is(operator, ")")
	}
	return true
}

func trim(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	s, err := text(args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	strip := []jinja.Value{jinja.NewString(s)}
	if chars := bind(args[1:], kwargs, "chars")[0]; !chars.IsUndefined() {
		strip = append(strip, chars)
	}
	return method("strip")(strip, nil)
}

func orDefault(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	opts := bind(args[1:], kwargs, "default_value", "boolean")
	if !args[0].IsUndefined() && (args[0].IsTruthy() || !opts[1].IsTruthy()) {
		return args[0], nil
	}
	return opts[0], nil // undefined if there is no default, which is written as nothing too
}

func toString(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	s, err := text(args[0])
	return jinja.NewString(s), err
}

func toList(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	items, err := elements(args[0])
	return jinja.NewList(items), err
}

func length(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if s := args[0]; s.IsString() {
		return jinja.NewInt(int64(utf8.RuneCountInString(s.AsString()))), nil
	}
	items, err := elements(args[0])
	return jinja.NewInt(int64(len(items))), err
}

func mapFilter(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	items, err := elements(args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	fn := mappable(args[1].AsString())
	if fn == nil {
		return jinja.Undefined(), fmt.Errorf("map: filter %q is not supported", args[1].AsString())
	}
	out := make([]jinja.Value, len(items))
	for i, item := range items {
		if out[i], err = fn(append([]jinja.Value{item}, args[2:]...), kwargs); err != nil {
			return jinja.Undefined(), err
		}
	}
	return jinja.NewList(out), nil
}

// mappable returns the filter called name if map can apply it. The library does not expose its own
// filters.
func mappable(name string) function {
	change := func(fn func(string) string) function {
		return func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
			s, err := text(args[0])
			return jinja.NewString(fn(s)), err
		}
	}
	switch name {
	case "upper":
		return change(strings.ToUpper)
	case "lower":
		return change(strings.ToLower)
	case "trim", "tojson", "default", "d", "string", "list":
		return filter(name)
	}
	return nil
}

// truthy keeps the elements whose truth value, or the truth value of their named attribute, is
// want.
func truthy(want bool) function {
	return func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		items, err := elements(args[0])
		if err != nil {
			return jinja.Undefined(), err
		}
		var out []jinja.Value
		for _, item := range items {
			v := item
			for _, attr := range args[1:] {
				if v = jinja.Undefined(); item.IsDict() {
					v, _ = item.AsDict().Get(attr.AsString())
				}
			}
			if v.IsTruthy() == want {
				out = append(out, item)
			}
		}
		return jinja.NewList(out), nil
	}
}
