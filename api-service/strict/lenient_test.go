package strict_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// knows is a table of bodies with nested fields.
var knows = strict.Table[*string]{Honoured: map[string]strict.Setter[*string]{
	"list": func(_ *string, param string, raw json.RawMessage) error {
		items, err := strict.Array(param, raw)
		for i, item := range items {
			if err != nil {
				break
			}
			var fields map[string]json.RawMessage
			at := param + "[" + string(rune('0'+i)) + "]"
			if fields, err = strict.Object(at, item); err == nil {
				err = strict.Only(at, fields, "type", "in")
			}
			if in, ok := fields["in"]; err == nil && ok {
				if fields, err = strict.Object(at+".in", in); err == nil {
					err = strict.Only(at+".in", fields, "a")
				}
			}
		}
		return err
	},
}}

func TestLenientLeavesOutTheNamedFields(t *testing.T) {
	parse := func(body []byte) (string, error) {
		text := string(body)
		fields, err := strict.Fields(body)
		if err == nil {
			err = knows.Parse(fields, &text, nil)
		}
		return text, err
	}
	both := []string{"list[].x", "list[].in.y"}
	for body, test := range map[string]struct {
		names []string
		want  string // the body that is accepted
		param string // the field that is refused
	}{
		`{"list":[{"type":1}]}`: {nil, `{"list":[{"type":1}]}`, ""},
		`{"list":[{"x":1}]}`:    {nil, "", "list[0].x"},
		`{"list":[{"type":1},{"x":{"x":[1,"]}"]},"type":1},{"type":2,"x":0}]}`: {both, `{"list":[{"type":1},{"type":1},{"type":2}]}`, ""},
		`{ "list": [ { "x": 1 , "in": { "y": null, "a": "\u00e9" } } ] }`:      {both, `{ "list": [ { "in": { "a": "\u00e9" } } ] }`, ""},
		`{"list":[{"x":1,"x":2,"type":1,"x":3}]}`:                              {both, "", "list[0].x"},
		`{"list":[{"x":1,"z":2}]}`:                                             {both, "", "list[0].z"},
		`{"list":[{"x":1}],"x":1}`:                                             {both, "", "x"},
		`{"list":[{"type":1}]} `:                                               {[]string{"list[].type"}, `{"list":[{"type":1}]} `, ""},
		`{"list":7}`:                                                           {[]string{"list"}, "", "list"},
	} {
		got, err := strict.Lenient([]byte(body), test.names, parse)
		if test.param == "" && (err != nil || spaceless(t, got) != spaceless(t, test.want)) {
			t.Errorf("%s becomes %s, want %s: %v", body, got, test.want, err)
		}
		if test.param != "" && (err == nil || streamerr.As(err).Param != test.param) {
			t.Errorf("%s: %v, want a refusal of %s", body, err, test.param)
		}
	}
}

func spaceless(t *testing.T, body string) string {
	t.Helper()
	v, err := strict.Compact("body", json.RawMessage(body))
	if err != nil {
		t.Error(err)
	}
	return v
}

// FuzzLenient compares bodies without the members a[].x with the results of encoding/json.
func FuzzLenient(f *testing.F) {
	for _, s := range []string{`{"a":[{"x":1},{"b":2,"x":[{}]}]}`, `{"a":{"x":1}}`, `{"a":[[{"x":1}]],"x":{"x":1}}`, `{"a":[{"x":1,"x":2}]}`, `{"a":[{"x":1,"b":"\"x\":"} , {"b":0 , "x" : 1 }]}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var want any
		if json.Unmarshal([]byte(body), &want) != nil {
			return
		}
		calls := 0
		shorter, err := strict.Lenient([]byte(body), []string{"a[].x"}, func(b []byte) (string, error) {
			if calls++; calls == 1 {
				return string(b), streamerr.InvalidParam("a[7].x", "no").WithCode(streamerr.CodeUnknownField)
			}
			return string(b), nil
		})
		if err != nil {
			return // there is no such member
		}
		if object, ok := want.(map[string]any); ok {
			items, _ := object["a"].([]any)
			for _, item := range items {
				if fields, ok := item.(map[string]any); ok {
					delete(fields, "x")
				}
			}
		}
		var got any
		if err := json.Unmarshal([]byte(shorter), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s becomes %s: %v", body, shorter, err)
		}
	})
}
