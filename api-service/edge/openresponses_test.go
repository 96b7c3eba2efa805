package edge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A shape is the JSON kinds that the members of an object must have, as the schema of Open Responses
// demands them: "string", "number", "bool", "array", "object", "null", or several of them.
type shape map[string]string

var (
	resourceShape = shape{
		"id": "string", "object": "string", "created_at": "number", "completed_at": "number null", "status": "string", "incomplete_details": "object null",
		"model": "string", "previous_response_id": "string null", "instructions": "string null", "output": "array", "error": "object null", "tools": "array",
		"tool_choice": "string object", "truncation": "string", "parallel_tool_calls": "bool", "text": "object", "top_p": "number", "presence_penalty": "number",
		"frequency_penalty": "number", "top_logprobs": "number", "temperature": "number", "reasoning": "object null", "user": "string null", "usage": "object null",
		"max_output_tokens": "number null", "max_tool_calls": "number null", "store": "bool", "background": "bool", "service_tier": "string", "metadata": "object",
		"safety_identifier": "string null", "prompt_cache_key": "string null",
	}
	usageShape = shape{"input_tokens": "number", "output_tokens": "number", "total_tokens": "number", "input_tokens_details": "object", "output_tokens_details": "object"}
	toolShape  = shape{"type": "string", "name": "string", "description": "string null", "parameters": "object null", "strict": "bool null"}
	itemShapes = map[string]shape{
		"message":       {"id": "string", "status": "string", "role": "string", "content": "array"},
		"function_call": {"id": "string", "status": "string", "call_id": "string", "name": "string", "arguments": "string"},
		"reasoning":     {"id": "string", "summary": "array", "content": "array"},
	}
	ofPart      = shape{"item_id": "string", "output_index": "number", "content_index": "number"}
	ofCall      = shape{"item_id": "string", "output_index": "number"}
	eventShapes = map[string][]shape{
		"response.created": {{"response": "object"}}, "response.in_progress": {{"response": "object"}}, "response.completed": {{"response": "object"}},
		"response.output_item.added": {{"output_index": "number", "item": "object"}}, "response.output_item.done": {{"output_index": "number", "item": "object"}},
		"response.content_part.added": {ofPart, {"part": "object"}}, "response.content_part.done": {ofPart, {"part": "object"}},
		"response.output_text.delta": {ofPart, {"delta": "string", "logprobs": "array"}}, "response.output_text.done": {ofPart, {"text": "string", "logprobs": "array"}},
		"response.function_call_arguments.delta": {ofCall, {"delta": "string"}}, "response.function_call_arguments.done": {ofCall, {"arguments": "string"}},
	}
)

// kindOf returns the kind of a JSON value.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	default:
		return "object"
	}
}

// check reports members of an object that are missing or of another kind.
func (s shape) check(t *testing.T, of string, object map[string]any) {
	t.Helper()
	for name, kinds := range s {
		if v, ok := object[name]; !ok || !slices.Contains(strings.Fields(kinds), kindOf(v)) {
			t.Errorf("%s: %s is %v, and must be %s", of, name, v, kinds)
		}
	}
}

// checkResource checks a response object.
func checkResource(t *testing.T, of string, r map[string]any) {
	t.Helper()
	resourceShape.check(t, of, r)
	if u, ok := r["usage"].(map[string]any); ok {
		usageShape.check(t, of+" usage", u)
	}
	for _, tool := range r["tools"].([]any) {
		toolShape.check(t, of+" tool", tool.(map[string]any))
	}
	for _, item := range r["output"].([]any) {
		item := item.(map[string]any)
		itemShapes[fmt.Sprint(item["type"])].check(t, of+" item", item)
	}
}

// TestOpenResponses has the acceptance tests of the Open Responses specification: each request gets a
// response of the published schema, in one body and as events.
func TestOpenResponses(t *testing.T) {
	base, _ := start(t, nil)
	message := func(role, text string) string {
		return `{"type":"message","role":"` + role + `","content":"` + text + `"}`
	}
	const hello, calls = "start m say hello end x", "start m call {} end x"
	for name, c := range map[string]struct{ body, output string }{
		"basic text":    {`"input":[` + message("user", hello) + `]`, "message"},
		"system prompt": {`"input":[` + message("system", hello) + `,` + message("user", "Say hello.") + `]`, "message"},
		"tool calling": {`"input":[` + message("user", calls) + `],"tools":[{"type":"function","name":"get_weather","description":"d",
			"parameters":{"type":"object","properties":{"location":{"type":"string"}},"required":["location"]}},{"type":"function","name":"f"}]`, "function_call"},
		"multi-turn": {`"input":[` + message("user", hello) + `,` + message("assistant", "Hello!") + `,` + message("user", "What is my name?") + `]`, "message"},
	} {
		body := `{"model":"m",` + c.body
		resp := ask(t, http.MethodPost, base+"/v1/responses", body+`,"stream":false}`)
		var got map[string]any
		if err := json.Unmarshal([]byte(whole(t, resp)), &got); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(name, resp.Status, err)
		}
		checkResource(t, name, got)
		if output := got["output"].([]any); got["status"] != "completed" || len(output) == 0 || output[len(output)-1].(map[string]any)["type"] != c.output {
			t.Errorf("%s: %v", name, got)
		}
		events := whole(t, ask(t, http.MethodPost, base+"/v1/responses", body+`,"stream":true}`))
		last := map[string]any{}
		for block := range strings.SplitSeq(strings.TrimSpace(events), "\n\n") {
			label, data, _ := strings.Cut(block, "\ndata: ")
			if err := json.Unmarshal([]byte(data), &last); err != nil {
				t.Fatal(name, block, err)
			}
			kind := fmt.Sprint(last["type"])
			shapes, known := eventShapes[kind]
			if !known || label != "event: "+kind {
				t.Errorf("%s: the event %s", name, block)
			}
			for _, s := range append(shapes, shape{"sequence_number": "number"}) {
				s.check(t, name+" "+kind, last)
			}
			if r, ok := last["response"].(map[string]any); ok {
				checkResource(t, name+" "+kind, r)
			}
		}
		if last["type"] != "response.completed" {
			t.Errorf("%s: the last event is %v", name, last)
		}
	}
}
