package prompt

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/ardanlabs/jinja"
)

// maxNesting is the maximum depth of JSON values for templates.
const maxNesting = 100

// A valueReader converts JSON to template values.
type valueReader struct {
	*json.Decoder
	once bool // refuses an object with two members of one name, of which a template sees only one
}

// readObject converts a JSON object to a template value. Members keep the order of the text,
// because templates write them in that order, and numbers are read as Python's json reads them. NUL
// becomes U+FFFD.
func readObject(text string, once bool) (jinja.Value, error) {
	r := valueReader{json.NewDecoder(strings.NewReader(text)), once}
	r.UseNumber()
	v, err := r.value(0)
	if err != nil {
		return v, err
	}
	if _, err := r.Token(); !errors.Is(err, io.EOF) {
		return v, errors.New("more text follows it")
	}
	if !v.IsDict() {
		return v, errors.New("it is not an object")
	}
	return v, nil
}

func (r valueReader) value(depth int) (jinja.Value, error) {
	token, err := r.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return jinja.None(), err
	}
	if depth > maxNesting {
		return jinja.None(), errors.New("it is nested too deeply")
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			return r.list(depth)
		}
		return r.members(depth)
	case json.Number:
		if n, err := token.Int64(); err == nil {
			return jinja.NewInt(n), nil
		}
		f, err := token.Float64()
		return jinja.NewFloat(f), err
	case string:
		return jinja.NewString(Clean(token)), nil
	case bool:
		return jinja.NewBool(token), nil
	default:
		return jinja.None(), nil
	}
}

func (r valueReader) list(depth int) (jinja.Value, error) {
	items := []jinja.Value{}
	for r.More() {
		v, err := r.value(depth + 1)
		if err != nil {
			return v, err
		}
		items = append(items, v)
	}
	_, err := r.Token()
	return jinja.NewList(items), err
}

func (r valueReader) members(depth int) (jinja.Value, error) {
	object := jinja.NewDict()
	for r.More() {
		key, err := r.Token()
		if err != nil {
			return object, err
		}
		v, err := r.value(depth + 1)
		if err != nil {
			return v, err
		}
		name, _ := key.(string) // the decoder guarantees a string
		if _, twice := object.AsDict().Data[name]; twice && r.once {
			return object, errors.New("it has two members of one name")
		}
		object.AsDict().Set(name, v)
	}
	_, err := r.Token()
	return object, err
}
