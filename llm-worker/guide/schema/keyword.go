package schema

// A Keyword is a keyword of JSON Schema that guides enforce.
type Keyword struct {
	Name string
	// Limits says in which form the keyword is supported, for the reference; "" means every form.
	Limits string

	implies string // the type of a schema without a type
}

// Keywords are the supported keywords, in the order of the reference.
var Keywords = []Keyword{
	{Name: "type"},
	{Name: "enum", Limits: "beside it only `type` and keywords of strings and numbers"},
	{Name: "const", Limits: "as `enum`"},
	{Name: "$ref", Limits: "a JSON pointer into the same schema, which may contain itself"},
	{Name: "anyOf"},
	{Name: "oneOf", Limits: "no value may be valid under two branches: they must differ in their types, in their constants, or in the constants of a property that all of them require, or each must require a property that the other does not (objects with both are not written)"},
	{Name: "allOf", Limits: "its schemas, and the keywords beside it, must not differ in `multipleOf`, `patternProperties` and `prefixItems`"},
	{Name: "properties", Limits: "written in this order", implies: "object"},
	{Name: "required", implies: "object"},
	{Name: "additionalProperties", Limits: "a schema or a boolean; beside `properties` no other properties are written", implies: "object"},
	{Name: "propertyNames", Limits: "an `enum`, or keywords of strings", implies: "object"},
	{Name: "patternProperties", Limits: "with at most four patterns: of the names that are not in `properties` or `required` only those that match one are written", implies: "object"},
	{Name: "minProperties", Limits: "0, 1, or at most the number of `required`", implies: "object"},
	{Name: "items", Limits: "a schema or a boolean", implies: "array"},
	{Name: "prefixItems", implies: "array"},
	{Name: "minItems", implies: "array"},
	{Name: "maxItems", implies: "array"},
	{Name: "uniqueItems", Limits: "`true` only with at most one item, or with items that are a few values (`enum`, `const`, booleans, null: up to eleven, or more with a small `maxItems`); not beside `prefixItems`", implies: "array"},
	{Name: "minLength", implies: "string"},
	{Name: "maxLength", implies: "string"},
	{Name: "pattern", Limits: "ECMA-262 without backreferences, and without lookaround within lookaround; properties of emoji", implies: "string"},
	{Name: "format", Limits: "see below", implies: "string"},
	{Name: "minimum", implies: "number"},
	{Name: "maximum", implies: "number"},
	{Name: "exclusiveMinimum", implies: "number"},
	{Name: "exclusiveMaximum", implies: "number"},
	{Name: "multipleOf", Limits: "negative powers of ten and whole numbers up to 1024; others with at most 4096 multiples between `minimum` and `maximum`", implies: "number"},
}

var enforced = func() map[string]bool {
	all := map[string]bool{}
	for _, k := range Keywords {
		all[k.Name] = true
	}
	for _, own := range further {
		all[own] = true
	}
	return all
}()
