package strict

import (
	"bytes"
	"encoding/json"
	"strconv"
	"sync"

	"github.com/whence-dev/whence/internal/jsonscan"
)

// MaxNesting bounds the nesting of the values of a body.
const MaxNesting = jsonscan.MaxNesting

// members returns the members of an object, which are parts of text. twice is the name of a
// repeated member, if there is one: JSON parsers disagree which of the two counts.
func members(text []byte) (fields map[string]json.RawMessage, twice *string, ok bool) {
	s := jsonscan.New(text)
	fields = spare.Get().(map[string]json.RawMessage) //nolint:forcetypeassert // the pool has nothing else
	ok = s.Object(func(raw []byte) bool {
		name, ok := jsonscan.Unquote(raw)
		if !ok {
			return false
		}
		if _, known := fields[name]; known && twice == nil {
			twice = &name
		}
		fields[name], ok = s.Raw()
		return ok
	})
	return fields, twice, ok && s.End()
}

// spare has the maps of Recycle.
var spare = sync.Pool{New: func() any { return map[string]json.RawMessage{} }}

// maxSpare bounds the size of a map in spare.
const maxSpare = 64

// Recycle keeps a map of Fields or Object for a later call. The caller must not use it any more; it may
// use its values.
func Recycle(fields map[string]json.RawMessage) {
	if len(fields) <= maxSpare {
		clear(fields)
		spare.Put(fields)
	}
}

// elements returns the elements of an array, which are parts of text.
func elements(text []byte) (items []json.RawMessage, ok bool) {
	s := jsonscan.New(text)
	items = []json.RawMessage{}
	ok = s.Array(func() bool {
		value, ok := s.Raw()
		items = append(items, value)
		return ok
	})
	return items, ok && s.End()
}

// identifiers returns the elements of an array of token ids.
func identifiers(text []byte) (ids []uint32, ok bool) {
	s := jsonscan.New(text)
	ids = make([]uint32, 0, bytes.Count(text, []byte{','})+1)
	ok = s.Array(func() bool {
		value, ok := s.Raw()
		id, err := strconv.ParseUint(string(value), 10, 31)
		ids = append(ids, uint32(id))
		return ok && err == nil
	})
	return ids, ok && s.End()
}

// numeral returns the text of a number, or "" if raw is not a number.
func numeral(raw []byte) string {
	if !jsonscan.Numeral(raw) {
		return ""
	}
	return string(raw)
}
