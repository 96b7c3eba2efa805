package hfjinja

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// filter returns this package's filter called name, or nil if the library's filter matches Jinja2.
// The first argument of a filter is the filtered value.
func (b *budget) filter(name string) function {
	switch name {
	case "trim":
		return b.trim
	case "tojson":
		return b.toJSON
	case "default", "d":
		return orDefault // the library accepts "boolean" only by name
	case "string":
		return b.toString
	case "list":
		return b.toList // the library converts a mapping to a list of one mapping
	case "length", "count":
		return length // the library returns 0 for values without a length
	case "map":
		return b.mapFilter
	case "select", "selectattr":
		return b.truthy(true)
	case "reject", "rejectattr":
		return b.truthy(false)
	case "join":
		return b.joinFilter // the library's results of these three have no bound
	case "replace":
		return b.replaceFilter
	case "indent":
		return b.indentFilter
	}
	return nil
}

// counters are the library's filters that make values in proportion to their input, and the filters
// that count the input before.
var counters = map[string]string{
	"upper": "_hf_counted", "lower": "_hf_counted", "title": "_hf_counted", "capitalize": "_hf_counted", "escape": "_hf_counted",
	"e": "_hf_counted", "wordcount": "_hf_counted", "unique": "_hf_counted",
	"sort": "_hf_listed", "reverse": "_hf_listed", "batch": "_hf_listed", "items": "_hf_listed", "dictsort": "_hf_listed",
	"map": "_hf_listed", "select": "_hf_listed", "reject": "_hf_listed", "selectattr": "_hf_listed", "rejectattr": "_hf_listed",
	"from_json": "_hf_parsed", "fromjson": "_hf_parsed",
}

// many reports whether a value is iterable.
func many(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	v := args[0]
	return jinja.NewBool(v.IsList() || v.IsDict() || v.IsString() || v.IsUndefined()), nil
}

// counted counts a value with all that it contains.
func (b *budget) counted(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	weight, err := b.weigh(args[0])
	if err == nil {
		err = b.make(weight)
	}
	return args[0], err
}

// listed counts a value without the contents of its elements.
func (b *budget) listed(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	v := args[0]
	switch {
	case v.IsList():
		return v, b.make(valueSize * v.AsList().Len())
	case v.IsDict():
		return v, b.make(2 * valueSize * v.AsDict().Len())
	case v.IsString():
		return v, b.make(len(v.AsString()))
	}
	return v, b.tick()
}

// parsed counts a text with JSON. The values of "[[],[]]" take much more memory than the text.
func (b *budget) parsed(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if !args[0].IsString() {
		return args[0], b.tick()
	}
	return args[0], b.make(valueSize * len(args[0].AsString()))
}

