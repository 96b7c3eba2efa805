package guide

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// violates returns the part of a schema that a value violates, or "". It shares no code with
// guides.
func violates(t testing.TB, schema, value string) string {
	t.Helper()
	var s, v any
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(value), &v); err != nil {
		t.Fatal(err)
	}
	return check(s, s, v)
}

func check(root, schema, v any) string {
	s, ok := schema.(map[string]any)
	if !ok {
		if schema == false {
			return "nothing is valid"
		}
		return ""
	}
	if ref, ok := s["$ref"].(string); ok {
		target := root
		for _, name := range strings.Split(ref, "/")[1:] {
			target = target.(map[string]any)[name]
		}
		return check(root, target, v)
	}
	if list, ok := s["enum"].([]any); ok && !slices.ContainsFunc(list, func(e any) bool { return reflect.DeepEqual(e, v) }) {
		return "enum"
	}
	if c, ok := s["const"]; ok && !reflect.DeepEqual(c, v) {
		return "const"
	}
	for _, part := range items(s["allOf"]) {
		if c := check(root, part, v); c != "" {
			return c
		}
	}
	if list := items(s["anyOf"]); len(list) > 0 && !slices.ContainsFunc(list, func(part any) bool { return check(root, part, v) == "" }) {
		return "anyOf"
	}
	if types, ok := s["type"]; ok {
		list := items(types)
		if one, ok := types.(string); ok {
			list = []any{one}
		}
		if !slices.ContainsFunc(list, func(kind any) bool { return isOf(v, kind.(string)) }) {
			return fmt.Sprint("type ", types)
		}
	}
	return checkKind(root, s, v)
}

func checkKind(root any, s map[string]any, v any) string {
	limit := func(name string, holds func(bound float64) bool) string {
		if bound, ok := s[name].(float64); ok && !holds(bound) {
			return name
		}
		return ""
	}
	var found []string
	switch v := v.(type) {
	case float64:
		found = append(found, limit("minimum", func(b float64) bool { return v >= b }), limit("maximum", func(b float64) bool { return v <= b }),
			limit("exclusiveMinimum", func(b float64) bool { return v > b }), limit("exclusiveMaximum", func(b float64) bool { return v < b }))
	case string:
		n := float64(utf8.RuneCountInString(v))
		found = append(found, limit("minLength", func(b float64) bool { return n >= b }), limit("maxLength", func(b float64) bool { return n <= b }))
	case []any:
		n := float64(len(v))
		found = append(found, limit("minItems", func(b float64) bool { return n >= b }), limit("maxItems", func(b float64) bool { return n <= b }))
		for _, item := range v {
			found = append(found, check(root, s["items"], item))
		}
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		for name, value := range v {
			if p, ok := properties[name]; ok {
				found = append(found, check(root, p, value))
			} else {
				found = append(found, check(root, s["additionalProperties"], value))
			}
		}
		for _, name := range items(s["required"]) {
			if _, ok := v[name.(string)]; !ok {
				found = append(found, "required "+name.(string))
			}
		}
	}
	return strings.Join(slices.DeleteFunc(found, func(s string) bool { return s == "" }), ", ")
}

func items(v any) []any {
	list, _ := v.([]any)
	return list
}
