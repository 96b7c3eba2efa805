package e2e

import (
	"bytes"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A shape is the schema of an object: OpenAI's in testdata/openai, or our own.
type shape struct{ schema *jsonschema.Schema }

// ours are our own fields in OpenAI's objects.
var ours = map[string]map[string]any{
	"Error": {
		"whence": map[string]any{"type": "object", "required": []any{"reason"}, "additionalProperties": false, "properties": map[string]any{
			"reason": map[string]any{"type": "string", "minLength": 1},
			"origin": map[string]any{"type": "string", "minLength": 1},
			"path":   map[string]any{"type": "array", "minItems": 1, "items": map[string]any{"type": "string"}},
		}},
	},
	"Model": {
		"context_length": map[string]any{"type": "integer", "minimum": 1},
		"aliases":        map[string]any{"type": "array", "minItems": 1, "items": map[string]any{"type": "string"}},
		"embeddings":     map[string]any{"const": true},
		"sampling":       map[string]any{"type": "array", "minItems": 1, "items": map[string]any{"type": "string"}},
		"workers": map[string]any{"type": "object", "required": []any{"healthy", "known"}, "properties": map[string]any{
			"healthy": map[string]any{"type": "integer", "minimum": 0}, "known": map[string]any{"type": "integer", "minimum": 0},
		}},
		"template": map[string]any{"type": "object", "required": []any{"system", "calls"}, "properties": map[string]any{
			"system": map[string]any{"type": "array", "items": map[string]any{"enum": []any{"first", "leading", "later"}}}, "calls": map[string]any{"type": "boolean"},
			"tool_format": map[string]any{"const": "hermes"}, "reasoning_tags": map[string]any{"type": "array", "minItems": 2, "maxItems": 2, "items": map[string]any{"type": "string"}},
		}},
	},
}

// texts describes text completions as OpenAI's reference does. A streamed completion has no
// finish_reason until its end, which the reference does not say.
const texts = `{
	"type": "object", "required": ["id", "object", "created", "model", "choices"],
	"properties": {
		"id": {"type": "string"}, "created": {"type": "integer"}, "model": {"type": "string"}, "object": {"const": "text_completion"},
		"usage": {"$ref": "#/components/schemas/CompletionUsage", "nullable": true},
		"choices": {"type": "array", "items": {
			"type": "object", "required": ["finish_reason", "index", "logprobs", "text"],
			"properties": {
				"index": {"type": "integer"}, "text": {"type": "string"}, "finish_reason": {"type": "string", "enum": ["stop", "length", "content_filter"], "nullable": true},
				"logprobs": {"type": "object", "nullable": true, "required": ["tokens", "token_logprobs", "top_logprobs", "text_offset"], "properties": {
					"tokens": {"type": "array", "items": {"type": "string"}}, "token_logprobs": {"type": "array", "items": {"type": "number", "maximum": 0, "nullable": true}},
					"top_logprobs": {"type": "array", "items": {"type": "object", "nullable": true, "additionalProperties": {"type": "number", "maximum": 0}}},
					"text_offset": {"type": "array", "items": {"type": "integer", "minimum": 0}}
				}}
			}
		}}
	}
}`

// vectors describes embeddings as OpenAI's reference does, with a string as the value if base64 was
// requested.
const vectors = `{
	"type": "object", "required": ["object", "data", "model", "usage"],
	"properties": {
		"object": {"const": "list"}, "model": {"type": "string"},
		"data": {"type": "array", "minItems": 1, "items": {
			"type": "object", "required": ["index", "object", "embedding"],
			"properties": {
				"index": {"type": "integer", "minimum": 0}, "object": {"const": "embedding"},
				"embedding": {"oneOf": [{"type": "array", "minItems": 1, "items": {"type": "number"}}, {"type": "string", "minLength": 1}]}
			}
		}},
		"usage": {"type": "object", "required": ["prompt_tokens", "total_tokens"], "properties": {"prompt_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"}}}
	}
}`

// compiled holds the shapes by OpenAI's names.
var compiled = sync.OnceValues(func() (map[string]shape, error) {
	f, err := os.Open("testdata/openai/openapi.json")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	doc, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		return nil, err
	}
	schemas, _ := doc.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any)
	for name, text := range map[string]string{"CreateCompletionResponse": texts, "CreateEmbeddingResponse": vectors} {
		if schemas[name], err = jsonschema.UnmarshalJSON(strings.NewReader(text)); err != nil {
			return nil, err
		}
	}
	for name, fields := range ours {
		properties, _ := schemas[name].(map[string]any)["properties"].(map[string]any)
		maps.Copy(properties, fields)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("openapi.json", strict(doc)); err != nil {
		return nil, err
	}
	shapes := map[string]shape{}
	for _, name := range []string{"CreateChatCompletionResponse", "CreateChatCompletionStreamResponse", "CreateCompletionResponse", "CreateEmbeddingResponse", "ErrorResponse", "ListModelsResponse", "Model"} {
		s, err := compiler.Compile("openapi.json#/components/schemas/" + name)
		if err != nil {
			return nil, err
		}
		shapes[name] = shape{s}
	}
	return shapes, nil
})

