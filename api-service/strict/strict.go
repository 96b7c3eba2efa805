// Package strict parses the fields of JSON bodies: a field with a wrong type or range is refused by
// name, and a field that cannot be honoured is left out and told (Reading).
//
// Its errors are *streamerr.Error with reason INVALID, whose Param is the name that the caller
// gave.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/whence-dev/whence/internal/jsonscan"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Mismatch returns the error for a field of the wrong type.
func Mismatch(param, want string, raw json.RawMessage) error {
	return streamerr.InvalidParam(param, "%s must be %s; got %s", param, want, kindOf(raw)).WithCode(streamerr.CodeInvalidType)
}

func kindOf(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return fmt.Sprintf("the number %.40s", raw)
	}
}

// Object parses an object. Its members may be parts of raw. An empty array is an empty object: PHP
// does not know the difference.
func Object(param string, raw json.RawMessage) (map[string]json.RawMessage, error) {
	if len(raw) > 1 && raw[0] == '[' && Empty(raw) {
		return map[string]json.RawMessage{}, nil
	}
	if fields, twice, ok := members(raw); ok {
		if twice != nil {
			return nil, repeated(param + "." + Printable(*twice))
		}
		return fields, nil
	}
	var v map[string]json.RawMessage
	if json.Unmarshal(raw, &v) != nil || v == nil {
		return nil, Mismatch(param, "an object", raw)
	}
	return v, nil
}

// repeated returns the refusal of an object with a repeated member.
func repeated(param string) error {
	return streamerr.InvalidParam(param, "%s must appear exactly once", param)
}

// Array parses an array. Its elements may be parts of raw. An empty object is an empty array: Lua does not
// know the difference.
func Array(param string, raw json.RawMessage) ([]json.RawMessage, error) {
	if len(raw) > 1 && raw[0] == '{' && Empty(raw) {
		return []json.RawMessage{}, nil
	}
	if items, ok := elements(raw); ok {
		return items, nil
	}
	var v []json.RawMessage
	if json.Unmarshal(raw, &v) != nil || v == nil {
		return nil, Mismatch(param, "an array", raw)
	}
	return v, nil
}

// String parses a string.
func String(param string, raw json.RawMessage) (string, error) {
	s := jsonscan.New(raw)
	var v string
	if s.Next() != '"' || !s.String(&v) || !s.End() {
		return "", Mismatch(param, "a string", raw)
	}
	return v, nil
}

// Member parses a string that an object must have.
func Member(param, name string, fields map[string]json.RawMessage) (string, error) {
	raw, ok := fields[name]
	if !ok {
		return "", streamerr.InvalidParam(param+"."+name, "%s.%s is missing", param, name).WithCode(streamerr.CodeMissing)
	}
	return String(param+"."+name, raw)
}

// Inner parses a member that must be there and be an object.
func Inner(param, name string, fields map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	raw, ok := fields[name]
	if !ok {
		return nil, streamerr.InvalidParam(param+"."+name, "%s.%s is missing", param, name).WithCode(streamerr.CodeMissing)
	}
	return Object(param+"."+name, raw)
}

// Boolean parses true or false.
func Boolean(param string, raw json.RawMessage) (bool, error) {
	switch string(raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, Mismatch(param, "a boolean", raw)
	}
}

// Number parses a number in [low, high].
func Number(param string, raw json.RawMessage, low, high float64) (float32, error) {
	v, err := strconv.ParseFloat(numeral(raw), 64)
	if err != nil {
		return 0, Mismatch(param, "a number", raw)
	}
	if v < low || v > high {
		return 0, outside(v < low, streamerr.CodeNumberBelow, streamerr.CodeNumberAbove, param, "%s is %v; it must be from %v to %v", param, v, low, high)
	}
	return float32(v), nil
}

// outside returns the refusal of a number outside of its range, with the code below or above.
func outside(isBelow bool, below, above, param, format string, args ...any) error {
	code := above
	if isBelow {
		code = below
	}
	return streamerr.InvalidParam(param, format, args...).WithCode(code)
}

// maxExact bounds the integers that may be written as floats, such as 8.0 or 1e3: a float of 64 bits
// has all of them.
const maxExact = 1 << 53

// Integer parses an integer in [low, high]. Languages with one type of numbers write 8 as 8.0.
func Integer(param string, raw json.RawMessage, low, high int64) (int64, error) {
	v, err := strconv.ParseInt(numeral(raw), 10, 64)
	if err != nil {
		var f float64
		if f, err = strconv.ParseFloat(numeral(raw), 64); f != math.Trunc(f) || math.Abs(f) > maxExact {
			err = strconv.ErrSyntax
		}
		v = int64(f)
	}
	if err != nil {
		return 0, Mismatch(param, "an integer", raw)
	}
	if v < low || v > high {
		return 0, outside(v < low, streamerr.CodeIntegerBelow, streamerr.CodeIntegerAbove, param, "%s is %d; it must be from %d to %d", param, v, low, high)
	}
	return v, nil
}

