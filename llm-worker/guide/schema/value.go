package schema

import (
	"encoding/json"
	"math"
	"slices"
)

// isOfType reports whether a value that encoding/json has decoded is of a type of JSON Schema.
func isOfType(v any, kind string) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case []any:
		return kind == "array"
	case float64:
		return kind == "number" || kind == "integer" && v == math.Trunc(v)
	default:
		return kind == "object"
	}
}

// distinct returns the values that are not equal to one before. Two texts may be the same number.
func distinct(texts []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(texts, func(text string) bool {
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return false
		}
		equal, err := json.Marshal(v)
		again := err == nil && seen[string(equal)]
		seen[string(equal)] = true
		return again
	})
}
