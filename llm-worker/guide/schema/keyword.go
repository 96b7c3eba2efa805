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
	{Name: "enum", Limits: "beside it only `type`"},
	{Name: "const", Limits: "beside it only `type`"},
	{Name: "$ref", Limits: "a JSON pointer into the same schema, which may contain itself"},
	{Name: "anyOf", Limits: "only one `anyOf` or `oneOf` among schemas that must hold together"},
	{Name: "oneOf", Limits: "as `anyOf`, and no value may be valid under two branches: they must differ in their types, in their constants, or in the constants of a property that all of them require"},
	{Name: "allOf", Limits: "its schemas, and the keywords beside it, must not differ in `pattern`, `format`, `multipleOf`, `propertyNames`, `patternProperties` and `prefixItems`"},
	{Name: "properties", Limits: "written in this order", implies: "object"},
	{Name: "required", implies: "object"},
	{Name: "additionalProperties", Limits: "a schema or a boolean; beside `properties` no other properties are written", implies: "object"},
	{Name: "propertyNames", Limits: "not beside `properties` or `required`", implies: "object"},
	{Name: "patternProperties", Limits: "with one pattern: only names that match it are written; not beside `properties`, `required` or `propertyNames`", implies: "object"},
	{Name: "items", Limits: "a schema or a boolean", implies: "array"},
	{Name: "prefixItems", implies: "array"},
	{Name: "minItems", implies: "array"},
	{Name: "maxItems", implies: "array"},
	{Name: "uniqueItems", Limits: "only `false`"},
	{Name: "minLength", implies: "string"},
	{Name: "maxLength", implies: "string"},
	{Name: "pattern", Limits: "ECMA-262 without lookaround, backreferences and word boundaries", implies: "string"},
	{Name: "format", Limits: "see below", implies: "string"},
	{Name: "minimum", implies: "number"},
	{Name: "maximum", implies: "number"},
	{Name: "exclusiveMinimum", implies: "number"},
	{Name: "exclusiveMaximum", implies: "number"},
	{Name: "multipleOf", Limits: "1, 0.1, 0.01 and further negative powers of ten", implies: "number"},
}

// Annotations are keywords that do not affect validity. They are ignored, and so is every keyword
// that begins with x-.
var Annotations = []string{
	"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "example", "examples", "deprecated",
	"readOnly", "writeOnly", "contentEncoding", "contentMediaType", "discriminator", "externalDocs", "strict",
}

var enforced, annotations = func() (enforced, ignored map[string]bool) {
	enforced, ignored = map[string]bool{}, map[string]bool{}
	for _, k := range Keywords {
		enforced[k.Name] = true
	}
	for _, name := range Annotations {
		ignored[name] = true
	}
	return enforced, ignored
}()
