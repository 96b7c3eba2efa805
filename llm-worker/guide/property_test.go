package guide

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/tier"
)

// A sample is a schema within the supported subset, and a source of its valid values in the form
// that guides write.
type sample struct {
	schema string
	value  func(r *rand.Rand) string
}

// draw returns a random sample.
func draw(r *rand.Rand, depth int) sample {
	kinds := 18
	if depth > 3 {
		kinds = 5
	}
	switch r.IntN(kinds) {
	case 0:
		return drawText(r)
	case 1, 2:
		return drawNumber(r)
	case 3:
		values := []string{`null`, `true`, `-0.5`, `12`, `"a b"`, `"\"\\"`, `"é<&"`, `{"k":[1,null]}`, `[]`, `""`}
		r.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
		some := values[:1+r.IntN(4)]
		schema := `{"enum":[` + strings.Join(some, ",") + `]}`
		if len(some) == 1 {
			schema = `{"const":` + some[0] + `}`
		}
		return sample{schema, func(r *rand.Rand) string { return some[r.IntN(len(some))] }}
	case 4:
		one := sample{`{"type":["boolean","null"]}`, func(r *rand.Rand) string { return []string{"true", "false", "null"}[r.IntN(3)] }}
		if depth > 3 {
			return one
		}
		other := draw(r, depth+1)
		return sample{`{"anyOf":[` + one.schema + "," + other.schema + `]}`, func(r *rand.Rand) string {
			return []sample{one, other}[r.IntN(2)].value(r)
		}}
	case 5:
		item, least := draw(r, depth+1), r.IntN(3)
		most := least + r.IntN(3)
		return sample{fmt.Sprintf(`{"type":"array","items":%s,"minItems":%d,"maxItems":%d}`, item.schema, least, most), func(r *rand.Rand) string {
			values := make([]string, least+r.IntN(most-least+1))
			for i := range values {
				values[i] = item.value(r)
			}
			return "[" + strings.Join(values, ", ") + "]"
		}}
	case 6:
		return drawPattern(r)
	case 7:
		first, second := draw(r, depth+1), draw(r, depth+1)
		least := r.IntN(3)
		return sample{fmt.Sprintf(`{"type":"array","prefixItems":[%s,%s],"items":{"type":"null"},"minItems":%d,"maxItems":%d}`, first.schema, second.schema, least, least+2), func(r *rand.Rand) string {
			values := []string{first.value(r), second.value(r), "null", "null"}
			return "[" + strings.Join(values[:least+r.IntN(3)], ",") + "]"
		}}
	case 8:
		one, other := draw(r, depth+1), draw(r, depth+1)
		form := `{"type":"object","properties":{"kind":{"const":"%s"},"v":%s},"required":["kind","v"],"additionalProperties":false}`
		return sample{`{"oneOf":[` + fmt.Sprintf(form, "one", one.schema) + "," + fmt.Sprintf(form, "other", other.schema) + `,{"type":["integer","null"]}]}`, func(r *rand.Rand) string {
			return []string{`{"kind":"one","v":` + one.value(r) + "}", `{"kind":"other", "v": ` + other.value(r) + "}", "-7", "null"}[r.IntN(4)]
		}}
	case 9:
		return drawExtended(r, depth)
	case 10:
		one, other := draw(r, depth+1), draw(r, depth+1)
		schema := fmt.Sprintf(`{"type":"object","properties":{"l":%s,"r":%s},"anyOf":[{"required":["l"]},{"required":["r"]}],"additionalProperties":false}`, one.schema, other.schema)
		return sample{schema, func(r *rand.Rand) string {
			l, other := `"l":`+one.value(r), `"r":`+other.value(r)
			return "{" + []string{l, other, l + "," + other}[r.IntN(3)] + "}"
		}}
	case 11:
		return drawUnique(r)
	case 12:
		return drawNamePatterns(r, depth)
	case 13:
		return drawExclusive(r, depth)
	case 14:
		return drawNames(r, depth)
	case 15:
		return drawBoth(r)
	case 16:
		return drawNameRules(r, depth)
	default:
		return drawObject(r, depth)
	}
}

