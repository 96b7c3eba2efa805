package jinja

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// An encoder is Python's json.dumps with the arguments of transformers' filter tojson.
type encoder struct {
	r             *run
	out           []byte
	indent        string // of one level; used only if indented is set
	indented      bool
	item, key     string // separators
	ascii, sorted bool
}

// toJSON is the filter tojson(value, ensure_ascii=False, indent=None, separators=None,
// sort_keys=False).
func toJSON(r *run, v Value, a actuals) Value {
	e := encoder{r: r, item: ", ", key: ": ", ascii: a.flag(0, "ensure_ascii"), sorted: a.flag(3, "sort_keys")}
	indent := a.value(1, "indent", nil)
	if n, ok := intOf(indent); ok {
		indent = r.repeat(" ", n)
	}
	if indent != nil {
		e.indent, e.indented, e.item = mustText(indent), true, ","
	}
	if separators := a.value(2, "separators", nil); separators != nil {
		items := r.items(separators)
		if len(items) != 2 {
			panic(unusable("tojson takes two separators"))
		}
		e.item, e.key = mustText(items[0]), mustText(items[1])
	}
	e.value(v, 0)
	r.text(len(e.out))
	return string(e.out)
}

func (e *encoder) value(v Value, depth int) {
	nested(depth)
	switch v := v.(type) {
	case nil:
		e.out = append(e.out, "null"...)
	case bool:
		e.out = strconv.AppendBool(e.out, v)
	case int:
		e.out = strconv.AppendInt(e.out, int64(v), 10)
	case *big.Int:
		e.out = v.Append(e.out, 10)
	case float64:
		e.out = append(e.out, strings.NewReplacer("inf", "Infinity", "nan", "NaN").Replace(formatFloat(v))...)
	case string:
		e.text(v)
	case markup:
		e.text(string(v))
	case *Dict:
		e.dict(v, depth)
	default:
		l, ok := v.(*List)
		if !ok || !l.hasElements() {
			panic(unusable("%s has no JSON", typeName(v)))
		}
		e.items(l.Items, depth)
	}
}

func (e *encoder) items(items []Value, depth int) {
	e.out = append(e.out, '[')
	for i, item := range items {
		e.begin(i, depth)
		e.value(item, depth+1)
	}
	e.end(len(items), ']', depth)
}

func (e *encoder) dict(d *Dict, depth int) {
	order := make([]int, d.Len())
	for i := range order {
		order[i] = i
	}
	if e.sorted {
		slices.SortStableFunc(order, func(i, j int) int { return e.r.order(d.key(i), d.key(j), "<", 0) })
	}
	e.out = append(e.out, '{')
	for n, i := range order {
		e.begin(n, depth)
		switch key := d.key(i).(type) {
		case string, markup:
			e.value(key, 0)
		case *List:
			panic(unusable("a tuple cannot be a key of JSON"))
		default:
			e.out = append(e.out, '"')
			e.value(key, depth)
			e.out = append(e.out, '"')
		}
		e.out = append(e.out, e.key...)
		e.value(d.values[i], depth+1)
	}
	e.end(d.Len(), '}', depth)
}

// begin begins a member of a list or a mapping.
func (e *encoder) begin(i, depth int) {
	e.r.spend(1)
	if i > 0 {
		e.out = append(e.out, e.item...)
	}
	if len(e.out) > MaxOutput || len(e.indent)*(depth+1) > MaxOutput {
		panic(errOutput)
	}
	e.line(depth + 1)
}

func (e *encoder) end(members int, closer byte, depth int) {
	if members > 0 {
		e.line(depth)
	}
	e.out = append(e.out, closer)
}

func (e *encoder) line(depth int) {
	if e.indented {
		e.out = append(append(e.out, '\n'), strings.Repeat(e.indent, depth)...)
	}
}

// shortEscapes are the escapes of JSON with a letter.
var shortEscapes = [128]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

func (e *encoder) text(s string) {
	e.out = append(e.out, '"')
	done := 0
	for i, c := range s {
		if c >= ' ' && c != '"' && c != '\\' && (c <= '~' || !e.ascii) {
			continue
		}
		e.out = append(e.out, s[done:i]...)
		switch {
		case c < 128 && shortEscapes[c] != 0:
			e.out = append(e.out, '\\', shortEscapes[c])
		case c < 0x10000:
			e.out = appendHex(e.out, 'u', 4, c)
		default:
			e.out = appendHex(e.out, 'u', 4, 0xd800+(c-0x10000)>>10)
			e.out = appendHex(e.out, 'u', 4, 0xdc00+(c-0x10000)&0x3ff)
		}
		done = i + len(string(c))
	}
	e.out = append(append(e.out, s[done:]...), '"')
}

// fromJSON is the filter from_json, which Jinja2 lacks and some templates use.
func fromJSON(r *run, v Value, _ actuals) Value {
	text := mustText(v)
	if r.readJSON == nil {
		panic(&unknownError{"filter", "from_json"})
	}
	r.list(len(text)) // "[[],[]]" takes much more memory than its text
	read, err := r.readJSON(text)
	if err != nil {
		panic(unusable("a text is not JSON"))
	}
	return read
}
