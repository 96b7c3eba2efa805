// Package sdk_test runs Ollama's official Go client against a whence at WHENCE_URL. TestOllamaGo in e2e starts
// both:
//
//	WHENCE_URL=http://127.0.0.1:8080 go test ./...
//
// The module is separate, so that the client's dependencies do not become dependencies of Whence.
package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ollama/ollama/api"
)

const (
	model = "whence-tiny"
	short = "What happens when I close the tab?"
	long  = "Tell me a long story about a fox in the harbor."
)

func sdk(t *testing.T) *api.Client {
	t.Helper()
	base, err := url.Parse(os.Getenv("WHENCE_URL"))
	if err != nil || base.Host == "" {
		t.Fatal("WHENCE_URL is not set", err)
	}
	return api.NewClient(base, http.DefaultClient)
}

// greedy are the options of an answer that is the same each time.
func greedy(tokens int) map[string]any {
	return map[string]any{"temperature": 0.0, "num_predict": tokens, "seed": 7}
}

func chat(stream bool, prompt string, tokens int) *api.ChatRequest {
	return &api.ChatRequest{Model: model, Messages: []api.Message{{Role: "user", Content: prompt}}, Stream: &stream, Options: greedy(tokens)}
}

// TestChat: a streamed answer and a whole one have the same text, and the figures of the last message.
func TestChat(t *testing.T) {
	texts := map[bool]string{}
	for _, stream := range []bool{true, false} {
		var pieces int
		var last api.ChatResponse
		err := sdk(t).Chat(t.Context(), chat(stream, short, 40), func(r api.ChatResponse) error {
			texts[stream] += r.Message.Content
			pieces, last = pieces+1, r
			return nil
		})
		if err != nil || !last.Done || last.DoneReason == "" || last.EvalCount == 0 || last.PromptEvalCount == 0 || last.Model != model || last.CreatedAt.IsZero() || stream != (pieces > 1) {
			t.Errorf("stream %t: %v, %d pieces, the last is %+v", stream, err, pieces, last)
		}
	}
	if texts[true] == "" || texts[true] != texts[false] {
		t.Errorf("streamed %q, whole %q", texts[true], texts[false])
	}
}

// TestTools: a call has its arguments as an object, and its result comes back.
func TestTools(t *testing.T) {
	properties := `{"type":"function","function":{"name":"get","description":"d","parameters":{"type":"object","required":["city"],"properties":{"city":{"type":"string","description":"c"}}}}}`
	var tool api.Tool
	var arguments api.ToolCallFunctionArguments
	if err := errors.Join(json.Unmarshal([]byte(properties), &tool), json.Unmarshal([]byte(`{"city":"Oslo"}`), &arguments)); err != nil {
		t.Fatal(err)
	}
	req := chat(false, short, 20)
	req.Tools = api.Tools{tool}
	req.Messages = append(req.Messages,
		api.Message{Role: "assistant", ToolCalls: []api.ToolCall{{Function: api.ToolCallFunction{Name: "get", Arguments: arguments}}}},
		api.Message{Role: "tool", ToolName: "get", Content: "rain"})
	done := false
	if err := sdk(t).Chat(t.Context(), req, func(r api.ChatResponse) error { done = r.Done; return nil }); err != nil || !done {
		t.Error(err, done)
	}
}

// TestFormat: an answer follows a schema.
func TestFormat(t *testing.T) {
	req := chat(true, short, 60)
	req.Format = json.RawMessage(`{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"],"additionalProperties":false}`)
	var text string
	if err := sdk(t).Chat(t.Context(), req, func(r api.ChatResponse) error { text += r.Message.Content; return nil }); err != nil {
		t.Fatal(err)
	}
	var answer map[string]bool
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer) != 1 {
		t.Errorf("%q: %v", text, err)
	}
}

func TestGenerate(t *testing.T) {
	texts := map[bool]string{}
	for _, stream := range []bool{true, false} {
		var last api.GenerateResponse
		err := sdk(t).Generate(t.Context(), &api.GenerateRequest{Model: model, Prompt: short, System: "s", Stream: &stream, Options: greedy(30)}, func(r api.GenerateResponse) error {
			texts[stream] += r.Response
			last = r
			return nil
		})
		if err != nil || !last.Done || last.EvalCount == 0 {
			t.Errorf("stream %t: %v, %+v", stream, err, last)
		}
	}
	if texts[true] == "" || texts[true] != texts[false] {
		t.Errorf("streamed %q, whole %q", texts[true], texts[false])
	}
	loaded := false // without a prompt, a request only loads the model
	if err := sdk(t).Generate(t.Context(), &api.GenerateRequest{Model: model}, func(r api.GenerateResponse) error { loaded = r.Done; return nil }); err != nil || !loaded {
		t.Error(err, loaded)
	}
}

func TestEmbed(t *testing.T) {
	resp, err := sdk(t).Embed(t.Context(), &api.EmbedRequest{Model: model, Input: []string{"a", "b"}})
	if err != nil || len(resp.Embeddings) != 2 || len(resp.Embeddings[0]) == 0 || slices.Equal(resp.Embeddings[0], resp.Embeddings[1]) {
		t.Errorf("%v %+v", err, resp)
	}
	old, err := sdk(t).Embeddings(t.Context(), &api.EmbeddingRequest{Model: model, Prompt: "a"})
	if err != nil || len(old.Embedding) != len(resp.Embeddings[0]) {
		t.Errorf("%v %+v", err, old)
	}
}

// TestCatalog: the models, what is known of one, and the version.
func TestCatalog(t *testing.T) {
	c := sdk(t)
	list, err := c.List(t.Context())
	if err != nil || len(list.Models) != 1 || !strings.HasPrefix(list.Models[0].Name, model) || list.Models[0].Digest == "" {
		t.Errorf("%v %+v", err, list)
	}
	running, err := c.ListRunning(t.Context())
	if err != nil || len(running.Models) != 1 || !strings.HasPrefix(running.Models[0].Name, model) {
		t.Errorf("%v %+v", err, running)
	}
	show, err := c.Show(t.Context(), &api.ShowRequest{Model: model})
	if err != nil || len(show.Capabilities) == 0 || len(show.ModelInfo) == 0 {
		t.Errorf("%v %+v", err, show)
	}
	if version, err := c.Version(t.Context()); err != nil || version == "" {
		t.Error(version, err)
	}
	if err := c.Heartbeat(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestErrors: the client has the status and the words of a refusal.
func TestErrors(t *testing.T) {
	req := chat(true, short, 5)
	req.Model = "nobody"
	err := sdk(t).Chat(t.Context(), req, func(api.ChatResponse) error { return nil })
	var status api.StatusError
	if !errors.As(err, &status) || status.StatusCode != http.StatusNotFound || !strings.Contains(status.ErrorMessage, "nobody") {
		t.Errorf("%+v", err)
	}
	err = sdk(t).Delete(t.Context(), &api.DeleteRequest{Model: model})
	if !errors.As(err, &status) || !strings.Contains(status.ErrorMessage, "cards") {
		t.Errorf("%+v", err)
	}
}

// TestCancel: a client that leaves in mid-answer gets no ending. Ollama's client returns nil then, as it does
// after any body that breaks off. The caller of these tests checks that the stream has ended.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pieces, done := 0, false
	err := sdk(t).Chat(ctx, chat(true, long, 500), func(r api.ChatResponse) error {
		pieces, done = pieces+1, done || r.Done
		cancel()
		return nil
	})
	if err != nil && !errors.Is(err, context.Canceled) || pieces == 0 || done {
		t.Errorf("%v after %d pieces, done %t", err, pieces, done)
	}
}
