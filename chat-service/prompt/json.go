package prompt

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/whence-dev/whence/chat-service/prompt/jinja"
)

// maxNesting is the maximum depth of JSON values for templates.
const maxNesting = 100

// A valueReader converts JSON to template values.
type valueReader struct {
	*json.Decoder
	once bool // refuses an object with two members of one name, of which a template sees only one
}

// readObject converts a JSON object to a template value.
func readObject(text string, once bool) (*jinja.Dict, error) {
	v, err := readValue(text, once)
	if err != nil {
		return nil, err
	}
	object, ok := v.(*jinja.Dict)
	if !ok {
		return nil, errors.New("it is not an object")
	}
	return object, nil
}

// readValue converts JSON to a template value. Members keep the order of the text, because templates
// write them in that order, and numbers are read as Python's json reads them. NUL becomes U+FFFD.
func readValue(text string, once bool) (jinja.Value, error) {
	r := valueReader{json.NewDecoder(strings.NewReader(text)), once}
	r.UseNumber()
	v, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := r.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more text follows it")
	}
	return v, nil
}

func (r valueReader) value(depth int) (jinja.Value, error) {
	token, err := r.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	if depth > maxNesting {
		return nil, errors.New("it is nested too deeply")
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			return r.list(depth)
		}
		return r.members(depth)
	case json.Number:
		return jinja.Number(token.String())
	case string:
		return Clean(token), nil
	default: // a bool or null
		return token, nil
	}
}

func (r valueReader) list(depth int) (jinja.Value, error) {
	list := jinja.NewList()
	for r.More() {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, v)
	}
	_, err := r.Token()
	return list, err
}

func (r valueReader) members(depth int) (jinja.Value, error) {
	object := jinja.NewDict()
	for r.More() {
		key, err := r.Token()
		if err != nil {
			return nil, err
		}
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // the decoder guarantees a string
		if _, twice := object.Get(name); twice && r.once {
			return nil, errors.New("it has two members of one name")
		}
		object.Set(name, v)
	}
	_, err := r.Token()
	return object, err
}
