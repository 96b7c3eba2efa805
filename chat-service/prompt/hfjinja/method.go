package hfjinja

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// method returns this package's method called name, or nil if the library's method matches Python.
// The first argument is the receiver.
func (b *budget) method(name string) function {
	switch name {
	case "strip":
		return trimming(strings.TrimFunc) // the library strips other whitespace
	case "lstrip":
		return trimming(strings.TrimLeftFunc)
	case "rstrip":
		return trimming(strings.TrimRightFunc)
	case "split":
		return onString(b.split) // the library has no limit
	case "find":
		return onString(find) // the library counts bytes
	case "upper":
		return b.changing(strings.ToUpper) // the library's results of these methods are not counted
	case "lower":
		return b.changing(strings.ToLower)
	case "title":
		return b.changing(title)
	case "capitalize":
		return b.changing(capitalize)
	case "replace":
		return onString(b.replaceMethod)
	case "format":
		return onString(b.format)
	case "items", "keys", "values":
		return b.members(name) // the library prefers an entry of that name to the method
	case "append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault":
		return func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
			return jinja.Undefined(), fmt.Errorf("%s: the sandbox allows no changes", name)
		}
	}
	return nil
}

func onString(fn func(s string, args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error)) function {
	return func(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
		if !args[0].IsString() {
			return jinja.Undefined(), unusable("%s has no methods of strings", typeName(args[0]))
		}
		return fn(args[0].AsString(), args[1:], kwargs)
	}
}

func trimming(trim func(string, func(rune) bool) string) function {
	return onString(func(s string, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		switch {
		case len(args) == 0 || args[0].IsNone():
			return jinja.NewString(trim(s, isSpace)), nil
		case args[0].IsString():
			chars := args[0].AsString()
			return jinja.NewString(trim(s, among(chars))), nil
		}
		return jinja.Undefined(), errors.New("strip: characters are not a string")
	})
}

// among returns a function that reports whether a character is in chars.
func among(chars string) func(rune) bool {
	if len(chars) < 64 {
		return func(r rune) bool { return strings.ContainsRune(chars, r) }
	}
	set := map[rune]bool{}
	for _, r := range chars {
		set[r] = true
	}
	return func(r rune) bool { return set[r] }
}

func (b *budget) split(s string, args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	opts := bind(args, kwargs, "sep", "maxsplit")
	limit := math.MaxInt - 1
	if opts[1].IsInt() && opts[1].AsInt() >= 0 {
		limit = int(opts[1].AsInt())
	}
	if !opts[0].IsString() {
		words, err := splitWords(s, limit)
		if err != nil {
			return jinja.Undefined(), err
		}
		return b.list(stringValues(words))
	}
	sep := opts[0].AsString()
	if sep == "" {
		return jinja.Undefined(), errors.New("split: empty separator")
	}
	if err := b.make(valueSize * (1 + min(limit, strings.Count(s, sep)))); err != nil {
		return jinja.Undefined(), err
	}
	return jinja.NewList(stringValues(strings.SplitN(s, sep, limit+1))), nil
}

// splitWords splits at runs of whitespace, at most limit times.
func splitWords(s string, limit int) ([]string, error) {
	var words []string
	for {
		if s = strings.TrimLeftFunc(s, isSpace); s == "" {
			return words, nil
		}
		end := strings.IndexFunc(s, isSpace)
		if end < 0 || len(words) == limit {
			return append(words, s), nil
		}
		if len(words) > maxValue/valueSize {
			return nil, fmt.Errorf("%w: a text of more than %d words", ErrLimit, maxValue/valueSize)
		}
		words = append(words, s[:end])
		s = s[end:]
	}
}

func find(s string, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 || !args[0].IsString() {
		return jinja.Undefined(), errors.New("find: only one string is supported")
	}
	i := strings.Index(s, args[0].AsString())
	if i > 0 {
		i = utf8.RuneCountInString(s[:i])
	}
	return jinja.NewInt(int64(i)), nil
}

// members returns a method of mappings: items, keys or values.
func (b *budget) members(name string) function {
	return func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		if !args[0].IsDict() {
			return jinja.Undefined(), unusable("%s has no %s", typeName(args[0]), name)
		}
		d := args[0].AsDict()
		if err := b.make(3 * valueSize * d.Len()); err != nil {
			return jinja.Undefined(), err
		}
		all := make([]jinja.Value, len(d.Keys))
		for i, key := range d.Keys {
			switch name {
			case "keys":
				all[i] = jinja.NewString(key)
			case "values":
				all[i] = d.Data[key]
			default:
				all[i] = jinja.NewList([]jinja.Value{jinja.NewString(key), d.Data[key]})
			}
		}
		return jinja.NewList(all), nil
	}
}

// changing returns a method of strings without arguments.
func (b *budget) changing(fn func(string) string) function {
	return onString(func(s string, _ []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		return b.text(fn(s))
	})
}

func title(s string) string {
	between := true
	return strings.Map(func(r rune) rune {
		starts := between
		if between = r == ' ' || r == '\t' || r == '\n'; starts && !between {
			return unicode.ToUpper(r)
		}
		return r
	}, s)
}

func capitalize(s string) string {
	first, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToUpper(first)) + s[n:]
}

func (b *budget) replaceMethod(s string, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) < 2 || !args[0].IsString() || !args[1].IsString() {
		return jinja.Undefined(), unusable("replace takes two strings")
	}
	return b.replace(s, args[0].AsString(), args[1].AsString(), bind(args[2:], nil, "count")[0])
}

// format replaces "{}" and "{0}" by the arguments, like the library's method.
func (b *budget) format(s string, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	for i, arg := range args {
		v, err := b.replace(s, fmt.Sprintf("{%d}", i), written(arg), jinja.Undefined())
		if err == nil {
			v, err = b.replace(v.AsString(), "{}", written(arg), jinja.NewInt(1))
		}
		if err != nil {
			return jinja.Undefined(), err
		}
		s = v.AsString()
	}
	return jinja.NewString(s), nil
}
