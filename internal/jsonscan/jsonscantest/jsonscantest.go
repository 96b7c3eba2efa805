// Package jsonscantest compares what a Scanner reads with what encoding/json reads.
package jsonscantest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// Fuzz compares scan, which reads an object into an empty T, with encoding/json. usual are objects that scan
// must accept, and that together have every field of T: a field that scan does not know would be
// skipped without a sign.
func Fuzz[T any](f *testing.F, scan func(into *T, data []byte) bool, usual ...string) {
	f.Helper()
	for _, data := range usual {
		if !scan(new(T), []byte(data)) {
			f.Errorf("%s is left to encoding/json", data)
		}
		f.Add([]byte(data))
	}
	for _, name := range names(reflect.TypeFor[T](), nil) {
		if !strings.Contains(strings.Join(usual, ""), `"`+name+`":`) {
			f.Errorf("no usual object has %q", name)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want T
		if !scan(&got, data) {
			return
		}
		if err := json.Unmarshal(data, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q\ngot  %+v\nwant %+v, %v", data, got, want, err)
		}
	})
}

// names returns the names of the members that encoding/json reads into a type, at any depth.
func names(t reflect.Type, outer []reflect.Type) (all []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	for _, o := range outer {
		if o == t {
			return nil
		}
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for field := range t.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			all = append(append(all, name), names(field.Type, append(outer, t))...)
		}
	}
	return all
}
