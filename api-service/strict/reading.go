package strict

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Reading is the state of parsing one body. It leaves out the fields that Whence cannot honour and
// collects their names, so that the client is told. With Strict it refuses such fields instead. A
// nil Reading leaves fields out and forgets their names.
type Reading struct {
	// Strict refuses unknown and unsupported fields.
	Strict bool

	left map[string]bool // the fields that were left out, by path: whether the API has such a field
}

// maxLeft bounds the names that a Reading collects.
const maxLeft = 1000

// index matches the index of an array element in the path of a field.
var index = regexp.MustCompile(`\[\d+\]`)

// Refuses reports whether the reading is strict.
func (r *Reading) Refuses() bool { return r != nil && r.Strict }

// Ignore notes a field that has no effect here, by its path. A Strict reading accepts it, too. The
// path has only names of the API and indices.
func (r *Reading) Ignore(path string) { r.leave(path, true) }

func (r *Reading) leave(path string, known bool) {
	if r == nil || len(r.left) >= maxLeft {
		return
	}
	if r.left == nil {
		r.left = map[string]bool{}
	}
	r.left[Path(path)] = known
}

// Path returns the path of a field with [] in the place of each index.
func Path(field string) string { return index.ReplaceAllLiteralString(field, "[]") }

// Unknown leaves out a field that no API here has. A Strict reading refuses the field.
func (r *Reading) Unknown(path string) error {
	if r.Refuses() {
		return streamerr.InvalidParam(path, "unknown field \"%s\"", path).WithCode(streamerr.CodeUnknownField)
	}
	r.leave(path, false)
	return nil
}

// Unsupported leaves out a field that the API has, and that nothing here can honour. A Strict
// reading refuses the field. The path has only names of the API and indices.
func (r *Reading) Unsupported(path string) error {
	if r.Refuses() {
		return streamerr.InvalidParam(path, "%s is not supported by this model", path).WithCode(streamerr.CodeUnsupportedField)
	}
	r.Ignore(path)
	return nil
}

// Only leaves out the members of an object that are not in names. Members that are null count as
// missing.
func (r *Reading) Only(param string, fields map[string]json.RawMessage, names ...string) error {
	var unknown []string
	for name, raw := range fields {
		if !Null(raw) && !slices.Contains(names, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		if err := r.Unknown(param + "." + Printable(name)); err != nil {
			return err
		}
	}
	return nil
}

// Members parses an object whose other members than the named ones are left out. Members that are
// null are missing in the result.
func (r *Reading) Members(param string, raw json.RawMessage, names ...string) (map[string]json.RawMessage, error) {
	fields, err := Object(param, raw)
	if err == nil {
		err = r.Only(param, fields, names...)
	}
	maps.DeleteFunc(fields, func(_ string, raw json.RawMessage) bool { return Null(raw) })
	return fields, err
}

// Hint reports whether the word of a field that is a hint is one of the known words. An unknown
// word is left out as if the field were missing.
func (r *Reading) Hint(param, word string, known ...string) (bool, error) {
	if slices.Contains(known, word) {
		return true, nil
	}
	if r.Refuses() {
		return false, OneOf(param, word, known...)
	}
	r.Ignore(param)
	return false, nil
}

// Left returns the distinct paths of the fields that were left out, sorted. An element of an array
// has the index []. Paths have names, and never values, of the body.
func (r *Reading) Left() []string {
	if r == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(r.left))
}

// Label returns a path of Left if the API has such a field, and otherwise "other": clients can send
// any number of names.
func (r *Reading) Label(path string) string {
	if r.left[path] {
		return path
	}
	return "other"
}

// maxHeader bounds the paths of Brief, in bytes.
const maxHeader = 1 << 10

// Header returns the paths of Brief in one line of printable ASCII, separated by ", ".
func (r *Reading) Header() string { return strings.Join(r.Brief(), ", ") }

// Brief returns the paths of Left. If they are longer than 1 KiB together, the last element is the
// number of those that are missing: "+3".
func (r *Reading) Brief() []string {
	all, size := r.Left(), 0
	for i, path := range all {
		if size += len(path) + len(", "); size > maxHeader {
			return append(all[:i], "+"+strconv.Itoa(len(all)-i))
		}
	}
	return all
}

// Empty reports whether a value is missing, null, or the zero value of its type.
func Empty(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", `""`, "false", "0", "0.0":
		return true
	}
	return len(raw) > 1 && (raw[0] == '[' || raw[0] == '{') && blank(raw[1:len(raw)-1])
}

// blank reports whether a text has only white space.
func blank(text []byte) bool { return len(strings.TrimSpace(string(text))) == 0 }
