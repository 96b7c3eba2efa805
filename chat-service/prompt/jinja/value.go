package jinja

import (
	"iter"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// A Value is a value of a template: nil for None, a bool, int, *big.Int, float64 or string, a *List, a
// *Dict, or a value that only templates make.
type Value = any

// A List is Python's list. A template can change it only by its methods pop and clear.
type List struct{ Items []Value }

// NewList returns a list of items.
func NewList(items ...Value) *List { return &List{items} }

// The values that only templates make.
type (
	// A tuple is Python's tuple. groupby gives its elements names.
	tuple struct {
		items []Value
		names []string
	}
	// A markup is a text that |safe or |escape has marked as HTML. Text that is added to it is escaped.
	markup string
	// A span is Python's range.
	span struct{ start, stop, step int }
	// A view is Python's view of a mapping: its keys, values or items.
	view struct {
		of   *Dict
		kind string
	}
	// An iterator is the result of a lazy filter, such as map. It has no length, and can be read once.
	iterator struct {
		items []Value
		name  string
	}
	// A namespace is the only value whose attributes a template can set.
	namespace struct{ attrs *Dict }
	// An undefined is the value of a name, attribute or element that does not exist.
	undefined struct{ message string }
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

func (v view) at(i int) Value {
	switch v.kind {
	case "keys":
		return v.of.key(i)
	case "values":
		return v.of.values[i]
	}
	return &tuple{items: []Value{v.of.key(i), v.of.values[i]}}
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
	case *tuple:
		parts := []string{code + "t"}
		for _, item := range k.items {
			part := codeOf(item)
			parts = append(parts, strconv.Itoa(len(part)), part)
		}
		return strings.Join(parts, ":")
	case *undefined:
		return code + "u"
	}
	n, ok := intOf(key)
	if !ok {
		panic(unusable("%s cannot be a key", typeName(key)))
	}
	return code + strconv.Itoa(n)
}

// typeName returns Python's name of the type of a value.
func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *List:
		return "list"
	case *tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case span:
		return "range"
	case view:
		return "dict_" + v.kind
	case *iterator:
		return v.name
	case *undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *loopState:
		return "LoopContext"
	}
	return "function"
}

// truth reports whether Python takes a value for true.
func truth(v Value) bool {
	switch v := v.(type) {
	case bool:
		return v
	case nil, *undefined:
		return false
	case string:
		return v != ""
	case markup:
		return v != ""
	case int:
		return v != 0
	case float64:
		return v != 0
	case *List:
		return len(v.Items) > 0
	case *tuple:
		return len(v.items) > 0
	case *Dict:
		return len(v.keys) > 0
	case span:
		return v.len() > 0
	case view:
		return len(v.of.keys) > 0
	}
	return true
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

// defined returns v. It fails if v is undefined.
func defined(v Value) Value {
	if u, ok := v.(*undefined); ok {
		panic(unusable("%s", u.message))
	}
	return v
}

// absent returns the undefined attribute of a value.
func absent(v Value, name string) *undefined {
	of := typeName(v)
	if v != nil {
		of += " object"
	}
	if name == "" {
		return &undefined{of + " has no such element"}
	}
	return &undefined{"'" + of + "' has no attribute '" + name + "'"}
}
