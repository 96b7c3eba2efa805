package hfjinja

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// helpers are the functions that the translation inserts for operators and accessors, by name.
var helpers = map[string]function{
	"_hf_known": known,
	"_hf_keep":  keep,
	"_hf_many":  many,
	"_hf_part":  part,
	"_hf_call":  call,
}

// typeName returns Python's name for the type of v.
func typeName(v jinja.Value) string {
	switch {
	case v.IsUndefined():
		return "undefined"
	case v.IsNone():
		return "NoneType"
	case v.IsBool():
		return "bool"
	case v.IsInt():
		return "int"
	case v.IsFloat():
		return "float"
	case v.IsString():
		return "str"
	case v.IsList():
		return "list"
	case v.IsDict():
		return "dict"
	}
	return "function"
}

// add returns the sum of two or more values, from left to right. It concatenates strings in one
// step.
func (b *budget) add(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	size := 0
	for i, v := range args {
		if !v.IsString() {
			return b.addEach(args, i)
		}
		size += len(v.AsString())
	}
	if err := b.makeText(size); err != nil {
		return jinja.Undefined(), err
	}
	var text strings.Builder
	text.Grow(size)
	for _, v := range args {
		text.WriteString(v.AsString())
	}
	return jinja.NewString(text.String()), nil
}

