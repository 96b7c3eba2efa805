// Package guided translates a guide into the request fields of the servers that support one.
package guided

import (
	"encoding/json"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Fields are the fields that a guide adds to the body of POST /v1/completions.
type Fields struct {
	ResponseFormat any `json:"response_format,omitempty"` // vLLM's
	JSONSchema     any `json:"json_schema,omitempty"`     // SGLang's, as a string, and llama.cpp's
}

// By returns the fields for a server of the kind vllm, sglang or llama.cpp. None of them supports
// several forms, or text around a value.
func By(kind string, g *llmv1.Guide) (Fields, error) {
	if g == nil {
		return Fields{}, nil
	}
	forms := g.GetForms()
	if len(forms) != 1 || forms[0].GetBefore()+forms[0].GetAfter() != "" || !json.Valid([]byte(forms[0].GetSchema())) {
		return Fields{}, streamerr.InvalidParam("sampling.guide", "the server that generates (%s) can be guided by one schema, and by nothing else", kind)
	}
	switch schema := forms[0].GetSchema(); kind {
	case "vllm":
		return Fields{ResponseFormat: map[string]any{
			"type": "json_schema", "json_schema": map[string]any{"name": "answer", "schema": json.RawMessage(schema)},
		}}, nil
	case "sglang":
		return Fields{JSONSchema: schema}, nil
	default:
		return Fields{JSONSchema: json.RawMessage(schema)}, nil
	}
}
