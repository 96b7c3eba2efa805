package jsonscan_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/jsonscan"
	"github.com/whence-dev/whence/internal/jsonscan/jsonscantest"
)

// fields has a field of each type that a Scanner reads.
type fields struct {
	Bool    bool            `json:"bool"`
	Int     int             `json:"int"`
	Uint32  uint32          `json:"uint32"`
	Uint32s []uint32        `json:"uint32s"`
	String  string          `json:"string"`
	Pointer *fields         `json:"pointer"`
	Number  *uint32         `json:"number"`
	Value   []float32       `json:"value"`
	Raw     json.RawMessage `json:"raw"`
	Part    struct {
		Name string `json:"name"`
	} `json:"part"`
}

func (f *fields) scan(s *jsonscan.Scanner) bool {
	return s.Object(func(name []byte) bool {
		switch string(name) {
		case "bool":
			return s.Bool(&f.Bool)
		case "int":
			return s.Int(&f.Int)
		case "uint32":
			return s.Uint32(&f.Uint32)
		case "uint32s":
			return s.Uint32s(&f.Uint32s)
		case "string":
			return s.String(&f.String)
		case "pointer":
			return jsonscan.Pointer(s, &f.Pointer, func(p *fields) bool { return p.scan(s) })
		case "number":
			return jsonscan.Pointer(s, &f.Number, s.Uint32)
		case "value":
			return s.Value(&f.Value)
		case "raw":
			return s.Value(&f.Raw)
		case "part":
			return s.Null() || s.Object(func(name []byte) bool {
				if string(name) == "name" {
					return s.String(&f.Part.Name)
				}
				return s.Other(name)
			})
		default:
			return s.Other(name)
		}
	})
}

// usual are texts that a Scanner accepts.
var usual = []string{
	`{}`,
	` { "bool" : true , "int" : -12 , "uint32" : 4294967295 , "uint32s" : [ 1 , 2 ] , "string" : "a\n\"\ud83d\ude80\u00e9é" } ` + "\r\n\t",
	`{"pointer":{"bool":false,"uint32s":[],"pointer":{"int":0}},"number":7,"value":[1.5,-2e3,null],"raw":{"a":[{}]},"part":{"name":"x"}}`,
	`{"bool":null,"int":null,"uint32":null,"uint32s":null,"string":null,"pointer":null,"number":null,"value":null,"raw":null,"part":null}`,
	`{"bool":true,"bool":null,"int":1,"int":2,"uint32s":[1,2],"uint32s":[3],"pointer":{"int":1},"pointer":{"bool":true},"part":{"name":"x"},"part":{}}`,
	`{"unknown":{"deep":[1,{"a":"\ud800"}]},"other":-0.5E+7,"x":"` + "\xff" + `"}`,
	`{"string":"\ud800","int":-0}`,
}

// rare are texts that a Scanner leaves to encoding/json. Some are not JSON.
var rare = []string{
	``, `null`, `[]`, `{} x`, `{"BOOL":true}`, `{"\u0062ool":true}`, `{"ſtring":"x"}`, `{"int":1.0}`, `{"int":1e2}`, `{"uint32":-1}`, `{"uint32":4294967296}`,
	`{"int":99999999999999999999}`, `{"int":01}`, `{"int":"1"}`, `{"uint32s":[1,null]}`, `{"uint32s":[1,]}`, `{"string":"` + "\x01" + `"}`, `{"string":"\x"}`,
	`{"string":"\u12g4"}`, `{"string":"a`, `{"string":"\`, `{"bool":tru}`, `{"bool":1}`, `{"a" 1}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":.5}`,
	`{"a":` + strings.Repeat("[", jsonscan.MaxNesting) + strings.Repeat("]", jsonscan.MaxNesting) + `}`,
}

func TestRareFormsAreLeftToEncodingJSON(t *testing.T) {
	for _, text := range rare {
		s := jsonscan.New([]byte(text))
		if new(fields).scan(&s) && s.End() {
			t.Errorf("%s is accepted", text)
		}
	}
}

// FuzzFields: fields are read as encoding/json reads them.
func FuzzFields(f *testing.F) {
	for _, text := range rare {
		f.Add([]byte(text))
	}
	jsonscantest.Fuzz(f, func(into *fields, text []byte) bool {
		s := jsonscan.New(text)
		return into.scan(&s) && s.End()
	}, usual...)
}

// FuzzScanner: a Scanner accepts only JSON, and all of it that is not nested too deeply.
func FuzzScanner(f *testing.F) {
	for _, text := range slices.Concat(usual, rare) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := jsonscan.New(text)
		raw, ok := s.Raw()
		if ok = ok && s.End(); ok != json.Valid(text) && !jsonscan.Nested(text) {
			t.Errorf("a value: %t, %q", ok, text)
		}
		if ok && !json.Valid(raw) {
			t.Errorf("the value of %q is %q", text, raw)
		}
	})
}
