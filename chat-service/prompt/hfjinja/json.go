package hfjinja

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// An encoder is Python's json.dumps with the arguments of the tojson filter of transformers.
type encoder struct {
	strings.Builder
	indent        string // of one level; used only if indented is set
	indented      bool
	item, key     string // separators
	ascii, sorted bool
}

// toJSON is the filter tojson(value, ensure_ascii=False, indent=None, separators=None,
// sort_keys=False).
func (b *budget) toJSON(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	opts := bind(args[1:], kwargs, "ensure_ascii", "indent", "separators", "sort_keys")
	e := encoder{item: ", ", key: ": ", ascii: opts[0].IsTruthy(), sorted: opts[3].IsTruthy()}
	switch indent := opts[1]; {
	case indent.IsInt():
		e.indented, e.indent = true, strings.Repeat(" ", int(max(0, min(indent.AsInt(), 100))))
	case indent.IsString():
		e.indented, e.indent = true, indent.AsString()
	}
	if e.indented {
		e.item = ","
	}
	if sep := opts[2]; sep.IsList() && sep.AsList().Len() == 2 {
		first, second := sep.AsList().Get(0), sep.AsList().Get(1)
		if !first.IsString() || !second.IsString() {
			return jinja.Undefined(), errors.New("tojson: separators are not strings")
		}
		e.item, e.key = first.AsString(), second.AsString()
	}
	if err := e.value(args[0], 0); err != nil {
		return jinja.Undefined(), err
	}
	return b.text(e.String())
}

// errTooLong ends an encoding. A separator or an indent may be long.
var errTooLong = fmt.Errorf("%w: JSON of more than %d bytes", ErrLimit, MaxOutput)

func (e *encoder) value(v jinja.Value, depth int) error {
	if depth > maxNesting {
		return errNesting
	}
	switch {
	case v.IsNone():
		e.WriteString("null")
	case v.IsBool():
		e.WriteString(strconv.FormatBool(v.AsBool()))
	case v.IsInt():
		e.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		e.WriteString(jsonFloats.Replace(formatFloat(v.AsFloat())))
	case v.IsString():
		e.text(v.AsString())
	case v.IsList():
		return e.members("[", "]", v.AsList().Len(), depth, func(i int) error {
			return e.value(v.AsList().Get(i), depth+1)
		})
	case v.IsDict():
		keys := v.AsDict().OrderedKeys()
		if e.sorted {
			slices.Sort(keys)
		}
		return e.members("{", "}", len(keys), depth, func(i int) error {
			e.text(keys[i])
			e.WriteString(e.key)
			return e.value(v.AsDict().Data[keys[i]], depth+1)
		})
	default:
		return unusable("%s has no JSON", typeName(v))
	}
	return nil
}

// jsonFloats are JavaScript's names for floats that are not numbers.
var jsonFloats = strings.NewReplacer("inf", "Infinity", "nan", "NaN")

func (e *encoder) members(open, close string, n, depth int, member func(i int) error) error {
	e.WriteString(open)
	for i := range n {
		if i > 0 {
			e.WriteString(e.item)
		}
		if e.Len() > MaxOutput || len(e.indent)*(depth+1) > MaxOutput {
			return errTooLong
		}
		e.line(depth + 1)
		if err := member(i); err != nil {
			return err
		}
	}
	if n > 0 {
		e.line(depth)
	}
	e.WriteString(close)
	return nil
}

func (e *encoder) line(depth int) {
	if e.indented {
		e.WriteString("\n" + strings.Repeat(e.indent, depth))
	}
}

var shortEscapes = map[rune]string{
	'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`,
}

func (e *encoder) text(s string) {
	e.WriteByte('"')
	for _, r := range s {
		switch short, ok := shortEscapes[r]; {
		case ok:
			e.WriteString(short)
		case r < ' ' || e.ascii && r > '~' && r < 0x10000:
			writeHex(&e.Builder, 'u', 4, r)
		case e.ascii && r > '~':
			r -= 0x10000
			writeHex(&e.Builder, 'u', 4, 0xd800+r>>10)
			writeHex(&e.Builder, 'u', 4, 0xdc00+r&0x3ff)
		default:
			e.WriteRune(r)
		}
	}
	e.WriteByte('"')
}

// bind returns the arguments of a call in the order of names. A missing argument is undefined.
func bind(args []jinja.Value, kwargs map[string]jinja.Value, names ...string) []jinja.Value {
	bound := make([]jinja.Value, len(names))
	for i, name := range names {
		bound[i] = jinja.Undefined()
		if i < len(args) {
			bound[i] = args[i]
		} else if v, ok := kwargs[name]; ok {
			bound[i] = v
		}
	}
	return bound
}
