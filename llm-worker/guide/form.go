package guide

import (
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/guide/grammar"
	"github.com/whence-dev/whence/llm-worker/guide/pattern"
	"github.com/whence-dev/whence/llm-worker/guide/schema"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A compiler compiles the forms of a guide.
type compiler struct {
	schemas  *schema.Compiler
	patterns pattern.Budget
	free     map[string]*grammar.DFA // by the text that ends it
	size     int                     // bytes of all schemas so far
	parts    int                     // parts so far
}

// form returns the grammar of a form.
func (c *compiler) form(f *llmv1.GuideForm) (*grammar.Symbol, error) {
	if err := c.check(f.GetBefore(), f.GetAfter(), f.GetSchema()); err != nil {
		return nil, err
	}
	value, err := c.value(f.GetSchema())
	if f.GetPattern() != "" {
		value, err = c.text(f)
	}
	if err != nil {
		return nil, err
	}
	all := []*grammar.Symbol{grammar.Literal(f.GetBefore()), value}
	for _, p := range f.GetParts() {
		if c.parts++; c.parts > maxParts {
			return nil, streamerr.InvalidParam(param, "a guide's forms must have at most %d parts together", maxParts)
		}
		part, err := c.part(p)
		if err != nil {
			return nil, err
		}
		if p.GetOptional() {
			part = grammar.Optional(part)
		}
		all = append(all, part)
	}
	return grammar.Sequence(append(all, grammar.Literal(f.GetAfter()))...), nil
}

// part returns the grammar of a part of a form.
func (c *compiler) part(p *llmv1.GuidePart) (*grammar.Symbol, error) {
	if err := c.check(p.GetBefore(), p.GetAfter(), p.GetSchema()); err != nil {
		return nil, err
	}
	before, after := grammar.Literal(p.GetBefore()), grammar.Literal(p.GetAfter())
	switch {
	case p.GetSchema() != "":
		value, err := c.value(p.GetSchema())
		return grammar.Sequence(before, value, after), err
	case len(p.GetTexts()) > 0:
		texts := slices.Sorted(slices.Values(p.GetTexts()))
		return grammar.Sequence(before, grammar.OneText(slices.Compact(texts)), after), nil
	}
	free, err := c.until(p.GetAfter())
	return grammar.Sequence(before, free), err
}

// value returns the grammar of a value; an empty schema has no value.
func (c *compiler) value(of string) (*grammar.Symbol, error) {
	if of == "" {
		return grammar.Sequence(), nil
	}
	value, err := c.schemas.Compile(of)
	if err != nil {
		return nil, streamerr.InvalidParam(param, "the guide's schema cannot be enforced: %v", err)
	}
	return value, nil
}

// text returns the grammar of the text of a form with a pattern.
func (c *compiler) text(f *llmv1.GuideForm) (*grammar.Symbol, error) {
	if f.GetSchema()+f.GetAfter() != "" || len(f.GetParts()) > 0 {
		return nil, streamerr.InvalidParam(param, "beside the pattern of a guide's form, there is a schema, a part or a text after it")
	}
	d, err := pattern.CompileText(f.GetPattern(), &c.patterns)
	if err != nil {
		return nil, streamerr.InvalidParam(param, "the guide's pattern cannot be enforced: %v", err)
	}
	return grammar.Run(d, 0, -1), nil
}

// until returns the grammar of anything up to the end of a text.
func (c *compiler) until(end string) (*grammar.Symbol, error) {
	if end == "" || len(end) > maxFree {
		return nil, streamerr.InvalidParam(param, "the text that ends a free part of a guide must have 1 to %d bytes, not %d", maxFree, len(end))
	}
	if c.free[end] == nil {
		c.free[end] = freeText(end)
	}
	return grammar.Run(c.free[end], 0, -1), nil
}

// check bounds a schema and the text around it.
func (c *compiler) check(before, after, schema string) error {
	if len(before) > maxText || len(after) > maxText || len(schema) > maxSchema {
		return streamerr.InvalidParam(param, "a guide's schema must have at most %d bytes, and the text around it %d", maxSchema, maxText)
	}
	if c.size += len(schema); c.size > maxSchemas {
		return streamerr.InvalidParam(param, "a guide's schemas must have at most %d bytes together", maxSchemas)
	}
	return nil
}