// addEach adds values whose first n are strings and the next is not. n is the argument strings.
func (b *budget) addEach(args []jinja.Value, strings int) (sum jinja.Value, err error) {
	if strings > 1 {
		if sum, err = b.add(args[:strings], nil); err != nil {
			return sum, err
		}
		args = args[strings-1:]
	} else {
		sum = args[0]
	}
	for _, v := range args[1:] {
		if sum, err = b.plus(sum, v); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

func (b *budget) plus(left, right jinja.Value) (jinja.Value, error) {
	switch {
	case left.IsString() && right.IsString():
		if err := b.makeText(len(left.AsString()) + len(right.AsString())); err != nil {
			return jinja.Undefined(), err
		}
		return jinja.NewString(left.AsString() + right.AsString()), nil
	case left.IsList() && right.IsList():
		if err := b.make(valueSize * (left.AsList().Len() + right.AsList().Len())); err != nil {
			return jinja.Undefined(), err
		}
		sum := jinja.NewList(slices.Concat(left.AsList().Items, right.AsList().Items))
		_, err := b.weigh(sum)
		return sum, err
	case left.IsFloat() && isNumber(right), isNumber(left) && right.IsFloat():
		return jinja.NewFloat(float(left) + float(right)), nil
	case isNumber(left) && isNumber(right):
		return jinja.NewInt(integer(left) + integer(right)), nil
	}
	return jinja.Undefined(), unusable("%s and %s cannot be added", typeName(left), typeName(right))
}

// isNumber reports whether v is a number. As in Python, booleans are numbers.
func isNumber(v jinja.Value) bool { return v.IsInt() || v.IsFloat() || v.IsBool() }

func integer(v jinja.Value) int64 {
	switch {
	case v.IsInt():
		return v.AsInt()
	case v.IsBool() && v.AsBool():
		return 1
	}
	return 0
}

func float(v jinja.Value) float64 {
	if v.IsFloat() {
		return v.AsFloat()
	}
	return float64(integer(v))
}

func (b *budget) concat(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	parts, size := make([]string, len(args)), 0
	for i, arg := range args {
		var err error
		if parts[i], err = text(arg); err != nil {
			return jinja.Undefined(), err
		}
		size += len(parts[i])
	}
	if err := b.makeText(size); err != nil {
		return jinja.Undefined(), err
	}
	return jinja.NewString(strings.Join(parts, "")), nil
}

// multiply is the operator "*".
func (b *budget) multiply(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	left, right := args[0], args[1]
	switch {
	case left.IsString() && right.IsInt(), left.IsInt() && right.IsString():
		if left.IsInt() {
			left, right = right, left
		}
		s, n := left.AsString(), max(0, right.AsInt())
		if len(s) == 0 || n == 0 {
			return nothing, nil
		}
		if n > MaxOutput {
			n = MaxOutput + 1
		}
		if err := b.makeText(len(s) * int(n)); err != nil {
			return jinja.Undefined(), err
		}
		return jinja.NewString(strings.Repeat(s, int(n))), nil
	case left.IsFloat() && isNumber(right), isNumber(left) && right.IsFloat():
		return jinja.NewFloat(float(left) * float(right)), nil
	case isNumber(left) && isNumber(right):
		return jinja.NewInt(integer(left) * integer(right)), nil
	}
	return jinja.Undefined(), unusable("%s and %s cannot be multiplied", typeName(left), typeName(right))
}

// slice is args[0][args[1]:args[2]:args[3]].
func (b *budget) slice(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	of := args[0]
	switch {
	case of.IsString() && isASCII(of.AsString()) && args[3].IsNone():
		s := of.AsString()
		from, _, n, err := sliceBounds(args[1:], len(s))
		return jinja.NewString(s[from : from+n]), err
	case of.IsString():
		runes := []rune(of.AsString())
		from, step, n, err := sliceBounds(args[1:], len(runes))
		out := make([]rune, n)
		for i := range out {
			out[i] = runes[from+i*step]
		}
		if err != nil {
			return jinja.Undefined(), err
		}
		return b.text(string(out))
	case of.IsList():
		items := of.AsList().Items
		from, step, n, err := sliceBounds(args[1:], len(items))
		if err != nil {
			return jinja.Undefined(), err
		}
		out := make([]jinja.Value, n)
		for i := range out {
			out[i] = items[from+i*step]
		}
		return b.list(out)
	}
	return jinja.Undefined(), nil // as in the library
}

// sliceBounds returns the first index, the distance and the number of the elements of a slice of a
// sequence of length size.
func sliceBounds(bounds []jinja.Value, size int) (from, step, n int, err error) {
	for _, bound := range bounds {
		if !bound.IsNone() && !bound.IsInt() && !bound.IsBool() {
			return 0, 1, 0, unusable("%s is not a bound of a slice", typeName(bound))
		}
	}
	step = 1
	if !bounds[2].IsNone() {
		step = int(integer(bounds[2]))
	}
	if step == 0 {
		return 0, 1, 0, unusable("a slice cannot step by 0")
	}
	step = min(max(step, -size-1), size+1)
	low, high := 0, size // of a bound
	if step < 0 {
		low, high = -1, size-1
	}
	at := func(bound jinja.Value, otherwise int) int {
		if bound.IsNone() {
			return otherwise
		}
		i := int(integer(bound))
		if i < 0 {
			i += size
		}
		return min(max(i, low), high)
	}
	if step > 0 {
		from = at(bounds[0], low)
		to := at(bounds[1], high)
		return from, step, (max(to, from) - from + step - 1) / step, nil
	}
	from = at(bounds[0], high)
	to := at(bounds[1], low)
	return from, step, (from - min(to, from) - step - 1) / -step, nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// searchedPerMade is the number of bytes that are searched in the time that it takes to make one.
const searchedPerMade = 64

// contains returns the operator "in", or "not in".
func (b *budget) contains(want bool) function {
	return func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		item, in := args[0], args[1]
		var found bool
		switch {
		case in.IsString() && item.IsString():
			if err := b.make(len(in.AsString()) / searchedPerMade); err != nil {
				return jinja.Undefined(), err
			}
			found = strings.Contains(in.AsString(), item.AsString())
		case in.IsList():
			found = slices.ContainsFunc(in.AsList().Items, func(v jinja.Value) bool { return equal(v, item) })
		case in.IsDict() && !item.IsList() && !item.IsDict():
			found = item.IsString() && in.AsDict().Has(item.AsString())
		case in.IsUndefined():
		default:
			return jinja.Undefined(), unusable("%s is not a possible element of %s", typeName(item), typeName(in))
		}
		return jinja.NewBool(found == want), nil
	}
}

func equal(a, b jinja.Value) bool {
	if isNumber(a) && isNumber(b) {
		return float(a) == float(b)
	}
	return a.Equals(b)
}

// known wraps a value whose attribute or element is accessed.
func known(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if args[0].IsUndefined() {
		return args[0], unusable("an attribute or element of an undefined value is accessed")
	}
	return args[0], nil
}

// iterable wraps the value that a loop iterates over.
func (b *budget) iterable(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	v := args[0]
	switch {
	case v.IsList(), v.IsUndefined():
		return v, b.tick()
	case v.IsDict(): // the library makes lists of these two
		return v, b.make(valueSize * v.AsDict().Len())
	case v.IsString():
		return v, b.make(valueSize * utf8.RuneCountInString(v.AsString()))
	default:
		return v, unusable("%s is not iterable", typeName(v))
	}
}

// keep appends an element to a list that the translation has created.
func keep(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	args[0].AsList().Append(args[1])
	return nothing, nil
}

// part returns element args[1] of args[0], for a loop with args[2] variables.
func part(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	items, err := elements(args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	if n := args[2].AsInt(); int64(len(items)) != n {
		return jinja.Undefined(), unusable("%d values for %d variables", len(items), n)
	}
	return items[args[1].AsInt()], nil
}

// call calls args[0] with the elements of the lists that follow.
func call(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	if !args[0].IsCallable() {
		return jinja.Undefined(), fmt.Errorf("%s is not callable", typeName(args[0]))
	}
	var all []jinja.Value
	for _, list := range args[1:] {
		items, err := elements(list)
		if err != nil {
			return jinja.Undefined(), err
		}
		all = append(all, items...)
	}
	return args[0].AsCallable().Fn(all, kwargs)
}
