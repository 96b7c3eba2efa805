package guide

import (
	"strings"
	"testing"

	"github.com/dlclark/regexp2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// An engine has the lookaround of ECMA-262, which package regexp lacks.
type engine struct{ *regexp2.Regexp }

// boundaries replaces the assertions of word boundaries: regexp2 takes letters like é for a part of a word
// there, and ECMA-262 only ASCII's.
var boundaries = strings.NewReplacer(`\\`, `\\`, `\b`, `(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))`, `\B`, `(?:(?<=\w)(?=\w)|(?<!\w)(?!\w))`)

// MatchString reports whether a part of text matches.
func (e engine) MatchString(text string) bool {
	ok, err := e.Regexp.MatchString(text)
	return ok && err == nil
}

// violates returns the complaint of a validator about a value, or "".
func violates(t testing.TB, schema, value string) string {
	t.Helper()
	read := func(text string) any {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return v
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseRegexpEngine(func(expression string) (jsonschema.Regexp, error) {
		re, err := regexp2.Compile(boundaries.Replace(expression), regexp2.ECMAScript)
		return engine{re}, err
	})
	if err := c.AddResource("schema.json", read(schema)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	if err := s.Validate(read(value)); err != nil {
		return err.Error()
	}
	return ""
}