// drawExclusive draws an object with exactly one of two properties, or at most one of them, and with at
// least one of two others.
func drawExclusive(r *rand.Rand, depth int) sample {
	one, other := draw(r, depth+1), draw(r, depth+1)
	neither := r.IntN(2) == 0
	branches := `{"required":["a"]},{"required":["b"]}`
	if neither {
		branches += `,{"not":{"anyOf":[{"required":["a"]},{"required":["b"]}]}}`
	}
	schema := fmt.Sprintf(`{"type":["object","null"],"properties":{"a":%s,"b":%s,"c":{"type":"null"},"d":{"type":"null"}},"oneOf":[%s],"anyOf":[{"required":["c"]},{"required":["d"]}],"additionalProperties":false}`, one.schema, other.schema, branches)
	return sample{schema, func(r *rand.Rand) string {
		first := []string{`"a":` + one.value(r) + ",", `"b":` + other.value(r) + ",", ""}
		if !neither {
			first = first[:2]
		}
		return "{" + first[r.IntN(len(first))] + []string{`"c":null`, `"d":null`, `"c":null,"d":null`}[r.IntN(3)] + "}"
	}}
}

// drawNames draws a record whose names are an enum.
func drawNames(r *rand.Rand, depth int) sample {
	named, other := draw(r, depth+1), draw(r, depth+1)
	schema := fmt.Sprintf(`{"type":"object","propertyNames":{"enum":["x","y","z"]},"properties":{"y":%s,"w":true},"required":["x"],"additionalProperties":%s}`, named.schema, other.schema)
	return sample{schema, func(r *rand.Rand) string {
		return "{" + []string{"", `"y":` + named.value(r) + ","}[r.IntN(2)] + `"x":` + other.value(r) + []string{"", `,"z":` + other.value(r)}[r.IntN(2)] + "}"
	}}
}

// drawBoth draws a text for which several patterns and formats hold.
func drawBoth(r *rand.Rand) sample {
	texts := []struct {
		parts  []string
		values []string
	}{
		{[]string{`"pattern":"^[a-z]+"`, `"pattern":"\\d$"`, `"pattern":"^(?:(?!x)[^])*$","maxLength":9`}, []string{"a1", "bc-2", "q 한9"}},
		{[]string{`"format":"hostname"`, `"pattern":"\\.(?=org$|net$)"`, `"pattern":"(?<!-)b"`, `"type":["string","null"],"minLength":3`}, []string{"b.org", "a-c.b.net", "xb1.org"}},
		{[]string{`"format":"date"`, `"format":"date"`, `"pattern":"-(?!02)"`, `"enum":["2024-03-01","2024-02-01","2023-12-31",7]`}, []string{"2024-03-01", "2023-12-31"}},
		{[]string{`"format":"uuid"`, `"format":"color"`, `"pattern":"^a"`, `"pattern":"b$"`}, []string{"a0000000-0000-4000-8000-00000000000b"}},
	}
	one := texts[r.IntN(len(texts))]
	r.Shuffle(len(one.parts), func(i, j int) { one.parts[i], one.parts[j] = one.parts[j], one.parts[i] })
	schema := `{"type":"string","allOf":[{` + strings.Join(one.parts, "},{") + `}]}`
	return sample{schema, func(r *rand.Rand) string { return strconv.Quote(one.values[r.IntN(len(one.values))]) }}
}

// drawNameRules draws an object whose names have to match patterns of several keywords.
func drawNameRules(r *rand.Rand, depth int) sample {
	named, number := draw(r, depth+1), drawNumber(r)
	rest := []string{
		`"patternProperties":{"^[a-z]":` + number.schema + `},"propertyNames":{"pattern":"b","maxLength":3}`,
		`"allOf":[{"propertyNames":{"pattern":"b$"}},{"propertyNames":{"maxLength":3},"patternProperties":{"^x":` + number.schema + `}}]`,
		`"patternProperties":{"^x":` + number.schema + `,"q":false},"propertyNames":{"enum":["xb","q","b","ab"]},"additionalProperties":false`,
	}[r.IntN(3)]
	first := `"ab":` + named.schema
	if strings.HasPrefix(rest, `"patternProperties":{"^[a-z]"`) {
		first, named = `"ab":{"type":"number"}`, number
	}
	schema := `{"type":"object","properties":{` + first + `,"zz":true},"required":["ab"],` + rest + `}`
	return sample{schema, func(r *rand.Rand) string {
		return `{"ab":` + named.value(r) + []string{"", `, "xb": ` + number.value(r)}[r.IntN(2)] + "}"
	}}
}