// replaced reports whether the filter at the start of toks must be replaced by this package's
// filter. Some filters are replaced only in one form: map('filter'), which the library ignores, and
// select or selectattr('name') without a test, on which it panics.
func replaced(toks []token) bool {
	if len(toks) == 0 || toks[0].kind != name || (*budget)(nil).filter(toks[0].text) == nil {
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

func (b *budget) trim(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	s, err := text(args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	strip := []jinja.Value{jinja.NewString(s)}
	if chars := bind(args[1:], kwargs, "chars")[0]; !chars.IsUndefined() {
		strip = append(strip, chars)
	}
	return b.method("strip")(strip, nil)
}

func orDefault(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	opts := bind(args[1:], kwargs, "default_value", "boolean")
	if !args[0].IsUndefined() && (args[0].IsTruthy() || !opts[1].IsTruthy()) {
		return args[0], nil
	}
	return opts[0], nil // undefined if there is no default, which is written as nothing too
}

func (b *budget) toString(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	s, err := text(args[0])
	if err != nil || args[0].IsString() {
		return jinja.NewString(s), err
	}
	return b.text(s)
}

func (b *budget) toList(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	items, err := elements(args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	return b.list(items)
}

func length(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if s := args[0]; s.IsString() {
		return jinja.NewInt(int64(utf8.RuneCountInString(s.AsString()))), nil
	}
	items, err := elements(args[0])
	return jinja.NewInt(int64(len(items))), err
}

func (b *budget) mapFilter(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	items, err := elements(args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	fn := b.mappable(args[1].AsString())
	if fn == nil {
		return jinja.Undefined(), fmt.Errorf("map: filter %q is not supported", args[1].AsString())
	}
	out := make([]jinja.Value, len(items))
	for i, item := range items {
		if out[i], err = fn(append([]jinja.Value{item}, args[2:]...), kwargs); err != nil {
			return jinja.Undefined(), err
		}
	}
	return b.list(out)
}

// mappable returns the filter called name if map can apply it. The library does not expose its own
// filters.
func (b *budget) mappable(name string) function {
	change := func(fn func(string) string) function {
		return func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
			s, err := text(args[0])
			if err != nil {
				return jinja.Undefined(), err
			}
			return b.text(fn(s))
		}
	}
	switch name {
	case "upper":
		return change(strings.ToUpper)
	case "lower":
		return change(strings.ToLower)
	case "trim", "tojson", "default", "d", "string", "list":
		return b.filter(name)
	}
	return nil
}

// truthy keeps the elements whose truth value, or the truth value of their named attribute, is
// want.
func (b *budget) truthy(want bool) function {
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
		return b.list(out)
	}
}

// written returns the text of v as the library's filters write it.
func written(v jinja.Value) string {
	switch {
	case v.IsString():
		return v.AsString()
	case v.IsNone(), v.IsUndefined(), v.IsCallable():
		return ""
	}
	return v.String()
}

// joinFilter is the filter join(list, d="", attribute=name).
func (b *budget) joinFilter(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	if !args[0].IsList() {
		return b.text(written(args[0]))
	}
	separator := written(bind(args[1:], kwargs, "d")[0])
	attribute, selects := kwargs["attribute"]
	items := args[0].AsList().Items
	parts, size := make([]string, len(items)), 0
	for i, item := range items {
		if selects && item.IsDict() {
			if v, ok := item.AsDict().Get(written(attribute)); ok {
				item = v
			}
		}
		parts[i] = written(item)
		if size += len(parts[i]) + len(separator); size > MaxOutput+len(separator) {
			break
		}
	}
	if err := b.makeText(max(0, size-len(separator))); err != nil {
		return jinja.Undefined(), err
	}
	return jinja.NewString(strings.Join(parts, separator)), nil
}

// replaceFilter is the filter replace(text, old, new, count=-1).
func (b *budget) replaceFilter(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	if len(args) < 3 {
		return jinja.Undefined(), errors.New("replace takes two texts")
	}
	return b.replace(written(args[0]), written(args[1]), written(args[2]), bind(args[3:], kwargs, "count")[0])
}

func (b *budget) replace(s, before, after string, count jinja.Value) (jinja.Value, error) {
	n := strings.Count(s, before)
	if count.IsInt() && count.AsInt() >= 0 {
		n = int(min(int64(n), count.AsInt()))
	}
	if grows := len(after) - len(before); grows > 0 && n > MaxOutput/grows {
		return jinja.Undefined(), b.makeText(MaxOutput + 1)
	} else if err := b.makeText(len(s) + n*grows); err != nil {
		return jinja.Undefined(), err
	}
	return jinja.NewString(strings.Replace(s, before, after, n)), nil
}

// indentFilter is the filter indent(text, width=4, first=false).
func (b *budget) indentFilter(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	s, opts := written(args[0]), bind(args[1:], kwargs, "width", "first")
	width := 4
	if opts[0].IsInt() {
		width = int(max(0, min(opts[0].AsInt(), MaxOutput+1)))
	}
	lines := strings.Split(s, "\n")
	if err := b.makeText(min(width*len(lines), MaxOutput) + len(s)); err != nil {
		return jinja.Undefined(), err
	}
	pad := strings.Repeat(" ", width)
	for i, line := range lines {
		if line != "" && (i > 0 || opts[1].IsTruthy()) {
			lines[i] = pad + line
		}
	}
	return jinja.NewString(strings.Join(lines, "\n")), nil
}
