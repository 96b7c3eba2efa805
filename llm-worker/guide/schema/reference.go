package schema

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

// ref compiles a reference to another part of the document, which may contain the reference itself.
func (c *Compiler) ref(s schema, raw json.RawMessage) (*grammar.Symbol, error) {
	pointer, target, err := c.resolve(s.node, raw)
	if err != nil {
		return nil, err
	}
	if known := c.refs[pointer]; known != nil {
		return known, nil
	}
	one := grammar.Choice()
	c.refs[pointer] = one // before the target is compiled, because the target may refer to itself
	part, err := c.schema(node{target, &place{root: pointer}, s.depth + 1})
	if err != nil {
		return nil, err
	}
	one.Or(part)
	return one, nil
}

// maxPointer is the maximum length of a reference, in bytes.
const maxPointer = 1 << 11

// resolve returns what a reference points to, and the reference as a JSON pointer.
func (c *Compiler) resolve(n node, raw json.RawMessage) (pointer string, target json.RawMessage, err error) {
	if json.Unmarshal(raw, &pointer) != nil || !strings.HasPrefix(pointer, "#") || len(pointer) > maxPointer {
		return "", nil, n.wrong("$ref", "it is %.64s, and must be a JSON pointer into the schema", raw)
	}
	if plain, err := url.PathUnescape(pointer); err == nil {
		pointer = plain
	}
	target, ok := c.at(pointer)
	if !ok {
		return "", nil, n.wrong("$ref", "the schema has no %.64q", pointer)
	}
	return pointer, target, nil
}

// at returns what a JSON pointer points to.
func (c *Compiler) at(pointer string) (json.RawMessage, bool) {
	cut := strings.LastIndexByte(pointer, '/')
	if cut < 0 {
		return c.root, pointer == "#"
	}
	around, name := pointer[:cut], pointerUnescape.Replace(pointer[cut+1:])
	inside, known := c.members[around]
	if !known {
		target, ok := c.at(around)
		if !ok {
			return nil, false
		}
		inside = map[string]json.RawMessage{}
		var list []json.RawMessage
		if all, err := members(target); err == nil {
			for _, m := range all {
				inside[m.Key] = m.Value
			}
		} else if json.Unmarshal(target, &list) == nil {
			for i, value := range list {
				inside[strconv.Itoa(i)] = value
			}
		}
		c.members[around] = inside
	}
	target, ok := inside[name]
	return target, ok
}