// drawUnique draws an array of different constants.
func drawUnique(r *rand.Rand) sample {
	values := []string{`null`, `true`, `12`, `"a"`, `"ab"`, `"\"\\"`, `{"k":[1,null]}`}
	r.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	some := values[:1+r.IntN(5)]
	least := r.IntN(len(some) + 1)
	most := least + r.IntN(3)
	schema := fmt.Sprintf(`{"type":"array","items":{"enum":[%s]},"uniqueItems":true,"minItems":%d,"maxItems":%d}`, strings.Join(some, ","), least, most)
	return sample{schema, func(r *rand.Rand) string {
		items := slices.Clone(some)
		r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		return "[" + strings.Join(items[:least+r.IntN(min(most, len(items))-least+1)], ",") + "]"
	}}
}

// drawNamePatterns draws an object whose names match one or both of two patterns.
func drawNamePatterns(r *rand.Rand, depth int) sample {
	named, number := draw(r, depth+1), drawNumber(r)
	schema := `{"type":"object","properties":{"first":` + named.schema + `},"required":["first","x"],"patternProperties":{"^x":{"type":["number","string"]},"[0-9]$":` + number.schema + `},"additionalProperties":false}`
	return sample{schema, func(r *rand.Rand) string {
		members := []string{`"first": ` + named.value(r), `"x":"a"`, `"xy":0.5`, `"한1":` + number.value(r), `"x2": ` + number.value(r)}
		return "{" + strings.Join(members[:2+r.IntN(4)], ", ") + "}"
	}}
}

// drawExtended draws an object with a property of another schema that must hold, too.
func drawExtended(r *rand.Rand, depth int) sample {
	base, extra := drawObject(r, depth), drawNumber(r)
	open := strings.TrimSuffix(base.schema, `,"additionalProperties":false}`) + "}"
	other := `{"type":["object","null"],"properties":{"extra":` + extra.schema + `},"required":["extra"]}`
	schema := `{"allOf":[` + open + "," + other + `]}`
	if r.IntN(2) == 0 {
		schema = strings.TrimSuffix(open, "}") + `,"allOf":[` + other + `]}`
		return sample{schema, func(r *rand.Rand) string { return joined(`{"extra": `+extra.value(r)+"}", base.value(r)) }}
	}
	return sample{schema, func(r *rand.Rand) string { return joined(base.value(r), `{"extra": `+extra.value(r)+"}") }}
}

// joined returns the object with the members of two.
func joined(a, b string) string {
	if a == "{}" || b == "{}" {
		return strings.TrimSuffix(a, "}") + strings.TrimPrefix(b, "{")
	}
	return strings.TrimSuffix(a, "}") + ", " + strings.TrimPrefix(b, "{")
}

// drawPattern draws a pattern, with bounds of the length that hold for its values. Both stand as in
// JSON.
func drawPattern(r *rand.Rand) sample {
	patterns := []struct {
		pattern string
		values  []string
	}{
		{`^[A-Z]{2}-\\d+$`, []string{"AB-1", "ZZ-0123"}},
		{`한|\"`, []string{"한한", `a\"`, "x한y", "---한"}},
		{`^(?:a|bc)*[^\\s]$`, []string{"aaax", "bcbcb", "aa한"}},
		{`\\b(?:red|blue)\\b`, []string{"red", "a blue-x", "(red)", "한red"}},
		{`\\.(?:png|jpe?g)$`, []string{".png", "é.jpg", "a b.jpeg"}},
		{`^(?:(?!--)[a-z-])+$`, []string{"a-b", "x-y-"}},
		{`(?<=[한x])\\d(?!\\d|x)`, []string{"x1", "한2b", "x12x3"}},
		{`^[a-z](?=.*\\d)[^](?<![xy])`, []string{"ab1", "q7", "a\\\\1"}},
	}
	p := patterns[r.IntN(len(patterns))]
	bounds := []string{"", `,"maxLength":9`, `,"minLength":2`, `,"minLength":1,"maxLength":30`}[r.IntN(4)]
	return sample{`{"type":"string","pattern":"` + p.pattern + `"` + bounds + `}`, func(r *rand.Rand) string {
		return `"` + p.values[r.IntN(len(p.values))] + `"`
	}}
}

func drawText(r *rand.Rand) sample {
	least := r.IntN(4)
	most := least + r.IntN(4)
	return sample{fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, least, most), func(r *rand.Rand) string {
		text := `"`
		for range least + r.IntN(most-least+1) {
			text += []string{"a", " ", "/", "é", "한", "😀", `\"`, `\\`, `\n`, `\t`}[r.IntN(10)]
		}
		return text + `"`
	}}
}

