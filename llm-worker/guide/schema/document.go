package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// A member is one member of a JSON object.
type member struct {
	Key   string
	Value json.RawMessage
}

// members returns the members of an object, in its order. An empty array has none: PHP writes an
// empty object so.
func members(raw json.RawMessage) ([]member, error) {
	if len(raw) > 1 && raw[0] == '[' && len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.Join(errors.New("it is not an object"), err)
	}
	var all []member
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{}
		m.Key, _ = key.(string)
		if seen[m.Key] {
			return nil, fmt.Errorf("the member %.64q occurs twice", m.Key)
		}
		if err := dec.Decode(&m.Value); err != nil {
			return nil, err
		}
		seen[m.Key] = true
		all = append(all, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("there is more text after it")
	}
	return all, nil
}

// canonical returns a value in the form in which it is generated: without white space, and with no
// more escapes than necessary.
func canonical(raw json.RawMessage) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", err
	}
	return plainJSON(v)
}

// plainJSON returns v as JSON with the necessary escapes only: encoding/json also escapes &, <, >
// and two line separators, which models write literally.
func plainJSON(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	// A backslash of the text is doubled here, so each pair is skipped as a whole.
	return strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSuffix(b.String(), "\n")), nil
}

// objectOf returns an object with these members, in this order.
func objectOf(all []member) json.RawMessage {
	b := []byte("{")
	for i, m := range all {
		if i > 0 {
			b = append(b, ',')
		}
		key, _ := json.Marshal(m.Key) // a string is always encodable
		b = append(append(append(b, key...), ':'), m.Value...)
	}
	return append(b, '}')
}
