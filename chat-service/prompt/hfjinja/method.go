package hfjinja

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// method returns this package's method called name, or nil if the library's method matches Python.
// The first argument is the receiver.
func method(name string) function {
	switch name {
	case "strip":
		return trimming(strings.TrimFunc) // the library strips other whitespace
	case "lstrip":
		return trimming(strings.TrimLeftFunc)
	case "rstrip":
		return trimming(strings.TrimRightFunc)
	case "split":
		return onString(split) // the library has no limit
	case "find":
		return onString(find) // the library counts bytes
	case "items":
		return items // the library prefers an entry of that name to the method
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
			return jinja.NewString(trim(s, func(r rune) bool { return strings.ContainsRune(chars, r) })), nil
		}
		return jinja.Undefined(), errors.New("strip: characters are not a string")
	})
}

func split(s string, args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	opts := bind(args, kwargs, "sep", "maxsplit")
	limit := math.MaxInt - 1
	if opts[1].IsInt() && opts[1].AsInt() >= 0 {
		limit = int(opts[1].AsInt())
	}
	if !opts[0].IsString() {
		return jinja.NewList(stringValues(splitWords(s, limit))), nil
	}
	sep := opts[0].AsString()
	if sep == "" {
		return jinja.Undefined(), errors.New("split: empty separator")
	}
	return jinja.NewList(stringValues(strings.SplitN(s, sep, limit+1))), nil
}

// splitWords splits at runs of whitespace, at most limit times.
func splitWords(s string, limit int) []string {
	var words []string
	for {
		if s = strings.TrimLeftFunc(s, isSpace); s == "" {
			return words
		}
		end := strings.IndexFunc(s, isSpace)
		if end < 0 || len(words) == limit {
			return append(words, s)
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

func items(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if !args[0].IsDict() {
		return jinja.Undefined(), unusable("%s has no items", typeName(args[0]))
	}
	d := args[0].AsDict()
	pairs := make([]jinja.Value, len(d.Keys))
	for i, key := range d.Keys {
		pairs[i] = jinja.NewList([]jinja.Value{jinja.NewString(key), d.Data[key]})
	}
	return jinja.NewList(pairs), nil
}
