package guide

import (
	"encoding/json"
	"io/fs"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func vocabulary(t testing.TB) (*Vocabulary, *tokenizer.Tokenizer) {
	t.Helper()
	b, err := fs.ReadFile(whencetiny.FS(), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewVocabulary(tok)
	if err != nil {
		t.Fatal(err)
	}
	return v, tok
}

func forms(schemas ...string) *llmv1.Guide {
	g := &llmv1.Guide{}
	for _, s := range schemas {
		g.Forms = append(g.Forms, &llmv1.GuideForm{Schema: s})
	}
	return g
}

const eos = 1535

// wander draws random allowed tokens until the answer is over or there is no room.
func wander(t testing.TB, v *Vocabulary, tok *tokenizer.Tokenizer, g *llmv1.Guide, room int, r *rand.Rand) (text string, whole bool) {
	t.Helper()
	guide, err := New(v, g)
	if err != nil {
		t.Fatal(err)
	}
	m := guide.Matcher()
	var ids []uint32
	for room > 0 && !m.Over() {
		logits := make([]float32, len(v.spelled))
		m.Apply(logits, room, []uint32{eos})
		var may []uint32
		for id, l := range logits {
			if !math.IsInf(float64(l), -1) {
				may = append(may, uint32(id))
			}
		}
		if len(may) == 0 {
			t.Fatalf("nothing may follow %q", tok.Decode(ids, true))
		}
		id := may[r.IntN(len(may))]
		if id == eos {
			if !m.Done() {
				t.Fatalf("%q may end", tok.Decode(ids, true))
			}
			return tok.Decode(ids, true), true
		}
		if err := m.Advance(id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		room--
	}
	return tok.Decode(ids, true), m.Done()
}

const person = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","title":"Person","properties":{
	"name":{"type":"string","minLength":1,"maxLength":12},"age":{"type":"integer","minimum":0,"maximum":130},
	"kind":{"enum":["cat","dog\"",3,null]},"tags":{"type":"array","items":{"type":"string","maxLength":4},"minItems":1,"maxItems":3},
	"score":{"type":"number","exclusiveMinimum":-2,"maximum":1.5},"friend":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},
	"required":["name","kind","friend"],"additionalProperties":false}`

var schemas = []string{
	person, `{}`, `true`, `{"type":"object"}`, `{"type":"object","additionalProperties":{"type":"integer"}}`, `{"type":"object","additionalProperties":false}`,
	`{"type":["string","null"]}`, `{"type":"array","items":{"type":"boolean"}}`, `{"type":"array","minItems":2,"maxItems":2}`, `{"type":"array","maxItems":0}`,
	`{"const":{"a":[1,"\u00e9"]}}`, `{"type":"integer"}`, `{"type":"number"}`, `{"type":"integer","minimum":-120,"exclusiveMaximum":-7}`,
	`{"type":"integer","minimum":95,"maximum":1203}`, `{"type":"number","minimum":-3,"maximum":3}`, `{"maxLength":3}`,
	`{"$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["v"]}},"$ref":"#/$defs/tree"}`,
	`{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"required":["b"]}`,
	`{"type":"object","properties":{"x":{"type":"integer"}},"required":["y"],"additionalProperties":{"type":"boolean"}}`, `{"allOf":[{"type":"boolean"}]}`, `{"allOf":[{},true]}`,
	`{"$defs":{"base":{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string","maxLength":5}},"required":["id"]}},
		"allOf":[{"$ref":"#/$defs/base"},{"properties":{"name":{"minLength":2},"extra":{"type":"null"}},"required":["extra"]}]}`,
	`{"$defs":{"closed":{"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":false}},"$ref":"#/$defs/closed","properties":{"a":{},"b":{}}}`,
	`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"}},"anyOf":[{"required":["a"]},{"required":["b"]}],"additionalProperties":false}`,
	`{"type":["integer","null"],"oneOf":[{"type":"number","minimum":-3,"maximum":300},{"type":"null"}]}`, `{"allOf":[{"minimum":2,"maxLength":9},{"exclusiveMaximum":30,"type":["string","number"]},{"maxLength":3,"minLength":1}]}`,
	`{"allOf":[{"enum":[1,"a",null]},{"type":["string","null"]},{"enum":["a","b",1]}]}`, `{"allOf":[{"type":"array","items":{"type":"integer"},"minItems":1},{"items":{"maximum":9},"maxItems":3}]}`,
	`{"type":"object","additionalProperties":{"type":"integer"},"allOf":[{"properties":{"x":{"minimum":5}},"required":["x"]}]}`,
	`{"$defs":{"tree":{"type":"object","properties":{"kids":{"type":"array","maxItems":2,"items":{"$ref":"#/$defs/tree"}}},"required":["kids"]}},"$ref":"#/$defs/tree","properties":{"v":{"const":1}},"required":["v"]}`,
	`{"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991}`, `{"type":"number","exclusiveMinimum":0,"maximum":1}`,
	`{"type":"number","minimum":0.2,"maximum":0.8}`, `{"type":"number","exclusiveMinimum":-0.25,"exclusiveMaximum":1e-7}`, `{"type":"number","minimum":99.5}`,
	`{"type":"string","pattern":"^[A-Z]{2,3}-\\d+$","maxLength":9}`, `{"pattern":"한|\"\\\\"}`, `{"type":["string","null"],"format":"date"}`, `{"format":"date-time"}`, `{"type":"string","format":"uuid"}`,
	`{"type":"string","format":"email"}`, `{"type":"string","format":"ipv4"}`, `{"type":"string","format":"ipv6"}`, `{"type":"string","format":"hostname"}`, `{"type":"string","format":"time"}`, `{"type":"string","format":"duration"}`,
	`{"type":"string","format":"date","pattern":"^20","minLength":10}`, `{"type":"string","format":"unheard-of","maxLength":3}`, `{"type":"integer","format":"int32","maximum":9}`,
	`{"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"],"additionalProperties":false},{"$ref":"#/$defs/b"},{"type":"null"}],
		"$defs":{"b":{"type":"object","properties":{"kind":{"enum":["b","c"]}},"required":["kind"],"additionalProperties":false}},"discriminator":{"propertyName":"kind"}}`,
	`{"type":"array","prefixItems":[{"type":"integer"},{"type":"boolean"}],"items":{"type":"null"},"maxItems":4}`, `{"type":"array","prefixItems":[{"type":"integer"},{"type":"boolean"}],"minItems":2,"maxItems":2}`,
	`{"type":"array","prefixItems":[{"type":"integer"},{"const":"x"}],"minItems":1,"items":false}`, `{"type":"array","prefixItems":[{"type":"null"},{"type":"null"},{"type":"null"}],"maxItems":1}`, `{"items":false}`,
	`{"prefixItems":[{"type":"null"}],"minItems":3}`,
	`{"type":"object","propertyNames":{"pattern":"^[a-c]{1,2}$"},"additionalProperties":{"type":"integer"}}`, `{"type":"object","propertyNames":{"enum":["a",1]},"additionalProperties":{"type":"null"}}`,
	`{"type":"object","patternProperties":{"^x-[a-z]{1,3}$":{"type":"integer"}},"additionalProperties":false}`, `{"patternProperties":{"^\"?é":{"type":"null"}},"additionalProperties":{"type":"integer"}}`,
	`{"type":"object","properties":{"xa":{"minimum":3},"c":{"type":"null"}},"required":["c","x-r"],"patternProperties":{"^x":{"type":"integer"},"[ab]$":{"maximum":7}},"additionalProperties":false}`,
	`{"patternProperties":{"^a":{"type":"string"},"b$":{"type":"integer"}},"additionalProperties":false}`, `{"type":"object","required":["k"],"patternProperties":{"^x":{}},"additionalProperties":{"type":"boolean"}}`,
	`{"type":"object","patternProperties":{"^x":{"type":"null"}},"properties":{"x1":{}},"anyOf":[{"required":["x1"]},{"required":["x2"]}],"additionalProperties":false}`, `{"type":"object","patternProperties":{}}`,
	`{"type":"array","items":{"enum":["a","b",1,1.0,{"k":1,"l":2},{"l":2,"k":1}]},"uniqueItems":true,"minItems":2}`, `{"$defs":{"c":{"enum":["red","green","blue"]}},"type":"array","items":{"$ref":"#/$defs/c"},"uniqueItems":true}`,
	`{"items":{"anyOf":[{"type":["boolean","null"]},{"const":0}]},"uniqueItems":true,"minItems":4}`, `{"type":"array","items":{"enum":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]},"uniqueItems":true,"minItems":1,"maxItems":3}`, `{"uniqueItems":true,"maxItems":1}`,
	`{"type":"object","properties":{"a":{"type":"null"},"b":false},"additionalProperties":{"type":"integer"}}`, `{"type":"number","multipleOf":0.01,"minimum":-5,"maximum":5}`,
	`{"type":"array","prefixItems":[{"type":"boolean"},{"$ref":"#/prefixItems/0"}],"minItems":2,"x-vendor":1}`, `{"$defs":{"a b":{"type":"null"}},"$ref":"#/$defs/a%20b"}`, `{"type":"integer","enum":[1e30,0.5]}`,
	`{"type":"integer","multipleOf":5,"minimum":0,"maximum":20}`, `{"multipleOf":7}`, `{"type":"integer","multipleOf":12,"exclusiveMinimum":24}`, `{"type":"integer","multipleOf":3,"maximum":-1}`, `{"type":"integer","multipleOf":4,"maximum":10}`,
	`{"type":"number","multipleOf":0.25,"minimum":-1,"maximum":1}`, `{"type":"object","minProperties":1,"properties":{"a":{"type":"null"},"b":{"type":"null"}},"anyOf":[{"required":["a"]},{"required":["b"]}],"additionalProperties":false}`, `{"type":"integer","multipleOf":1.5,"minimum":2,"maximum":12}`, `{"type":"integer","multipleOf":8,"minimum":-20}`,
	`{"type":"object","minProperties":1,"additionalProperties":{"type":"null"}}`, `{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"minProperties":1,"additionalProperties":false}`, `{"type":"object","properties":{"a":{"type":"null"}},"required":["a"],"minProperties":1}`,
	`{"type":"object","properties":{"a":{"type":"null"},"b":{"not":{}}},"additionalProperties":false}`, `{"type":"object","properties":{"a":{"type":"null"}},"unevaluatedProperties":false}`, `{"properties":{"a":{"type":"boolean"}},"maxProperties":3,"additionalProperties":false}`,
	`{"enum":["a","bb","ccc",7,12],"minLength":2,"maximum":10}`, `{"enum":["x1","y2","x"],"pattern":"^x."}`, `{"const":"2020-01-01","format":"date"}`, `{"type":"string","enum":["x"],"minLength":1,"title":"T","enumDescriptions":["d"]}`, `{"allOf":[{"enum":[1,2,6]},{"minimum":2,"multipleOf":2}]}`,
	`{"type":"string","maxLength":5,"$anchor":"a","errorMessage":"e","tsType":"x","optional":true,"ref":"X","id":"Y","components":{}}`, `{"type":"string","maxLength":3,"then":{"const":1},"minContains":2,"dependentRequired":{}}`,
	`{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"type":"null"},{"type":"boolean"}],"additionalItems":{"const":1},"maxItems":4}`, `{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","minimum":3,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":false}`,
	`{"type":"object","properties":{"a&b":{"type":"null"},"<c>":{"const":"\u2028 & \\u2028 <d>"}},"required":["a&b","<c>"],"additionalProperties":false}`,
}

func TestGuidedAnswersAreValid(t *testing.T) {
	v, tok := vocabulary(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range schemas {
		for range tier.Of(2, 12) {
			text, whole := wander(t, v, tok, forms(s), 200, r)
			if !whole || !utf8.ValidString(text) || !json.Valid([]byte(text)) {
				t.Fatalf("%s: %q, whole %v", s, text, whole)
			}
			if complaint := violates(t, s, text); complaint != "" {
				t.Fatalf("%s: %s: %s", s, text, complaint)
			}
		}
	}
}

// TestAnswersEndWithinTheirRoom gives the minimum room: a token for each byte of the shortest
// answer.
func TestAnswersEndWithinTheirRoom(t *testing.T) {
	v, tok := vocabulary(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, s := range schemas {
		g, err := New(v, forms(s))
		if err != nil {
			t.Fatal(err)
		}
		for extra := range 8 {
			if text, whole := wander(t, v, tok, forms(s), g.root.Need()+extra, r); !whole || !json.Valid([]byte(text)) {
				t.Fatalf("%s with room for %d: %q", s, g.root.Need()+extra, text)
			}
		}
	}
}

func TestAnswersHaveTheTextAroundValues(t *testing.T) {
	v, tok := vocabulary(t)
	r := rand.New(rand.NewPCG(5, 6))
	g := &llmv1.Guide{Forms: []*llmv1.GuideForm{
		{Before: "<tool_call>\n{\"name\": \"a\", \"arguments\": ", Schema: `{"type":"object","additionalProperties":false}`, After: "}\n</tool_call>"},
		{Before: "한 ", Schema: `{"type":"boolean"}`}, {Before: "yes"},
	}}
	seen := map[string]int{}
	for range 300 {
		text, whole := wander(t, v, tok, g, 100, r)
		if !whole {
			t.Fatalf("%q", text)
		}
		seen[text]++
	}
	want := []string{"<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>", "yes", "한 false", "한 true"}
	var got []string
	for text := range seen {
		got = append(got, text)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestMatcherContinuesAfterClearingItsCaches(t *testing.T) {
	v, tok := vocabulary(t)
	g, err := New(v, forms(`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"array","items":{"type":"integer"}}},"required":["a","b"],"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, good := range map[string]bool{`{"a":"xyz","b":[1,2]}`: true, `{"a":"xyz","b":[1,"2"]}`: false, `{"b":[]}`: false} {
		m := g.Matcher()
		ok := true
		for _, id := range tok.Encode(text, false) {
			if ok = m.Advance(id) == nil; !ok {
				break
			}
			m.forget()
		}
		if (ok && m.Over()) != good {
			t.Errorf("%s: %v, over %v", text, ok, m.Over())
		}
	}
}

// TestPatternsAreFollowed has answers of an expression, which a text may precede.
func TestPatternsAreFollowed(t *testing.T) {
	v, tok := vocabulary(t)
	r := rand.New(rand.NewPCG(3, 1))
	for _, expression := range []string{`\d{3}-\d{4}`, `(?:yes|no)\b[^a-z]*`, `"[^"]*"\n?`, `[a-z]+(?:, [a-z]+){2}`} {
		matches := regexp.MustCompile(`^(?:> )(?:` + expression + `)$`)
		g := &llmv1.Guide{Forms: []*llmv1.GuideForm{{Before: "> ", Pattern: expression}}}
		for range 20 {
			if text, whole := wander(t, v, tok, g, 20+r.IntN(40), r); !whole || !matches.MatchString(text) {
				t.Errorf("%s: %q, whole %t", expression, text, whole)
			}
		}
		if gbnf, err := GBNF(g); err != nil || gbnf == "" {
			t.Errorf("%s: %v", expression, err)
		}
	}
	for _, form := range []*llmv1.GuideForm{{Pattern: "(a"}, {Pattern: `(a)\1`}, {Pattern: "a", After: "b"}, {Pattern: "a", Schema: "{}"}} {
		if _, err := New(v, &llmv1.Guide{Forms: []*llmv1.GuideForm{form}}); err == nil || streamerr.As(err).Param != param {
			t.Errorf("%v: %v", form, err)
		}
	}
}

// TestEmptyArraysAreEmptyObjects: PHP writes an object without members as an array.
func TestEmptyArraysAreEmptyObjects(t *testing.T) {
	v, tok := vocabulary(t)
	schema := `{"type":"object","properties":[],"patternProperties":[ ],"$defs":[],"additionalProperties":false}`
	text, whole := wander(t, v, tok, &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: schema}}}, 20, rand.New(rand.NewPCG(1, 2)))
	if text != "{}" || !whole {
		t.Errorf("%q, whole %t", text, whole)
	}
}

func TestUnsupportedSchemasAreRefusedByName(t *testing.T) {
	v, _ := vocabulary(t)
	deep := strings.Repeat(`{"items":`, 100) + "{}" + strings.Repeat("}", 100)
	for schema, says := range map[string]string{
		`{"type":"string","pattern":"(?=(?!a))"}`: `at #: pattern: it has a lookahead`, `{"oneOf":[]}`: `oneOf`, `{"not":{"type":"null"}}`: `at #: not: this keyword`, `{"multipleOf":2.5}`: `multipleOf: it is 5/2`, `{"not":{}}`: "no value",
		`{"type":"array","uniqueItems":true}`: "uniqueItems: its items must be", `{"uniqueItems":1}`: "uniqueItems: it must be", `{"uniqueItems":true,"items":{"type":"integer"}}`: "uniqueItems: its items must be", `{"uniqueItems":true,"prefixItems":[{}]}`: "beside prefixItems",
		`{"uniqueItems":true,"items":{"enum":[1,2]},"minItems":3}`: "only 2 different items", `{"uniqueItems":true,"items":{"enum":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}}`: "too many sets", `{"uniqueItems":true,"items":{"$ref":"#/items"}}`: "a few values",
		`{"type":"object","properties":{"a/b":{"items":{"if":{},"then":{"const":1}}}}}`: "at #/properties/a~1b/items: if: this keyword",
		`{"anyOf":[{},{"type":"string","format":"uuid","maxLength":3}]}`:                "at #/anyOf/1: format: no text is valid", `{"type":"string","pattern":"^(a|b)*a(a|b){14}$"}`: "too complex",
		`{"type":"string","pattern":5}`: "must be a string", `{"type":"number","multipleOf":0}`: "multipleOf: it must be",
		`{"oneOf":[{"type":"integer"},{"type":"number"}]}`: "branches 0 and 1", `{"oneOf":[{"type":"string"},{"const":"a"}]}`: "branches 0 and 1",
		`{"oneOf":[{"properties":{"k":{"const":"a"}}},{"properties":{"k":{"const":"b"}}}]}`: "branches 0 and 1",
		`{"oneOf":[` + strings.Repeat(`{"type":"null"},`, 300) + `{}]}`:                     "oneOf", `{"type":"object","properties":{"a":{}},"propertyNames":{"anyOf":[{}]}}`: "keywords of strings, and has anyOf", `{"propertyNames":{"type":"integer"}}`: "at #/propertyNames: type",
		`{"patternProperties":{"a":{},"b":{},"c":{},"d":{},"e":{}}}`: "it has 5 patterns; it can have 4", `{"patternProperties":{"a":{}},"propertyNames":{"type":"null"}}`: "propertyNames: its type must be string", `{"patternProperties":[1]}`: "patternProperties: it must be",
		`{"patternProperties":{"(?=(?=a))":{}}}`: `patternProperties: "(?=(?=a))": it has a lookahead`, `{"patternProperties":{"a":{"not":{"type":"null"}}}}`: "not: this keyword", `{"contains":{}}`: "contains: this keyword", `{"minProperties":2}`: "minProperties: this keyword", `{"dependentRequired":{"a":["b"]}}`: "dependentRequired: this keyword",
		`{"allOf":[{"patternProperties":{"a":{}},"additionalProperties":false},{"properties":{"a":{}}}]}`: "patternProperties: another schema", `{"required":["b"],"patternProperties":{"a":{}},"additionalProperties":false}`: "required: it has", `{"allOf":[{"patternProperties":{"a":{}}},{"additionalProperties":{"type":"null"}}]}`: "patternProperties: another schema",
		`{"prefixItems":{}}`: "prefixItems", `{"type":"array","items":false,"minItems":1}`: "no value", `false`: "no value",
		`{"allOf":[{"multipleOf":3},{"multipleOf":5}]}`: "at #: multipleOf: two schemas", `{"allOf":[{"anyOf":[{"type":"null"}]},{"oneOf":[{"type":"string"}]}]}`: "type: no value", `{"oneOf":[{"required":["a"]},{"required":["a","b"]}]}`: "branches 0 and 1", `{"allOf":[{"type":"string"},{"type":"null"}]}`: "type: no value",
		`{"allOf":[{"enum":[1]},{"const":2}]}`: "enum: no value", `{"allOf":[{"prefixItems":[{}]},{"items":{}}]}`: "prefixItems: another", `{"allOf":[{"minimum":3},{"maximum":"x"},{"maximum":2}]}`: "maximum: it must be",
		`{"allOf":[{"properties":{"a":{"const":1}}},{"properties":{"a":{"const":2}},"required":["a"]}]}`: "enum: no value", `{"enum":[[1],[2]],"minItems":2}`: "minItems: it stands beside enum", `{"enum":[1,2],"minimum":3}`: "no value",
		`{"type":"text"}`: `"text"`, `{"type":5}`: "type", `{"enum":[]}`: "enum",
		`{"enum":["a"],"type":"integer"}`: "no value", `{"$ref":"#/$defs/x"}`: `"#/$defs/x"`, `{"$ref":"http://x"}`: "http", `{"$ref":"#/anyOf/2"}`: "#/anyOf/2", `{"$ref":"#"}`: "no value",
		`{"$ref":"#","type":"string"}`: "nested too deeply", `{"minLength":3,"maxLength":2}`: "minLength", `{"minLength":-1}`: "minLength", `{"type":"integer","minimum":0.2,"maximum":0.8}`: "whole number",
		`{"minimum":1e20}`: "at most 15 digits", `{"exclusiveMinimum":0,"maximum":1e-20}`: "at most 15 digits", `{"exclusiveMinimum":0.5,"maximum":0.5}`: "no number",
		`{"minimum":2,"maximum":1}`: "no number", `{"minimum":"1"}`: "minimum: it must be", `{"maximum":null}`: "maximum: it must be", `{"exclusiveMinimum":"1"}`: "exclusiveMinimum: it must be", `{"multipleOf":1030}`: "multipleOf: it is 1030", `{"multipleOf":5,"minimum":100001}`: "more than 4096", `{"multipleOf":7,"minimum":5e14}`: "more than 4096", `{"multipleOf":1e-300}`: "more than 15 digits", `{"patternProperties":{"^x":{}},"additionalProperties":false,"maxProperties":1}`: "maxProperties: this keyword", `{"uniqueItems":true,"items":{"enum":[1,2],"not":{}}}`: "not: it stands beside", `{"multipleOf":7,"minimum":1,"maximum":6}`: "no multiple", `{"multipleOf":0.5,"minimum":0,"maximum":1e9}`: "more than 4096",
		`{"type":"object","required":["a"],"additionalProperties":false}`: `"a"`, `[1]`: "object", `{`: "", `{"type":"string"`: "", `{"a":1,"a":2}`: "twice",
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`: "no value", deep: "deeply", `{"type":"string"} x`: "", `{"properties":[1]}`: "properties",
	} {
		_, err := New(v, forms(schema))
		if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != param || !strings.Contains(e.Message, says) {
			t.Errorf("%.100s: %v, want %q", schema, err, says)
		}
	}
	for name, g := range map[string]*llmv1.Guide{
		"no form": {}, "many forms": forms(make([]string, maxForms+1)...), "a long schema": forms(strings.Repeat(" ", maxSchema) + "{}"),
		"long schemas": forms(slices.Repeat([]string{strings.Repeat(" ", maxSchema-2) + "{}"}, 5)...),
		"a long text":  {Forms: []*llmv1.GuideForm{{Before: strings.Repeat("x", maxText+1)}}},
	} {
		if _, err := New(v, g); streamerr.As(err).Param != param {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(nil, forms("{}")); streamerr.As(err).Param != param {
		t.Error(err)
	}
}

func FuzzSchemaIsRefusedOrEnforced(f *testing.F) {
	for _, s := range schemas {
		f.Add(s, uint64(1))
	}
	v, tok := vocabulary(f)
	f.Fuzz(func(t *testing.T, schema string, seed uint64) {
		g := forms(schema)
		if len(schema) == 0 || len(schema) > 1000 {
			return
		}
		if _, err := New(v, g); err != nil {
			if e := streamerr.As(err); e.Reason != streamerr.Invalid || e.Text() == "" {
				t.Fatal(err)
			}
			return
		}
		if text, whole := wander(t, v, tok, g, 60, rand.New(rand.NewPCG(seed, 1))); whole && !json.Valid([]byte(text)) {
			t.Fatalf("%s: %q", schema, text)
		}
	})
}

func BenchmarkApply(b *testing.B) {
	v, tok := vocabulary(b)
	g, err := New(v, forms(person))
	if err != nil {
		b.Fatal(err)
	}
	text := tok.Encode(`{"name":"Ann Lee", "age": 30, "kind":"cat","tags":["a","b"],"friend":null}`, false)
	logits := make([]float32, len(v.spelled))
	b.ReportAllocs()
	tokens := 0
	for b.Loop() {
		m := g.Matcher()
		for _, id := range text {
			m.Apply(logits, 1000, nil)
			if err := m.Advance(id); err != nil {
				b.Fatal(err)
			}
			tokens++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(tokens), "µs/token")
}

// TestNullableAllowsNull: OpenAPI's keyword, which validators of JSON Schema do not know.
func TestNullableAllowsNull(t *testing.T) {
	v, tok := vocabulary(t)
	r := rand.New(rand.NewPCG(9, 10))
	seen := map[string]bool{}
	for range 100 {
		text, _ := wander(t, v, tok, forms(`{"type":"boolean","nullable":true}`), 20, r)
		seen[text] = true
	}
	if len(seen) != 3 || !seen["null"] {
		t.Error(seen)
	}
}
