package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// sdk returns the official client with our address.
func (w *whence) sdk() openai.Client {
	return openai.NewClient(option.WithBaseURL(w.url("/v1/")), option.WithAPIKey("unused"), option.WithHTTPClient(w.http), option.WithMaxRetries(0))
}

func asked(prompt string, temperature float64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:       model,
		Temperature: param.NewOpt(temperature),
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
	}
}

// whole requests an unstreamed answer.
func whole(t *testing.T, c *openai.Client, p openai.ChatCompletionNewParams) *openai.ChatCompletion {
	t.Helper()
	answer, err := c.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// streamed requests a streamed answer, and joins its pieces with the SDK.
func streamed(t *testing.T, c *openai.Client, p openai.ChatCompletionNewParams) *openai.ChatCompletion {
	t.Helper()
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			t.Fatalf("the SDK cannot add %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return &all.ChatCompletion
}

// same checks that streamed and unstreamed answers are equal, and returns the answer.
func same(t *testing.T, c *openai.Client, p openai.ChatCompletionNewParams) openai.ChatCompletionChoice {
	t.Helper()
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	want := whole(t, c, p)
	p.StreamOptions.IncludeUsage = param.NewOpt(true)
	got := streamed(t, c, p)
	if len(want.Choices) != 1 || len(got.Choices) != 1 {
		t.Fatalf("%d choices, streamed %d", len(want.Choices), len(got.Choices))
	}
	if got.Choices[0].Message.Content != want.Choices[0].Message.Content || got.Choices[0].FinishReason != want.Choices[0].FinishReason {
		t.Errorf("streamed %q (%s), unstreamed %q (%s)", got.Choices[0].Message.Content, got.Choices[0].FinishReason,
			want.Choices[0].Message.Content, want.Choices[0].FinishReason)
	}
	if got.Usage.PromptTokens == 0 || got.Usage.CompletionTokens == 0 || got.Usage.TotalTokens != got.Usage.PromptTokens+got.Usage.CompletionTokens {
		t.Errorf("usage %+v", got.Usage)
	}
	// The number of tokens by which the engine was ahead of a stop string varies.
	if got.Usage.PromptTokens != want.Usage.PromptTokens || len(p.Stop.OfStringArray) == 0 && got.Usage.CompletionTokens != want.Usage.CompletionTokens {
		t.Errorf("usage streamed %+v, unstreamed %s", got.Usage, want.Usage.RawJSON())
	}
	return want.Choices[0]
}

func TestOpenAIGoGetsTheSameAnswerStreamedAndWhole(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		c := w.sdk()
		if got := same(t, &c, asked(short, 0)); got.FinishReason != "stop" || !strings.HasPrefix(got.Message.Content, "When you close the tab,") {
			t.Errorf("%q (%s)", got.Message.Content, got.FinishReason)
		}
		cut := asked(short, 0)
		cut.MaxTokens = param.NewOpt[int64](5)
		if got := same(t, &c, cut); got.FinishReason != "length" || got.Message.Content == "" {
			t.Errorf("5 tokens: %q (%s)", got.Message.Content, got.FinishReason)
		}
		cut = asked(short, 0)
		cut.MaxCompletionTokens = param.NewOpt[int64](5)
		if got := whole(t, &c, cut); got.Usage.CompletionTokens != 5 || got.Choices[0].FinishReason != "length" {
			t.Errorf("5 tokens: %s", got.RawJSON())
		}
	})
}

func TestOpenAIGoListsAndFindsModels(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		c := w.sdk()
		list, err := c.Models.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Data) != 1 || list.Data[0].ID != model || list.Data[0].Created == 0 || list.Data[0].OwnedBy == "" {
			t.Errorf("models: %s", list.RawJSON())
		}
		one, err := c.Models.Get(t.Context(), model)
		if err != nil {
			t.Fatal(err)
		}
		if one.RawJSON() != list.Data[0].RawJSON() {
			t.Errorf("model %s, in the list %s", one.RawJSON(), list.Data[0].RawJSON())
		}
		_, err = c.Models.Get(t.Context(), "no/such model")
		wantAPIError(t, err, http.StatusNotFound, "invalid_request_error", "model_not_found", "model")
	})
}

func TestOpenAIGoUnderstandsRefusals(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		c := w.sdk()
		for _, test := range []struct {
			change              func(*openai.ChatCompletionNewParams)
			status              int
			kind, code, atFault string
		}{
			{func(p *openai.ChatCompletionNewParams) { p.Model = "gpt-4o" }, http.StatusNotFound, "invalid_request_error", "model_not_found", "model"},
			{func(p *openai.ChatCompletionNewParams) { p.Temperature = param.NewOpt(3.0) }, http.StatusBadRequest, "invalid_request_error", "decimal_above_max_value", "temperature"},
			{func(p *openai.ChatCompletionNewParams) {
				p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("word ", 5000))}
			}, http.StatusBadRequest, "invalid_request_error", "context_length_exceeded", "messages"},
			{func(p *openai.ChatCompletionNewParams) { p.N = param.NewOpt[int64](17) }, http.StatusBadRequest, "invalid_request_error", "integer_above_max_value", "n"},
		} {
			p := asked(short, 0)
			test.change(&p)
			_, err := c.Chat.Completions.New(t.Context(), p)
			wantAPIError(t, err, test.status, test.kind, test.code, test.atFault)
			stream := c.Chat.Completions.NewStreaming(t.Context(), p)
			if stream.Next() {
				t.Errorf("a chunk: %s", stream.Current().RawJSON())
			}
			wantAPIError(t, stream.Err(), test.status, test.kind, test.code, test.atFault)
		}
	})
}

func TestOpenAIGoReportsAFailedStream(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{worker: []string{"--pace", "50"}})
	c := w.sdk()
	stream := c.Chat.Completions.NewStreaming(t.Context(), asked(long, 0))
	defer stream.Close()
	if !stream.Next() || !stream.Next() {
		t.Fatal(stream.Err())
	}
	w.processes[llmWorker].kill(t)
	for stream.Next() {
	}
	failed, ok := errors.AsType[*ssestream.StreamError](stream.Err())
	if !ok {
		t.Fatalf("the SDK reports %v", stream.Err())
	}
	var body struct{ Error refusal }
	if err := json.Unmarshal(failed.Event.Data, &body); err != nil || body.Error.reason() != "peer_lost" {
		t.Errorf("%s: %v", failed.Event.Data, err)
	}
}

// wantAPIError checks the fields of the SDK's error.
func wantAPIError(t *testing.T, err error, status int, kind, code, atFault string) {
	t.Helper()
	e, ok := errors.AsType[*openai.Error](err)
	if !ok {
		t.Errorf("the SDK reports %v", err)
		return
	}
	if e.StatusCode != status || e.Type != kind || e.Code != code || e.Param != atFault || e.Message == "" {
		t.Errorf("status %d, type %q, code %q, param %q, message %q; want %d, %q, %q, %q", e.StatusCode, e.Type, e.Code, e.Param, e.Message, status, kind, code, atFault)
	}
}
