package strict_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestNullIsNoValue(t *testing.T) {
	null := json.RawMessage("null")
	for name, err := range map[string]error{
		"integer": second(strict.Integer("p", null, 0, 9)), "number": second(strict.Number("p", null, 0, 9)), "boolean": second(strict.Boolean("p", null)),
		"string": second(strict.String("p", null)), "array": second(strict.Array("p", null)), "object": second(strict.Object("p", null)),
		"ids": second(strict.IDs("p", json.RawMessage("[1,null]"))), "strings": second(strict.Strings("p", json.RawMessage(`["a",null]`))),
	} {
		if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param[0] != 'p' {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestFieldsAreReadInTheOrderOfTheirNames(t *testing.T) {
	fields, err := strict.Fields([]byte(`{"c":1,"a":1,"n":null,"b":1}`))
	if err != nil {
		t.Fatal(err)
	}
	var read []string
	note := func(all *[]string, param string, _ json.RawMessage) error { *all = append(*all, param); return nil }
	setters := map[string]func(*[]string, string, json.RawMessage) error{"a": note, "b": note, "c": note, "n": note}
	if err := strict.Each(fields, &read, nil, setters); err != nil || !slices.Equal(read, []string{"a", "b", "c"}) {
		t.Error(read, err)
	}
	delete(setters, "a")
	if err := strict.Each(fields, &read, &strict.Reading{Strict: true}, setters); err == nil || streamerr.As(err).Param != "a" {
		t.Error(err)
	}
}

func TestHintsOfAWrongTypeAreLeftOut(t *testing.T) {
	text := func(to *string, param string, raw json.RawMessage) (err error) {
		*to, err = strict.String(param, raw)
		return err
	}
	table := strict.Table[*string]{Honoured: map[string]strict.Setter[*string]{"hint": text, "load": text}, Hints: []string{"hint"}}
	for body, want := range map[string]struct{ left, refused string }{
		`{"hint":7}`: {left: "hint"}, `{"hint":{"a":1},"load":"x"}`: {left: "hint"}, `{"hint":"x"}`: {}, `{"hint":7,"load":7}`: {left: "hint", refused: "load"},
	} {
		fields, err := strict.Fields([]byte("\ufeff" + body)) // as PowerShell writes it
		if err != nil {
			t.Fatal(err)
		}
		in := &strict.Reading{}
		err = table.Parse(fields, new(string), in)
		if (err != nil) != (want.refused != "") || err != nil && streamerr.As(err).Param != want.refused || in.Header() != want.left {
			t.Errorf("%s: %v, without %q", body, err, in.Header())
		}
		if err = table.Parse(fields, new(string), &strict.Reading{Strict: true}); (err != nil) != (want.left != "") {
			t.Errorf("%s, strict: %v", body, err)
		}
	}
}

func TestStopsAreTexts(t *testing.T) {
	for raw, want := range map[string][]string{`"a"`: {"a"}, `["a","",null,"b"]`: {"a", "b"}, `""`: nil, `[]`: nil, `[null]`: nil} {
		if got, err := strict.Stops("stop", json.RawMessage(raw)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", raw, got, err)
		}
	}
	for raw, param := range map[string]string{`5`: "stop", `["a",5]`: "stop[1]", `{"a":"b"}`: "stop", `[[]]`: "stop[0]"} {
		if _, err := strict.Stops("stop", json.RawMessage(raw)); err == nil || streamerr.As(err).Param != param {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func FuzzIDs(f *testing.F) {
	for _, s := range []string{`[1,2]`, `[]`, `[1.0]`, `[-1]`, `[4294967296]`, `["1"]`, `{}`, `[1e2]`, `[ 3 ]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !json.Valid([]byte(s)) || s == "" {
			return
		}
		ids, err := strict.IDs("p", json.RawMessage(s))
		var exact []float64
		if s[0] == '{' && strict.Empty([]byte(s)) {
			s = "[]"
		}
		good := json.Unmarshal([]byte(s), &exact) == nil && exact != nil && !slices.ContainsFunc(exact, func(id float64) bool { return id < 0 || id > 1<<31-1 || id != math.Trunc(id) })
		if good && err == nil && len(ids) != len(exact) || err == nil && !good {
			t.Errorf("%s: %v, %v", s, ids, err)
		}
	})
}

// FuzzScan compares objects and arrays with the results of encoding/json.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		`{}`, ` { } `, `{"a":1,"b":[1,{"c":"\u00e9\n"}],"a":-0.5e+3}`, `{"\u0061":null,"\ud800":true}`, `{"a":01}`, `{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{a:1}`,
		`[]`, `[1]x`, `[1,,2]`, `[,1]`, `[1,]`, `["\x"]`, `["` + "\n" + `"]`, `[-]`, `[1.]`, `[.5]`, `[1e]`, `[tru]`, `[nul`, `["a`, `["\u12`, `["\`, `[[[]]]`, `{"a":{"b":{}}}`,
		`{"a` + "\xff" + `":"` + "\xff" + `"}`, strings.Repeat("[", 300) + strings.Repeat("]", 300), strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300), `null`, ` "a" `, ``,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw := json.RawMessage(s)
		var fields map[string]json.RawMessage
		good := json.Unmarshal(raw, &fields) == nil && fields != nil && !repeats(raw)
		if strings.HasPrefix(s, "[") && strict.Empty(raw) {
			good, fields = true, nil
		}
		if got, err := strict.Object("p", raw); (err == nil) != good || good && !maps.EqualFunc(got, fields, sameJSON) {
			t.Errorf("object %q: %q, %v; want %q", s, got, err, fields)
		}
		var items []json.RawMessage
		good = json.Unmarshal(raw, &items) == nil && items != nil
		if strings.HasPrefix(s, "{") && strict.Empty(raw) {
			good, items = true, nil
		}
		if got, err := strict.Array("p", raw); (err == nil) != good || good && !slices.EqualFunc(got, items, sameJSON) {
			t.Errorf("array %q: %q, %v; want %q", s, got, err, items)
		}
	})
}

// repeats reports whether an object has two members of one name.
func repeats(object json.RawMessage) bool {
	dec := json.NewDecoder(bytes.NewReader(object))
	_, _ = dec.Token()
	for known := map[string]bool{}; dec.More(); {
		token, err := dec.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil || known[name] {
			return err == nil && known[name]
		}
		known[name] = true
	}
	return false
}

func TestNestingIsBounded(t *testing.T) {
	object := func(depth int) []byte {
		return []byte(`{"a\"[":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + "}")
	}
	if _, err := strict.Fields(object(strict.MaxNesting)); err != nil {
		t.Error(err)
	}
	for _, body := range [][]byte{object(strict.MaxNesting + 1), []byte(`{"a":` + strings.Repeat("[", 1<<20))} {
		if _, err := strict.Fields(body); err == nil || !strings.Contains(err.Error(), "nest deeper than 200") {
			t.Errorf("%.20s: %v", body, err)
		}
	}
}

func sameJSON(a, b json.RawMessage) bool { return string(a) == string(b) }

// FuzzScalars compares strings, numbers and booleans in an array with the results of encoding/json.
func FuzzScalars(f *testing.F) {
	for _, s := range []string{
		`"a"`, `"\u00e9\ud83d\ude00\ud800"`, `"\"\\\/\b\f\n\r\t"`, `""`, "\"\xff\"", `0`, `-0`, `9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `1.0`, `1e2`, `1e400`, `-1.5E-3`,
		`true`, `false`, `null`, `{}`, `[]`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		items, err := strict.Array("p", json.RawMessage("["+s+"]"))
		if err != nil || len(items) != 1 || strict.Null(items[0]) {
			return
		}
		raw := items[0]
		compare(t, raw, strict.String)
		compare(t, raw, strict.Boolean)
		var want float64
		good := json.Unmarshal(raw, &want) == nil
		written := raw
		if good && want == math.Trunc(want) && math.Abs(want) <= 1<<53 { // 8.0 is 8
			written = strconv.AppendInt(nil, int64(want), 10)
		}
		compare(t, written, func(string, json.RawMessage) (int64, error) {
			return strict.Integer("p", raw, math.MinInt64, math.MaxInt64)
		})
		if got, err := strict.Number("p", raw, -math.MaxFloat64, math.MaxFloat64); (err == nil) != good || good && got != float32(want) {
			t.Errorf("%s: %v, %v; want %v", raw, got, err, want)
		}
	})
}

// compare compares the result of parse for raw with that of encoding/json.
func compare[T comparable](t *testing.T, raw json.RawMessage, parse func(param string, raw json.RawMessage) (T, error)) {
	t.Helper()
	var want T
	good := json.Unmarshal(raw, &want) == nil
	if got, err := parse("p", raw); (err == nil) != good || good && got != want {
		t.Errorf("%s: %v, %v; want %v", raw, got, err, want)
	}
}
