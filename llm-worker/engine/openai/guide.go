package openai

import (
	"encoding/json"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside/guided"
)

// guideFields are the fields that a guide adds to the body of POST /v1/completions.
type guideFields struct {
	ResponseFormat any `json:"response_format,omitempty"` // vLLM's and Whence's
	JSONSchema     any `json:"json_schema,omitempty"`     // SGLang's, as a string, and llama.cpp's
}

// guideBy returns the fields for a server of a kind that honours the guide.
func guideBy(k *kind, g *llmv1.Guide) guideFields {
	if g == nil {
		return guideFields{}
	}
	schema, alone := guided.Schema(g)
	switch {
	case (k == vllm || k == whence) && alone:
		return guideFields{ResponseFormat: map[string]any{
			"type": "json_schema", "json_schema": map[string]any{"name": "answer", "schema": json.RawMessage(schema)},
		}}
	case k == vllm:
		// Versions that do not know the format of this tag refuse the request.
		return guideFields{ResponseFormat: guided.StructuralTag(g)}
	case k == sglang:
		return guideFields{JSONSchema: schema}
	default:
		return guideFields{JSONSchema: json.RawMessage(schema)}
	}
}
