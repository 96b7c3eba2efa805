package strict_test

import (
	"encoding/json"
	"slices"
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
	if err := strict.Each(fields, &read, setters); err != nil || !slices.Equal(read, []string{"a", "b", "c"}) {
		t.Error(read, err)
	}
	delete(setters, "n") // even if it says nothing
	if err := strict.Each(fields, &read, setters); err == nil || streamerr.As(err).Param != "n" {
		t.Error(err)
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
		var exact []int64
		good := json.Unmarshal([]byte(s), &exact) == nil && exact != nil && !slices.ContainsFunc(exact, func(id int64) bool { return id < 0 || id > 1<<31-1 })
		if good && err == nil && len(ids) != len(exact) || err == nil && !good {
			t.Errorf("%s: %v, %v", s, ids, err)
		}
	})
}

func TestMembersThatNobodyKnowsAreRefusedInTheOrderOfTheirNames(t *testing.T) {
	fields := map[string]json.RawMessage{"type": nil, "zeta": nil, "beta": nil}
	if err := strict.Only("p", fields, "type"); streamerr.As(err).Param != "p.beta" {
		t.Error(err)
	}
	if err := strict.Only("p", fields, "type", "zeta", "beta"); err != nil {
		t.Error(err)
	}
}
