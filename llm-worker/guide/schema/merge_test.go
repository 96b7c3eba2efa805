package schema

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func objects(t *testing.T, all []string) (parsed []schemaObject) {
	t.Helper()
	for _, text := range all {
		var o schemaObject
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(text, err)
		}
		parsed = append(parsed, o)
	}
	return parsed
}

func TestObjectsAreIntersected(t *testing.T) {
	for _, test := range []struct {
		all  []string
		want string
	}{
		{nil, `{}`},
		{[]string{`{"type":["integer","string"]}`, `{"type":["null","number"]}`}, `{"type":["integer"]}`},
		{[]string{`{"minimum":1,"maxLength":5}`, `{"minimum":2,"maxLength":9}`, `{"minimum":1.5}`}, `{"maxLength":5,"minimum":2}`},
		{[]string{`{"enum":[1,"a",{"x":1,"y":2}]}`, `{"enum":[{"y":2,"x":1},"a"]}`}, `{"enum":["a",{"x":1,"y":2}]}`},
		{[]string{`{"const":null}`, `{"enum":[1,null]}`}, `{"enum":[null]}`},
		{[]string{`{"required":["b","a"]}`, `{"required":["a","c"]}`}, `{"required":["b","a","c"]}`},
		{[]string{`{"properties":{"b":{},"a":{"type":"null"}}}`, `{"properties":{"a":{"maximum":1},"c":false}}`}, `{"properties":{"b":{},"a":{"allOf":[{"type":"null"},{"maximum":1}]},"c":false}}`},
		// A property that one schema does not name is one of its additional properties.
		{[]string{`{"properties":{"a":{"maximum":1}}}`, `{"additionalProperties":{"type":"integer"}}`}, `{"additionalProperties":{"type":"integer"},"properties":{"a":{"allOf":[{"maximum":1},{"type":"integer"}]}}}`},
		{[]string{`{"properties":{"a":{}},"additionalProperties":false}`, `{"properties":{"a":{},"b":{}}}`}, `{"additionalProperties":false,"properties":{"a":{},"b":false}}`},
		{[]string{`{"items":{"type":"null"}}`, `{"items":true,"minItems":2}`}, `{"items":{"type":"null"},"minItems":2}`},
		{[]string{`{"pattern":"a"}`, `{"pattern":"\u0061"}`}, `{"pattern":"\u0061"}`},
		{[]string{`{"pattern":"a"}`, `{"pattern":"b","format":"date"}`, `{"pattern":"a","format":"uuid"}`}, `{"format":"uuid","format and":["date"],"pattern":"a","pattern and":["b"]}`},
		{[]string{`{"propertyNames":{"maxLength":3}}`, `{"propertyNames":{"pattern":"a"}}`}, `{"propertyNames":{"allOf":[{"maxLength":3},{"pattern":"a"}]}}`},
	} {
		got, err := intersectObjects(objects(t, test.all))
		if err != nil || string(got.Raw()) != test.want {
			t.Errorf("%q: %s, %v; want %s", test.all, got.Raw(), err, test.want)
		}
	}
}

func TestConflictsNameTheKeyword(t *testing.T) {
	for keyword, all := range map[string][]string{
		"type":              {`{"type":"string"}`, `{"type":["null","integer"]}`},
		"enum":              {`{"enum":[1]}`, `{"const":2}`},
		"multipleOf":        {`{"multipleOf":3}`, `{"multipleOf":5}`},
		"prefixItems":       {`{"items":{}}`, `{"prefixItems":[{}]}`},
		"patternProperties": {`{"additionalProperties":false}`, `{"patternProperties":{"a":{}}}`},
		"properties":        {`{"properties":{}}`, `{"properties":[1]}`},
		"required":          {`{"required":["a"]}`, `{"required":"a"}`},
	} {
		_, err := intersectObjects(objects(t, all))
		if conflict, ok := errors.AsType[*mergeConflict](err); !ok || conflict.Keyword != keyword || conflict.Problem == "" {
			t.Errorf("%q: %v", all, err)
		}
	}
}

// TestUnionsStandAlone has schemas as servers get them, whose validators may look only at the branches.
func TestUnionsStandAlone(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"a":{"type":"integer"},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`: `{"anyOf":[{"properties":{"a":{"type":"integer"},"b":{}},"required":["a"],"type":"object"},{"properties":{"a":{"type":"integer"},"b":{}},"required":["b"],"type":"object"}]}`,
		`{"$defs":{"x":{"type":["object","null"],"oneOf":[{"type":"null"},{"type":"string"},true]}},"$ref":"#/$defs/x"}`: `{"$defs":{"x":{"oneOf":[{"type":["null"]},{"type":["object","null"]}]}},"$ref":"#/$defs/x"}`,
		`{"items":{"minimum":1,"anyOf":[{"maximum":3},{"minimum":5}]}}`:                                                  `{"items":{"anyOf":[{"maximum":3,"minimum":1},{"minimum":5}]}}`,
		`{"type":"object","anyOf":[{"$ref":"#/x"},{}]}`:                                                                  `{"type":"object","anyOf":[{"$ref":"#/x"},{}]}`,
		`{"pattern":"a","anyOf":[{"pattern":"b"}]}`:                                                                      `{"pattern":"a","anyOf":[{"pattern":"b"}]}`,
		`{"type":"string","anyOf":[{"type":"null"}]}`:                                                                    `{"type":"string","anyOf":[{"type":"null"}]}`,
		`{"anyOf":[{"type":"null"}],"title":"T"}`:                                                                        `{"anyOf":[{"type":"null"}],"title":"T"}`,
		`true`: `true`,
	} {
		if got := string(Distribute(json.RawMessage(schema))); got != want {
			t.Errorf("%s becomes\n%s, want\n%s", schema, got, want)
		}
	}
	if big := `{"minimum":1,"pattern":"` + strings.Repeat("x", 1<<16) + `","anyOf":[` + strings.Repeat("true,", 100) + `true]}`; string(Distribute(json.RawMessage(big))) != big {
		t.Error("a schema of 64 KiB becomes one of 6 MiB")
	}
}
