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

// Bounds of the JSON of a Sequence, in bytes and levels, because each level is read again. Those of
// models have less than 10 KB and one level.
const (
	maxSequence = 1 << 20
	maxNested   = 8
)

// steps returns the steps of c: none if c is nil, the steps of its list if c is a Sequence,
// otherwise c itself.
func (c *component) steps(list string) ([]component, error) { return c.stepsAt(list, 0) }

func (c *component) stepsAt(list string, depth int) ([]component, error) {
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
	if len(c.raw) > maxSequence || depth == maxNested {
		return nil, c.fail(fmt.Errorf("the steps have more than %d bytes or %d levels", maxSequence, maxNested))
	}
	var inner, flat []component
	if lists[list] == nil {
		return nil, c.fail(errors.New("no " + list))
	}
	if err := json.Unmarshal(lists[list], &inner); err != nil {
		return nil, c.fail(err)
	}
	for i := range inner {
		steps, err := inner[i].stepsAt(list, depth+1)
		if err != nil {
			return nil, err
		}
		if flat = append(flat, steps...); len(flat) > maxSteps {
			return nil, c.fail(fmt.Errorf("there are more than %d steps", maxSteps))
		}
	}
	return flat, nil
}
