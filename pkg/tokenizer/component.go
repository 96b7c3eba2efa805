package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// A component is one step of the file's pipelines. Its type determines its options.
type component struct {
	Type string
	raw  json.RawMessage
}

// UnmarshalJSON reads the type, and stores the JSON for options.
func (c *component) UnmarshalJSON(data []byte) error {
	var head struct{ Type string }
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	c.Type = head.Type
	c.raw = append(json.RawMessage(nil), data...)
	return nil
}

// options reads the component's options into a struct.
func (c *component) options(into any) error {
	if err := json.Unmarshal(c.raw, into); err != nil {
		return c.fail(err)
	}
	return nil
}

// fail adds the component's name to an error about its options.
func (c *component) fail(err error) error { return fmt.Errorf("%s: %w", c.Type, err) }

// unsupported returns the error for a component of an unknown type.
func (c *component) unsupported() error { return fmt.Errorf("type %q is not supported", c.Type) }

// steps returns the steps of c: none if c is nil, the steps of its list if c is a Sequence,
// otherwise c itself.
func (c *component) steps(list string) ([]component, error) {
	if c == nil {
		return nil, nil
	}
	if c.Type != "Sequence" {
		return []component{*c}, nil
	}
	var lists map[string]json.RawMessage
	if err := c.options(&lists); err != nil {
		return nil, err
	}
	var inner, flat []component
	if lists[list] == nil {
		return nil, c.fail(errors.New("no " + list))
	}
	if err := json.Unmarshal(lists[list], &inner); err != nil {
		return nil, c.fail(err)
	}
	for i := range inner {
		steps, err := inner[i].steps(list)
		if err != nil {
			return nil, err
		}
		flat = append(flat, steps...)
	}
	return flat, nil
}
