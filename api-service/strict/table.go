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
	// Hints are honoured fields without which an answer means the same. A hint of a wrong type is left
	// out, unless the reading is strict.
	Hints []string
	// Ignored fields have no effect on an answer here.
	Ignored []string
	// Unsupported fields would have an effect that nothing here offers. They are left out, unless
	// the reading is strict.
	Unsupported []string
	// Refused fields change what the answer means, so that an answer without them would be wrong.
	// The values are the reasons, which follow the name of the field.
	Refused map[string]string
}

// And returns a table with the fields of both.
func (t Table[T]) And(more Table[T]) Table[T] {
	more.Honoured, more.Refused = both(t.Honoured, more.Honoured), both(t.Refused, more.Refused)
	more.Hints = slices.Concat(t.Hints, more.Hints)
	more.Ignored = slices.Concat(t.Ignored, more.Ignored)
	more.Unsupported = slices.Concat(t.Unsupported, more.Unsupported)
	return more
}

func both[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	if all == nil {
		return maps.Clone(b)
	}
	maps.Copy(all, b)
	return all
}

// Parse calls, for every honoured field that is not null, the setter of its name, in the order of
// the names, so that the same body always gets the same error. All other fields but the refused
// ones are left out, and in collects their names.
func (t *Table[T]) Parse(fields map[string]json.RawMessage, to T, in *Reading) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if raw := fields[name]; !Null(raw) {
			if err := t.parse(name, raw, to, in); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Table[T]) parse(name string, raw json.RawMessage, to T, in *Reading) error {
	if set, honoured := t.Honoured[name]; honoured {
		err := set(to, name, raw)
		if err != nil && !in.Refuses() && slices.Contains(t.Hints, name) && streamerr.As(err).Code == streamerr.CodeInvalidType {
			in.Ignore(name)
			return nil
		}
		return err
	}
	why, refused := t.Refused[name]
	ignored, unsupported := slices.Contains(t.Ignored, name), slices.Contains(t.Unsupported, name)
	switch {
	case !refused && !ignored && !unsupported:
		return in.Unknown(Printable(name))
	case Empty(raw):
	case refused:
		return streamerr.InvalidParam(name, "%s %s", name, why).WithCode(streamerr.CodeUnsupportedField)
	case unsupported:
		return in.Unsupported(name)
	default:
		in.Ignore(name)
	}
	return nil
}

// Fields returns how each field is treated: "honoured", "ignored", "unsupported" or "refused".
func (t *Table[T]) Fields() map[string]string {
	all := make(map[string]string, len(t.Honoured)+len(t.Ignored)+len(t.Unsupported)+len(t.Refused))
	for name := range t.Honoured {
		all[name] = "honoured"
	}
	for _, name := range t.Ignored {
		all[name] = "ignored"
	}
	for _, name := range t.Unsupported {
		all[name] = "unsupported"
	}
	for name := range t.Refused {
		all[name] = "refused"
	}
	return all
}
