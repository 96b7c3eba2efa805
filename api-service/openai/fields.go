package openai

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// mismatch says that a field has the wrong type.
func mismatch(param, want string, raw json.RawMessage) error {
	return streamerr.InvalidParam(param, "%s must be %s; got %s", param, want, kindOf(raw))
}

func kindOf(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return fmt.Sprintf("the number %.40s", raw)
	}
}

func object(param string, raw json.RawMessage) (map[string]json.RawMessage, error) {
	var v map[string]json.RawMessage
	if json.Unmarshal(raw, &v) != nil || v == nil {
		return nil, mismatch(param, "an object", raw)
	}
	return v, nil
}

func array(param string, raw json.RawMessage) ([]json.RawMessage, error) {
	var v []json.RawMessage
	if json.Unmarshal(raw, &v) != nil || v == nil {
		return nil, mismatch(param, "an array", raw)
	}
	return v, nil
}

func text(param string, raw json.RawMessage) (string, error) {
	var v string
	if raw[0] != '"' || json.Unmarshal(raw, &v) != nil {
		return "", mismatch(param, "a string", raw)
	}
	return v, nil
}

// member reads a string that an object must have.
func member(param, name string, fields map[string]json.RawMessage) (string, error) {
	raw, ok := fields[name]
	if !ok {
		return "", streamerr.InvalidParam(param+"."+name, "%s.%s is missing", param, name)
	}
	return text(param+"."+name, raw)
}

func boolean(param string, raw json.RawMessage) (bool, error) {
	var v bool
	if json.Unmarshal(raw, &v) != nil {
		return false, mismatch(param, "a boolean", raw)
	}
	return v, nil
}

// number reads a number of [low, high].
func number(param string, raw json.RawMessage, low, high float64) (float32, error) {
	var v float64
	if json.Unmarshal(raw, &v) != nil {
		return 0, mismatch(param, "a number", raw)
	}
	if v < low || v > high {
		return 0, streamerr.InvalidParam(param, "%s is %v; it must be from %v to %v", param, v, low, high)
	}
	return float32(v), nil
}

// integer reads an integer of [low, high].
func integer(param string, raw json.RawMessage, low, high int64) (int64, error) {
	var v int64
	if json.Unmarshal(raw, &v) != nil {
		return 0, mismatch(param, "an integer", raw)
	}
	if v < low || v > high {
		return 0, streamerr.InvalidParam(param, "%s is %d; it must be from %d to %d", param, v, low, high)
	}
	return v, nil
}

func count(param string, raw json.RawMessage, low int64) (*uint32, error) {
	v, err := integer(param, raw, low, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	n := uint32(v)
	return &n, nil
}