// strict converts an OpenAPI schema to a JSON schema: null where it is allowed, and no undescribed
// fields.
func strict(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = strict(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = strict(v[name])
		}
		if v["type"] == "object" && v["properties"] != nil && v["additionalProperties"] == nil {
			v["additionalProperties"] = false
		}
		if v["nullable"] == true {
			delete(v, "nullable")
			return map[string]any{"anyOf": []any{v, map[string]any{"type": "null"}}}
		}
	}
	return v
}

// shapeOf returns a shape by OpenAI's name for it.
func shapeOf(t *testing.T, name string) shape {
	t.Helper()
	all, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	if all[name].schema == nil {
		t.Fatal("there is no schema of", name)
	}
	return all[name]
}

func (s shape) want(t *testing.T, what string, body []byte) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = s.schema.Validate(v)
	}
	if err != nil {
		t.Errorf("%s: %v, in %s", what, err, body)
	}
}

func (w *whence) get(t *testing.T, path string) reply {
	t.Helper()
	return replyTo(t)(w.http.Get(w.url(path)))
}

func TestBodiesHaveTheShapeThatOpenAIDescribes(t *testing.T) {
	completionShape, chunkShape := shapeOf(t, "CreateChatCompletionResponse"), shapeOf(t, "CreateChatCompletionStreamResponse")
	textShape, errorShape := shapeOf(t, "CreateCompletionResponse"), shapeOf(t, "ErrorResponse")
	eachTopology(t, flags{worker: []string{"--pace", "400"}, all: []string{"--drain", "1ms"}}, func(t *testing.T, w *whence) {
		usage := map[string]any{"include_usage": true}
		for what, a := range map[string]ask{
			"chat": greedy(short), "cut chat": greedy(short, "max_tokens", 1), "choices": greedy(short, "n", 3, "max_tokens", 3),
			"logprobs": greedy(short, "n", 2, "logprobs", true, "top_logprobs", 3), "tokens alone": greedy("", "logprobs", true, "stop", "What"),
		} {
			completionShape.want(t, what, w.post(t, a).body)
			for _, options := range []any{nil, usage} {
				a["stream_options"] = options
				for _, data := range events(t, w.stream(t, a, "").body) {
					if data != "[DONE]" {
						chunkShape.want(t, what+" in pieces", []byte(data))
					}
				}
			}
		}
		for what, a := range map[string]ask{
			"completion": texted("Once upon a time"), "several": texted([]string{"The", "A"}, "n", 2), "ids": texted([]int{1, 2, 3}, "logprobs", 0),
			"likeliest": texted([][]int{{1}, {2}}, "logprobs", 3, "temperature", 1), "echo": texted("Once upon a time", "echo", true),
			"likelihood": texted("Once upon a time", "echo", true, "logprobs", 1, "max_tokens", 0),
		} {
			textShape.want(t, what, w.postTo(t, "/v1/completions", a).body)
			a["stream"], a["stream_options"] = true, usage
			for _, data := range events(t, w.postTo(t, "/v1/completions", a).body) {
				if data != "[DONE]" {
					textShape.want(t, what+" in pieces", []byte(data))
				}
			}
		}
		errorShape.want(t, "refusal by the edge", w.post(t, greedy(short, "n", -1)).body)
		errorShape.want(t, "refusal further in", w.post(t, greedy(short, "model", "none")).body)
		errorShape.want(t, "refusal of a prompt", w.postTo(t, "/v1/completions", texted([][]int{{1}, {99999}})).body)
		errorShape.want(t, "no such path", w.get(t, "/nowhere").body)
		shapeOf(t, "ListModelsResponse").want(t, "models", w.get(t, "/v1/models").body)
		shapeOf(t, "Model").want(t, "model", w.get(t, "/v1/models/"+model).body)

		running := w.open(t, greedy(long))
		running.begun(t)
		w.all()[0].terminate(t)
		for {
			e, err := running.events.Next()
			if err != nil {
				t.Fatalf("there was no error: %v", err)
			}
			if strings.HasPrefix(e.Data, `{"error"`) {
				errorShape.want(t, "error in a stream", []byte(e.Data))
				break
			}
			chunkShape.want(t, "chunk", []byte(e.Data))
		}
		w.all()[0].exit(t)
	})
}
