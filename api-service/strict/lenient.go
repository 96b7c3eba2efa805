package strict

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// Lenient parses a body. If parse refuses a nested field as unknown or unsupported, and names has
// the field, Lenient parses again without the field. A name is a path of members, in which []
// stands for every element of an array, such as messages[].cache_control. Fields of the body itself
// are left to Table.Parse. A field that parse accepts is never left out.
func Lenient[T any](body []byte, names []string, parse func(body []byte) (T, error)) (T, error) {
	for {
		v, err := parse(body)
		if err == nil {
			return v, nil
		}
		path, ok := refused(err)
		if !ok || !slices.Contains(names, path) {
			return v, err
		}
		shorter, ok := cut(body, path)
		if !ok {
			return v, err
		}
		body = shorter // the body has one listed field less, so the loop ends
	}
}

// index matches the index of an array element in the name of a field.
var index = regexp.MustCompile(`\[\d+\]`)

// refused returns the path of a field that was refused because of its name rather than its value.
func refused(err error) (path string, ok bool) {
	e := streamerr.As(err)
	ok = e.Param != "" && (e.Code == streamerr.CodeUnknownField || e.Code == streamerr.CodeUnsupportedField)
	return index.ReplaceAllLiteralString(e.Param, "[]"), ok
}

// cut returns a JSON value without the members with this path. ok is false if there are none.
func cut(body []byte, path string) (shorter []byte, ok bool) {
	c := cutter{dec: json.NewDecoder(bytes.NewReader(body)), body: body, path: path}
	if c.value("") != nil || c.from == 0 {
		return nil, false
	}
	shorter = append(c.kept, body[c.from:]...)
	return shorter, json.Valid(shorter)
}

// A cutter copies a JSON value without the members with one path.
type cutter struct {
	dec  *json.Decoder
	body []byte
	path string
	kept []byte // the kept part of body up to from
	from int    // end of the last member that was cut; 0 if none was
}

// value reads the value at a path.
func (c *cutter) value(at string) error {
	token, err := c.dec.Token()
	switch {
	case err != nil:
		return err
	case token == json.Delim('['):
		for c.dec.More() {
			if err := c.value(at + "[]"); err != nil {
				return err
			}
		}
	case token == json.Delim('{'):
		for first := true; c.dec.More(); {
			cut, err := c.member(at, first)
			if err != nil {
				return err
			}
			first = first && cut
		}
	default:
		return nil
	}
	_, err = c.dec.Token() // the end of the array or object
	return err
}

// member reads a member of the object at a path. first says that no member before it is kept.
func (c *cutter) member(at string, first bool) (cut bool, err error) {
	begin := int(c.dec.InputOffset())
	name, err := c.dec.Token()
	if err != nil {
		return false, err
	}
	if at != "" {
		at += "."
	}
	at += name.(string) //nolint:forcetypeassert // names of members are strings
	if at != c.path {
		return false, c.value(at)
	}
	var skipped json.RawMessage
	if err := c.dec.Decode(&skipped); err != nil {
		return false, err
	}
	end := int(c.dec.InputOffset())
	if first { // then the comma behind it goes, else that before it
		if rest := bytes.TrimLeft(c.body[end:], " \t\r\n"); bytes.HasPrefix(rest, []byte{','}) {
			end = len(c.body) - len(rest) + 1
		}
	}
	c.kept = append(c.kept, c.body[c.from:max(begin, c.from)]...)
	c.from = end
	return true, nil
}
