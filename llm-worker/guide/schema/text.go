package schema

import (
	"encoding/json"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
	"github.com/whence-dev/whence/llm-worker/guide/pattern"
	"github.com/whence-dev/whence/llm-worker/guide/schema/format"
)

// formatOf returns the enforced format of a schema, or nil.
func formatOf(s schema) *format.Format {
	var name string
	if json.Unmarshal(s.is["format"], &name) != nil {
		return nil
	}
	return format.Named(name)
}

// text matches the strings that are valid under a schema.
func (c *Compiler) text(s schema) (*grammar.Symbol, error) {
	least, most, err := bounds(s, "minLength", "maxLength")
	if err != nil {
		return nil, err
	}
	expression, form := s.is["pattern"], formatOf(s)
	if expression == nil && form == nil {
		return quoted(grammar.Run(grammar.Characters, least, most)), nil
	}
	var all []pattern.Condition
	keyword := "format"
	if form != nil {
		all = append(all, pattern.Condition{Expression: form.Expression})
	}
	if expression != nil {
		var text string
		if keyword = "pattern"; json.Unmarshal(expression, &text) != nil {
			return nil, s.wrong(keyword, "it must be a string")
		}
		all = append(all, pattern.Condition{Expression: text})
	}
	var d *grammar.DFA
	if expression == nil && least == 0 && most < 0 {
		d, err = form.DFA()
	} else {
		d, err = pattern.Compile(all, least, most, &c.patterns)
	}
	if err != nil {
		return nil, s.wrong(keyword, "%v", err)
	}
	one, err := c.run(s, d)
	if err == nil && one == nil {
		err = s.wrong(keyword, "no text is valid under it and the keywords beside it")
	}
	return one, err
}

// run matches the strings of a DFA. It returns nil if there are none.
func (c *Compiler) run(s schema, d *grammar.DFA) (*grammar.Symbol, error) {
	if err := c.take(s.node, d.States()/patternStates); err != nil {
		return nil, err
	}
	if d.Need(grammar.Start, 0) >= grammar.Endless {
		return nil, nil //nolint:nilnil // see above
	}
	return quoted(grammar.Run(d, 0, -1)), nil
}