// Count parses an integer that is at least low and has at most 31 bits.
func Count(param string, raw json.RawMessage, low int64) (*uint32, error) {
	v, err := Integer(param, raw, low, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	n := uint32(v)
	return &n, nil
}

// OneOf refuses a word that is not in allowed.
func OneOf(param, word string, allowed ...string) error {
	if slices.Contains(allowed, word) {
		return nil
	}
	return streamerr.InvalidParam(param, "%s is %q; it must be %s", param, Printable(word), strings.Join(allowed, " or "))
}

// Compact returns an object without white space.
func Compact(param string, raw json.RawMessage) (string, error) {
	fields, err := Object(param, raw)
	if err != nil {
		return "", err
	}
	if len(fields) == 0 {
		return "{}", nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "", Mismatch(param, "an object", raw)
	}
	return b.String(), nil
}

// Null reports whether a field is null.
func Null(raw json.RawMessage) bool { return string(raw) == "null" }

// Fields parses a body, which must be an object that nests at most MaxNesting deep. The members may be parts of body.
func Fields(body []byte) (map[string]json.RawMessage, error) {
	body = bytes.TrimPrefix(body, []byte("\ufeff")) // PowerShell's mark of UTF-8
	if !utf8.Valid(body) {
		return nil, streamerr.New(streamerr.Invalid, "the body is not valid UTF-8")
	}
	if fields, twice, ok := members(body); ok {
		if twice != nil {
			return nil, repeated(Printable(*twice))
		}
		return fields, nil
	}
	if jsonscan.Nested(body) {
		return nil, streamerr.New(streamerr.Invalid, "the values of the body nest deeper than %d", MaxNesting)
	}
	var fields map[string]json.RawMessage
	err := json.Unmarshal(body, &fields)
	if err == nil && fields != nil {
		return fields, nil
	}
	var at *json.SyntaxError
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return nil, streamerr.New(streamerr.Invalid, "the body is empty; it must be a JSON object")
	case errors.As(err, &at):
		return nil, streamerr.New(streamerr.Invalid, "the body is not valid JSON: %v at byte %d", at, at.Offset)
	default:
		return nil, streamerr.New(streamerr.Invalid, "the body must be a JSON object")
	}
}

// Each parses fields that are all honoured; see Table.Parse.
func Each[T any](fields map[string]json.RawMessage, to T, in *Reading, setters map[string]Setter[T]) error {
	t := Table[T]{Honoured: setters}
	return t.Parse(fields, to, in)
}

// IDs parses an array of token ids.
func IDs(param string, raw json.RawMessage) ([]uint32, error) {
	if ids, ok := identifiers(raw); ok {
		return ids, nil
	}
	items, err := Array(param, raw)
	if err != nil {
		return nil, err
	}
	ids := make([]uint32, len(items))
	for i, raw := range items {
		id, err := Integer(fmt.Sprintf("%s[%d]", param, i), raw, 0, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		ids[i] = uint32(id)
	}
	return ids, nil
}

// Strings parses a string, or an array of strings.
func Strings(param string, raw json.RawMessage) ([]string, error) {
	if raw[0] == '"' {
		s, err := String(param, raw)
		return []string{s}, err
	}
	items, err := Array(param, raw)
	if err != nil {
		return nil, Mismatch(param, "a string or an array of strings", raw)
	}
	all := make([]string, len(items))
	for i, raw := range items {
		if all[i], err = String(fmt.Sprintf("%s[%d]", param, i), raw); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Stops parses the texts that end an answer, as Strings does. Empty texts and nulls are missing.
func Stops(param string, raw json.RawMessage) (all []string, err error) {
	if raw[0] != '[' {
		all, err = Strings(param, raw)
		return slices.DeleteFunc(all, func(s string) bool { return s == "" }), err
	}
	items, err := Array(param, raw)
	for i := 0; i < len(items) && err == nil; i++ {
		var stop string
		if !Null(items[i]) {
			stop, err = String(fmt.Sprintf("%s[%d]", param, i), items[i])
		}
		if stop != "" {
			all = append(all, stop)
		}
	}
	return all, err
}

// Printable makes a name from a request safe to print.
func Printable(name string) string {
	q := strconv.QuoteToASCII(name[:min(len(name), 64)])
	return q[1 : len(q)-1]
}
