package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A shape is what OpenAI's description of its API says of an object: the fields that must be there, those that may be
// there, and what is allowed in each.
type shape struct{ required, optional map[string]check }

// A check says what is wrong with a value of JSON, or "".
type check func(v any) string

func isString(v any) string {
	if _, ok := v.(string); !ok {
		return "not a string"
	}
	return ""
}

func isCount(v any) string {
	if n, ok := v.(float64); !ok || n < 0 || n != float64(int64(n)) {
		return "not a count"
	}
	return ""
}

func isNull(v any) string {
	if v != nil {
		return "not null"
	}
	return ""
}

// is allows these values.
func is(allowed ...any) check {
	return func(v any) string {
		for _, a := range allowed {
			if v == a {
				return ""
			}
		}
		return "not one of those allowed"
	}
}

// either allows what one of checks does.
func either(checks ...check) check {
	return func(v any) string {
		var found string
		for _, c := range checks {
			if found = c(v); found == "" {
				return ""
			}
		}
		return found
	}
}

// list allows arrays of at least some items.
func list(least int, item check) check {
	return func(v any) string {
		items, ok := v.([]any)
		if !ok || len(items) < least {
			return "not an array, or too short"
		}
		for _, v := range items {
			if found := item(v); found != "" {
				return "[]: " + found
			}
		}
		return ""
	}
}

func (s shape) check(v any) string {
	fields, ok := v.(map[string]any)
	if !ok {
		return "not an object"
	}
	for _, name := range slices.Sorted(maps.Keys(s.required)) {
		v, ok := fields[name]
		if !ok {
			return name + " is missing"
		}
		if found := s.required[name](v); found != "" {
			return name + ": " + found
		}
	}
	for name, v := range fields {
		if s.required[name] != nil {
			continue
		}
		c := s.optional[name]
		if c == nil {
			return name + " is unknown"
		}
		if found := c(v); found != "" {
			return name + ": " + found
		}
	}
	return ""
}

// The objects that clients get. What is not OpenAI's is said so.
var (
	usageShape = shape{
		map[string]check{"prompt_tokens": isCount, "completion_tokens": isCount, "total_tokens": isCount},
		map[string]check{"prompt_tokens_details": shape{nil, map[string]check{"cached_tokens": isCount}}.check},
	}
	completionShape = shape{map[string]check{
		"id": isString, "object": is("chat.completion"), "created": isCount, "model": isString,
		"choices": list(1, shape{map[string]check{
			"index": isCount, "logprobs": isNull, "finish_reason": is("stop", "length"),
			"message": shape{map[string]check{"role": is("assistant"), "content": isString, "refusal": isNull}, nil}.check,
		}, nil}.check),
	}, map[string]check{"usage": usageShape.check}}
	chunkShape = shape{map[string]check{
		"id": isString, "object": is("chat.completion.chunk"), "created": isCount, "model": isString,
		"choices": list(0, shape{map[string]check{
			"index": isCount, "finish_reason": is(nil, "stop", "length"),
			"delta": shape{nil, map[string]check{"role": is("assistant"), "content": isString, "refusal": isNull}}.check,
		}, map[string]check{"logprobs": isNull}}.check),
	}, map[string]check{"usage": either(isNull, usageShape.check)}}
	errorShape = shape{map[string]check{"error": shape{
		map[string]check{"message": isString, "type": isString, "param": either(isNull, isString), "code": either(isNull, isString)},
		map[string]check{"path": list(1, isString)}, // not OpenAI's
	}.check}, nil}
	modelShape = shape{
		map[string]check{"id": isString, "object": is("model"), "created": isCount, "owned_by": isString},
		map[string]check{"context_length": isCount, "sampling": list(1, isString), "workers": shape{map[string]check{"healthy": isCount, "known": isCount}, nil}.check}, // not OpenAI's
	}
	modelsShape = shape{map[string]check{"object": is("list"), "data": list(1, modelShape.check)}, nil}
)

func (s shape) want(t *testing.T, what string, body []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Errorf("%s: %q: %v", what, body, err)
	} else if found := s.check(v); found != "" {
		t.Errorf("%s: %s, in %s", what, found, body)
	}
}

func (w *whence) get(t *testing.T, path string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return readAll(t, resp)
}

func TestBodiesHaveTheShapeThatOpenAIDescribes(t *testing.T) {
	eachTopology(t, flags{worker: []string{"--pace", "400"}, all: []string{"--drain", "1ms"}}, func(t *testing.T, w *whence) {
		completionShape.want(t, "completion", w.post(t, greedy(short)).body)
		completionShape.want(t, "cut completion", w.post(t, greedy(short, "max_tokens", 1)).body)
		for _, options := range []any{nil, map[string]any{"include_usage": true}} {
			for _, data := range events(t, w.stream(t, greedy(short, "stream_options", options), "").body) {
				if data != "[DONE]" {
					chunkShape.want(t, "chunk", []byte(data))
				}
			}
		}
		errorShape.want(t, "refusal by the edge", w.post(t, greedy(short, "n", 2)).body)
		errorShape.want(t, "refusal further in", w.post(t, greedy(short, "model", "none")).body)
		errorShape.want(t, "no such path", w.get(t, "/nowhere").body)
		modelsShape.want(t, "models", w.get(t, "/v1/models").body)
		modelShape.want(t, "model", w.get(t, "/v1/models/"+model).body)

		running := w.open(t, greedy(long))
		running.begun(t)
		w.all()[0].terminate(t)
		for {
			f, err := frame(running.frames)
			if err != nil {
				t.Fatalf("no error came: %v", err)
			}
			data := strings.TrimPrefix(f, "data: ")
			if strings.HasPrefix(data, `{"error"`) {
				errorShape.want(t, "error in a stream", []byte(data))
				break
			}
			chunkShape.want(t, "chunk", []byte(data))
		}
		w.all()[0].exit(t)
	})
}