// drawNumber draws bounds in hundredths, so that exact values within them are easily drawn, too.
func drawNumber(r *rand.Rand) sample {
	low := r.IntN(4000) - 2000
	high := low + r.IntN(400)
	from, to, schema := low, high, `{"type":"number"`
	decimal := func(hundredths int) string {
		return strconv.FormatFloat(float64(hundredths)/100, 'f', -1, 64)
	}
	if r.IntN(2) == 0 {
		low, high = low/100*100, low/100*100+300
		from, to, schema = low, high, `{"type":"integer"`
	}
	step := map[bool]int{true: 100, false: 1}[schema == `{"type":"integer"`]
	if high-low > 2*step && r.IntN(2) == 0 {
		from, schema = from+step, schema+`,"exclusiveMinimum":`+decimal(low)
	} else {
		schema += `,"minimum":` + decimal(low)
	}
	if high-low > 2*step && r.IntN(2) == 0 {
		to, schema = to-step, schema+`,"exclusiveMaximum":`+decimal(high)
	} else {
		schema += `,"maximum":` + decimal(high)
	}
	return sample{schema + "}", func(r *rand.Rand) string { return decimal(from + r.IntN((to-from)/step+1)*step) }}
}

func drawObject(r *rand.Rand, depth int) sample {
	type property struct {
		sample
		key      string
		required bool
	}
	var all []property
	var schemas, required []string
	for i := range 1 + r.IntN(3) {
		p := property{draw(r, depth+1), strconv.Quote([]string{"name", "a b", "한", "x<y"}[(i+r.IntN(2)*2)%4] + strconv.Itoa(i)), r.IntN(2) == 0}
		all, schemas = append(all, p), append(schemas, p.key+":"+p.schema)
		if p.required {
			required = append(required, p.key)
		}
	}
	schema := `{"type":"object","properties":{` + strings.Join(schemas, ",") + `},"required":[` + strings.Join(required, ",") + `],"additionalProperties":false}`
	return sample{schema, func(r *rand.Rand) string {
		var members []string
		for _, p := range all {
			if p.required || r.IntN(2) == 0 {
				members = append(members, p.key+": "+p.value(r))
			}
		}
		return "{" + strings.Join(members, ", ") + "}"
	}}
}

// FuzzGuidesAndValidatorAgree draws schemas. Random answers under their guides must be valid, and
// the guides must accept random valid values. The validator is a library.
func FuzzGuidesAndValidatorAgree(f *testing.F) {
	v, tok := vocabulary(f)
	for seed := range uint64(tier.Of(30, 150)) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := draw(r, 0)
		guide := forms(s.schema)
		if seed%3 == 0 { // the schema refers to itself
			s.schema = `{"$defs":{"list":{"type":"object","properties":{"v":` + s.schema + `,"next":{"anyOf":[{"$ref":"#/$defs/list"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}},"$ref":"#/$defs/list"}`
			guide = forms(s.schema)
			inner := s.value
			s.value = func(r *rand.Rand) string {
				text := `null`
				for range 1 + r.IntN(3) {
					text = `{"v":` + inner(r) + `,"next":` + text + `}`
				}
				return text
			}
		}
		compiled, err := New(v, guide)
		if err != nil {
			t.Fatalf("%s: %v", s.schema, err)
		}
		for range 3 {
			text, whole := wander(t, v, tok, guide, compiled.root.Need()+r.IntN(100), r)
			if !whole || !json.Valid([]byte(text)) || violates(t, s.schema, text) != "" {
				t.Errorf("%s: the guide allows %s, whole %v: %s", s.schema, text, whole, violates(t, s.schema, text))
			}
			text = s.value(r)
			if complaint := violates(t, s.schema, text); complaint != "" {
				t.Fatalf("the test draws an invalid value: %s: %s: %s", s.schema, text, complaint)
			}
			m := compiled.Matcher()
			for _, id := range tok.Encode(text, false) {
				if err := m.Advance(id); err != nil {
					t.Fatalf("%s: the guide refuses %s: %v", s.schema, text, err)
				}
			}
			if !m.Done() {
				t.Errorf("%s: the guide does not end after %s", s.schema, text)
			}
		}
	})
}
