package schema

import (
	"encoding/json"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
	"github.com/whence-dev/whence/llm-worker/guide/pattern"
)

// formatOf returns the enforced format of a schema, or nil.
func formatOf(s schema) *format {
	var name string
	if json.Unmarshal(s.is["format"], &name) != nil {
		return nil
	}
	return formatNamed(name)
}

// conditions returns the patterns and the enforced formats of a schema, and the keyword that has them.
func (s schema) conditions() (all []pattern.Condition, keyword string, err error) {
	for _, name := range []string{"format", "pattern"} {
		var more []json.RawMessage
		if json.Unmarshal(s.is[further[name]], &more) != nil {
			more = nil
		}
		if raw, ok := s.is[name]; ok {
			more = append(more, raw)
		}
		for _, raw := range more {
			var text string
			known := json.Unmarshal(raw, &text) == nil
			if name == "format" {
				form := formatNamed(text)
				if known = known && form != nil; !known {
					continue // an annotation
				}
				text = form.Expression
			}
			if keyword = name; !known {
				return nil, keyword, s.wrong(name, "it must be a string")
			}
			all = append(all, pattern.Condition{Expression: text})
		}
	}
	return all, keyword, nil
}

// text matches the strings that are valid under a schema.
func (c *Compiler) text(s schema) (*grammar.Symbol, error) {
	least, most, err := bounds(s, "minLength", "maxLength")
	if err != nil {
		return nil, err
	}
	all, keyword, err := s.conditions()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return quoted(grammar.Run(grammar.Characters, least, most)), nil
	}
	var d *grammar.DFA
	if form := formatOf(s); len(all) == 1 && form != nil && least == 0 && most < 0 {
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
