package jinja

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// A Value is a value of a template: nil for None, a bool, int, *big.Int, float64 or string, a *List, a
// *Dict, or a value that only templates make.
type Value = any

// A List is Python's list, or another sequence of the kind. A template can change it only by its
// methods pop and clear.
type List struct {
	Items []Value
	kind  string   // the name of another type than list
	names []string // of the elements of a tuple of groupby
}

// The kinds of other sequences than lists: tuples, and what lazy filters such as map return, which has
// no length and can be read once. A view of a mapping has the name of its type.
const (
	kindTuple     = "tuple"
	kindGenerator = "generator"
	kindReversed  = "list_reverseiterator"
)

// NewList returns a list of items.
func NewList(items ...Value) *List { return &List{Items: items} }

func newTuple(items ...Value) *List { return &List{Items: items, kind: kindTuple} }

func (l *List) isLazy() bool { return l.kind == kindGenerator || l.kind == kindReversed }

// hasElements reports whether a list has elements by number.
func (l *List) hasElements() bool { return l.kind == "" || l.kind == kindTuple }

// The values that only templates make.
type (
	// A markup is a text that |safe or |escape has marked as HTML. Text that is added to it is escaped.
	markup string
	// A span is Python's range.
	span struct{ start, stop, step int }
	// A namespace is the only value whose attributes a template can set.
	namespace struct{ attrs *Dict }
	// An absence is the value of a name, attribute or element that does not exist.
	absence struct{ message string }
	// A missing is the content of a variable before it is set.
	missing struct{}
)

func (s span) len() int {
	switch {
	case s.step > 0 && s.start < s.stop:
		return (s.stop - s.start + s.step - 1) / s.step
	case s.step < 0 && s.start > s.stop:
		return (s.start - s.stop - s.step - 1) / -s.step
	}
	return 0
}

// A Dict is Python's dict. Its members keep their order.
type Dict struct {
	keys   []string // texts, and the codes of other keys
	values []Value
	others []Value        // the keys that are not texts, by position; nil if all are
	index  map[string]int // only of a large dict
}

// indexed is the number of members from which a dict has an index.
const indexed = 9

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{} }

// Len returns the number of members.
func (d *Dict) Len() int { return len(d.keys) }

// Get returns a member.
func (d *Dict) Get(key string) (v Value, ok bool) {
	if i := d.find(key); i >= 0 {
		return d.values[i], true
	}
	return nil, false
}

func (d *Dict) find(key string) int {
	if d.index != nil {
		if i, ok := d.index[key]; ok {
			return i
		}
		return -1
	}
	for i, k := range d.keys {
		if k == key {
			return i
		}
	}
	return -1
}

// Set sets a member.
func (d *Dict) Set(key string, v Value) { d.set(key, key, v) }

// put sets the member of any key.
func (d *Dict) put(key, v Value) { d.set(codeOf(key), key, v) }

// set sets the member of a key with its code.
func (d *Dict) set(code string, key, v Value) {
	if i := d.find(code); i >= 0 {
		d.values[i] = v
		return
	}
	if _, isText := key.(string); !isText && d.others == nil {
		d.others = make([]Value, len(d.keys), len(d.keys)+1)
	}
	if d.others != nil {
		d.others = append(d.others, key)
	}
	d.keys, d.values = append(d.keys, code), append(d.values, v)
	switch {
	case d.index != nil:
		d.index[code] = len(d.keys) - 1
	case len(d.keys) == indexed:
		d.index = make(map[string]int, 2*indexed)
		for i, k := range d.keys {
			d.index[k] = i
		}
	}
}

// key returns the key of a member.
func (d *Dict) key(i int) Value {
	if strings.HasPrefix(d.keys[i], code) {
		return d.others[i]
	}
	return d.keys[i]
}

// All yields the members whose keys are texts, in order.
func (d *Dict) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for i, k := range d.keys {
			if !strings.HasPrefix(k, code) && !yield(k, d.values[i]) {
				return
			}
		}
	}
}

// code begins the code of a key that is not a text. No text begins with it, because texts are UTF-8.
const code = "\xff"

// codeOf returns the code of a key: equal keys have equal codes.
func codeOf(key Value) string {
	switch k := key.(type) {
	case string:
		return k
	case markup:
		return string(k)
	case nil:
		return code + "n"
	case *big.Int:
		return code + k.String()
	case float64:
		if k == math.Trunc(k) && !math.IsInf(k, 0) {
			n, _ := big.NewFloat(k).Int(nil)
			return code + n.String()
		}
		return code + "f" + strconv.FormatFloat(k, 'g', -1, 64)
	case *List:
		parts, length := []string{code + "t"}, 0
		for _, item := range k.Items {
			if _, nests := item.(*List); nests || k.kind != kindTuple {
				panic(unusable("a list or a nested tuple cannot be a key"))
			}
			part := codeOf(item)
			if length += len(part); length > MaxOutput {
				panic(errOutput)
			}
			parts = append(parts, strconv.Itoa(len(part)), part)
		}
		return strings.Join(parts, ":")
	case *absence:
		return code + "u"
	}
	n, ok := intOf(key)
	if !ok {
		panic(unusable("%s cannot be a key", typeName(key)))
	}
	return code + strconv.Itoa(n)
}

// typeNames are Python's names of types by those of Go.
var typeNames = map[string]string{
	"<nil>": "None", "*big.Int": "int", "float64": "float", "string": "str", "jinja.markup": "Markup", "*jinja.Dict": "dict",
	"jinja.span": "range", "*jinja.absence": "Undefined", "*jinja.namespace": "Namespace", "*jinja.macro": "Macro",
	"*jinja.loopState": "LoopContext", "jinja.builtin": "function", "bool": "bool", "int": "int",
}

// typeName returns Python's name of the type of a value.
func typeName(v Value) string {
	if l, ok := v.(*List); ok {
		return cmp.Or(l.kind, "list")
	}
	return typeNames[fmt.Sprintf("%T", v)]
}

// size returns the number of members of a container. ok is false if a value has no length.
func size(v Value) (n int, ok bool) {
	switch v := v.(type) {
	case *List:
		return len(v.Items), !v.isLazy()
	case *Dict:
		return len(v.keys), true
	case span:
		return v.len(), true
	case *absence:
		return 0, true
	}
	return 0, false
}

// truth reports whether Python takes a value for true.
func truth(v Value) bool {
	switch v := v.(type) {
	case bool:
		return v
	case nil:
		return false
	case string:
		return v != ""
	case markup:
		return v != ""
	case int:
		return v != 0
	case float64:
		return v != 0
	}
	n, ok := size(v)
	return n > 0 || !ok
}

// textOf returns the text of a str or Markup.
func textOf(v Value) (s string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

// is reports whether a value has a type.
func is[T Value](v Value) bool {
	_, ok := v.(T)
	return ok
}

func isMarkup(v Value) bool { return is[markup](v) }

// defined returns v. It fails if v is undefined.
func defined(v Value) Value {
	if u, ok := v.(*absence); ok {
		panic(unusable("%s", u.message))
	}
	return v
}

// absent returns the undefined attribute of a value.
func absent(v Value, name string) *absence {
	of := typeName(v)
	if v != nil {
		of += " object"
	}
	if name == "" {
		return &absence{of + " has no such element"}
	}
	return &absence{"'" + of + "' has no attribute '" + name + "'"}
}
