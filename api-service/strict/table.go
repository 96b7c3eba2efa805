package strict

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Setter parses one field of a body into to. The field is not null.
type Setter[T any] = func(to T, param string, raw json.RawMessage) error

// A Table lists the fields of one kind of body. A field in no list is unknown.
type Table[T any] struct {
	Honoured map[string]Setter[T]
	Ignored  []string // have no effect on an answer here
	Refused  []string // would have an effect that is not supported
}

// And returns a table with the fields of both.
func (t Table[T]) And(more Table[T]) Table[T] {
	more.Honoured = maps.Clone(more.Honoured)
	maps.Copy(more.Honoured, t.Honoured)
	more.Ignored = slices.Concat(t.Ignored, more.Ignored)
	more.Refused = slices.Concat(t.Refused, more.Refused)
	return more
}

// Parse calls, for every honoured field that is not null, the setter of its name, in the order of
// the names, so that the same body always gets the same error. Refused and unknown fields are
// refused by name, unless lenient has them: then they are ignored.
func (t *Table[T]) Parse(fields map[string]json.RawMessage, to T, lenient []string) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[name]
		set, honoured := t.Honoured[name]
		switch {
		case honoured:
			if Null(raw) {
				continue
			}
			if err := set(to, name, raw); err != nil {
				return err
			}
		case slices.Contains(t.Ignored, name), slices.Contains(lenient, name):
		case !slices.Contains(t.Refused, name):
			return streamerr.InvalidParam(Printable(name), "unknown field \"%s\"", Printable(name)).WithCode(streamerr.CodeUnknownField)
		case !Null(raw):
			return streamerr.InvalidParam(name, "%s is not supported by this model", name).WithCode(streamerr.CodeUnsupportedField)
		}
	}
	return nil
}

// Fields returns how each field is treated: "honoured", "ignored" or "refused".
func (t *Table[T]) Fields() map[string]string {
	all := make(map[string]string, len(t.Honoured)+len(t.Ignored)+len(t.Refused))
	for name := range t.Honoured {
		all[name] = "honoured"
	}
	for _, name := range t.Ignored {
		all[name] = "ignored"
	}
	for _, name := range t.Refused {
		all[name] = "refused"
	}
	return all
}
