package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
)

// maxDistributed bounds the bytes of a schema that Distribute makes.
const maxDistributed = 1 << 20

// Distribute returns an equal schema in which anyOf and oneOf stand alone: what stands beside them is in
// each of their branches. Versions of XGrammar, which vLLM and SGLang enforce schemas with, and the
// converter of llama.cpp look only at the branches. What cannot be merged stays as it is.
func Distribute(schema json.RawMessage) json.RawMessage {
	d := distributor{left: maxDistributed}
	if made := d.schema(schema, 0); d.changed && d.left >= 0 {
		return made
	}
	return schema
}

type distributor struct {
	left    int // bytes
	changed bool
}

// maxDistributeDepth bounds the nesting of schemas; deeper ones stay as they are.
const maxDistributeDepth = 64

// inSchema, inList and inNames are the keywords whose values are a schema, a list of schemas, and
// schemas by name.
var (
	inSchema = map[string]bool{"items": true, "additionalProperties": true, "not": true}
	inList   = map[string]bool{"prefixItems": true, "anyOf": true, "oneOf": true, "allOf": true}
	inNames  = map[string]bool{"properties": true, "patternProperties": true, "$defs": true, "definitions": true}
)

func (d *distributor) schema(raw json.RawMessage, depth int) json.RawMessage {
	all, err := members(raw)
	if err != nil || depth > maxDistributeDepth || d.left < 0 {
		return raw
	}
	for i, m := range all {
		switch {
		case inSchema[m.Key]:
			all[i].Value = d.schema(m.Value, depth+1)
		case inList[m.Key]:
			all[i].Value = d.list(m.Value, depth)
		case inNames[m.Key]:
			all[i].Value = d.names(m.Value, depth)
		}
	}
	if made := d.distribute(all); made != nil {
		return made
	}
	return objectOf(all)
}

func (d *distributor) list(raw json.RawMessage, depth int) json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return raw
	}
	for i := range list {
		list[i] = d.schema(list[i], depth+1)
	}
	return rawArray(list)
}

func (d *distributor) names(raw json.RawMessage, depth int) json.RawMessage {
	all, err := members(raw)
	if err != nil {
		return raw
	}
	for i := range all {
		all[i].Value = d.schema(all[i].Value, depth+1)
	}
	return objectOf(all)
}

func rawArray(list []json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, raw := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(raw)
	}
	b.WriteByte(']')
	return b.Bytes()
}

// outerKeywords stay beside a union: definitions, which references of the branches need, and
// annotations.
var outerKeywords = map[string]bool{"$defs": true, "definitions": true, "$schema": true, "$id": true, "id": true, "title": true, "description": true, "default": true, "examples": true}

// distribute returns a schema object with its keywords in the branches of its union, or nil if it has
// no union, or cannot be merged.
func (d *distributor) distribute(all []member) json.RawMessage {
	var kept []member
	beside := schemaObject{}
	name, branches := "", []json.RawMessage(nil)
	for _, m := range all {
		switch {
		case outerKeywords[m.Key]:
			kept = append(kept, m)
		case m.Key == "anyOf" || m.Key == "oneOf":
			if name != "" || json.Unmarshal(m.Value, &branches) != nil {
				return nil
			}
			name = m.Key
		case m.Key == "$ref" || m.Key == "allOf" || m.Key == "not":
			return nil
		default:
			beside[m.Key] = m.Value
		}
	}
	if name == "" || len(beside) == 0 {
		return nil
	}
	var merged []json.RawMessage
	for _, raw := range branches {
		made, err := beside.within(raw)
		if conflict, ok := errors.AsType[*mergeConflict](err); ok && (conflict.Keyword == "type" || conflict.Keyword == "enum") {
			continue // no value is valid under the branch
		}
		if d.left -= len(made); err != nil || d.left < 0 {
			return nil
		}
		merged = append(merged, made)
	}
	if len(merged) == 0 {
		return nil
	}
	d.changed = true
	return objectOf(append(kept, member{Key: name, Value: rawArray(merged)}))
}

var errCombines = errors.New("the branch combines schemas")

// within returns a branch of a union with o's keywords.
func (o schemaObject) within(branch json.RawMessage) (json.RawMessage, error) {
	if allowsAll(bytes.TrimSpace(branch)) {
		return o.Raw(), nil
	}
	all, err := members(branch)
	if err != nil {
		return nil, err
	}
	mine := schemaObject{}
	for _, m := range all {
		switch m.Key {
		case "$ref", "anyOf", "oneOf", "allOf", "not":
			return nil, errCombines
		default:
			mine[m.Key] = m.Value
		}
	}
	both := maps.Clone(o)
	if err := both.with(mine); err != nil {
		return nil, err
	}
	for _, own := range further {
		if both[own] != nil {
			return nil, errCombines
		}
	}
	return both.Raw(), nil
}
