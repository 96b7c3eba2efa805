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

// readObject converts a JSON object to a template value. Members keep the order of the text,
// because templates write them in that order, and numbers are read as Python's json reads them.
func readObject(text string) (jinja.Value, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	v, err := readValue(dec, 0)
	if err != nil {
		return v, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return v, errors.New("more text follows it")
	}
	if !v.IsDict() {
		return v, errors.New("it is not an object")
	}
	return v, nil
}

func readValue(dec *json.Decoder, depth int) (jinja.Value, error) {
	token, err := dec.Token()
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
			return readList(dec, depth)
		}
		return readMembers(dec, depth)
	case json.Number:
		if n, err := token.Int64(); err == nil {
			return jinja.NewInt(n), nil
		}
		f, err := token.Float64()
		return jinja.NewFloat(f), err
	case string:
		return jinja.NewString(token), nil
	case bool:
		return jinja.NewBool(token), nil
	default:
		return jinja.None(), nil
	}
}

func readList(dec *json.Decoder, depth int) (jinja.Value, error) {
	items := []jinja.Value{}
	for dec.More() {
		v, err := readValue(dec, depth+1)
		if err != nil {
			return v, err
		}
		items = append(items, v)
	}
	_, err := dec.Token()
	return jinja.NewList(items), err
}

func readMembers(dec *json.Decoder, depth int) (jinja.Value, error) {
	object := jinja.NewDict()
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return object, err
		}
		v, err := readValue(dec, depth+1)
		if err != nil {
			return v, err
		}
		name, _ := key.(string) // the decoder guarantees a string
		object.AsDict().Set(name, v)
	}
	_, err := dec.Token()
	return object, err
}
