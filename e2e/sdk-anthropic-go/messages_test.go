// Package sdk_test runs Anthropic's official Go client against a whence at WHENCE_URL.
// TestAnthropicGo in e2e starts both:
//
//	WHENCE_URL=http://127.0.0.1:8080 go test ./...
//
// The module is separate, so that the client's dependencies do not become dependencies of Whence.
package sdk_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
)

const (
	model = "whence-tiny"
	short = "What happens when I close the tab?"
	long  = "Tell me a long story about a fox in the harbor."
)

// address returns the address of the service.
func address(t *testing.T) string {
	t.Helper()
	url := os.Getenv("WHENCE_URL")
	if url == "" {
		t.Fatal("WHENCE_URL is not set")
	}
	return url
}

func sdk(t *testing.T) *anthropic.Client {
	t.Helper()
	c := anthropic.NewClient(option.WithoutEnvironmentDefaults(), option.WithBaseURL(address(t)), option.WithAPIKey("unused"), option.WithMaxRetries(0))
	return &c
}

func asked(prompt string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: model, MaxTokens: 200, Temperature: param.NewOpt(0.0),
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
	}
}

// compact returns JSON without the model's white space, or "" for a block without input.
func compact(t *testing.T, input json.RawMessage) string {
	t.Helper()
	var b bytes.Buffer
	if len(input) > 0 && json.Compact(&b, input) != nil {
		t.Errorf("%s is not JSON", input)
	}
	return b.String()
}

// same checks that streamed and unstreamed answers are equal, and returns the answer.
func same(t *testing.T, c *anthropic.Client, p anthropic.MessageNewParams) *anthropic.Message {
	t.Helper()
	want, err := c.Messages.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	stream := c.Messages.NewStreaming(t.Context(), p)
	var got anthropic.Message
	for stream.Next() {
		if err := got.Accumulate(stream.Current()); err != nil {
			t.Fatalf("the SDK cannot add %s: %v", stream.Current().RawJSON(), err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if len(got.Content) != len(want.Content) || got.StopReason != want.StopReason || got.StopSequence != want.StopSequence {
		t.Fatalf("streamed %+v, unstreamed %+v", got, want)
	}
	for i, block := range got.Content {
		if block.Type != want.Content[i].Type || block.Text != want.Content[i].Text || compact(t, block.Input) != compact(t, want.Content[i].Input) {
			t.Errorf("streamed %+v, unstreamed %+v", block, want.Content[i])
		}
	}
	read := func(u anthropic.Usage) int64 { return u.InputTokens + u.CacheReadInputTokens }
	if read(got.Usage) == 0 || read(got.Usage) != read(want.Usage) || got.Usage.OutputTokens == 0 {
		t.Errorf("usage streamed %+v, unstreamed %+v", got.Usage, want.Usage)
	}
	return want
}

func TestGetsTheSameAnswerStreamedAndWhole(t *testing.T) {
	c := sdk(t)
	got := same(t, c, asked(short))
	if got.StopReason != anthropic.StopReasonEndTurn || !strings.HasPrefix(got.Content[0].Text, "When you close the tab,") {
		t.Errorf("%s", got.RawJSON())
	}
	cut := asked(short)
	cut.MaxTokens = 5
	if got := same(t, c, cut); got.StopReason != anthropic.StopReasonMaxTokens || got.Usage.OutputTokens != 5 {
		t.Errorf("5 tokens: %s", got.RawJSON())
	}
	cut = asked(short)
	cut.StopSequences = []string{" sends"}
	if got := same(t, c, cut); got.StopReason != anthropic.StopReasonStopSequence || got.StopSequence != " sends" {
		t.Errorf("a stop sequence: %s", got.RawJSON())
	}
}

func TestRunsALoopOfTools(t *testing.T) {
	c := sdk(t)
	p := asked("What is the weather in Paris?")
	p.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
		Name: "get_weather",
		InputSchema: anthropic.ToolInputSchemaParam{
			Required:    []string{"city", "unit"},
			Properties:  map[string]any{"city": map[string]any{"type": "string", "maxLength": 20}, "unit": map[string]any{"enum": []string{"C", "F"}}},
			ExtraFields: map[string]any{"additionalProperties": false},
		},
	}}}
	count, err := c.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
		Model: p.Model, Messages: p.Messages, Tools: []anthropic.MessageCountTokensToolUnionParam{{OfTool: p.Tools[0].OfTool}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.ToolChoice = anthropic.ToolChoiceUnionParam{OfAny: &anthropic.ToolChoiceAnyParam{}}
	got := same(t, c, p)
	if got.StopReason != anthropic.StopReasonToolUse || len(got.Content) != 1 || got.Content[0].Name != "get_weather" || got.Content[0].ID == "" {
		t.Fatalf("%s", got.RawJSON())
	}
	var input struct{ City, Unit *string }
	if err := json.Unmarshal(got.Content[0].Input, &input); err != nil || input.City == nil || input.Unit == nil || !slices.Contains([]string{"C", "F"}, *input.Unit) {
		t.Errorf("%s: %v", got.Content[0].Input, err)
	}
	if read := got.Usage.InputTokens + got.Usage.CacheReadInputTokens; count.InputTokens != read {
		t.Errorf("count_tokens returns %d, but the usage has %d", count.InputTokens, read)
	}
	p.ToolChoice = anthropic.ToolChoiceUnionParam{}
	p.Messages = append(p.Messages, got.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(got.Content[0].ID, "Rain.", false)))
	if got := same(t, c, p); got.StopReason != anthropic.StopReasonEndTurn || got.Content[0].Text == "" {
		t.Errorf("%s", got.RawJSON())
	}
}

func TestUnderstandsRefusals(t *testing.T) {
	c := sdk(t)
	for _, test := range []struct {
		change              func(*anthropic.MessageNewParams)
		status              int
		kind, reason, param string
		code                string
	}{
		{func(p *anthropic.MessageNewParams) { p.Model = "gpt-4o" }, http.StatusNotFound, "not_found_error", "not_found", "model", "model_not_found"},
		{func(p *anthropic.MessageNewParams) { p.Temperature = param.NewOpt(3.0) }, http.StatusBadRequest, "invalid_request_error", "invalid", "temperature", "decimal_above_max_value"},
		{func(p *anthropic.MessageNewParams) { p.Messages = asked(strings.Repeat("word ", 5000)).Messages }, http.StatusBadRequest, "invalid_request_error", "invalid", "messages", "context_length_exceeded"},
	} {
		p := asked(short)
		test.change(&p)
		_, err := c.Messages.New(t.Context(), p)
		wantError(t, err, test.status, test.kind, test.reason, test.param, test.code)
		stream := c.Messages.NewStreaming(t.Context(), p)
		if stream.Next() {
			t.Errorf("an event: %s", stream.Current().RawJSON())
		}
		wantError(t, stream.Err(), test.status, test.kind, test.reason, test.param, test.code)
	}
}

func TestReportsAStoppedStream(t *testing.T) {
	stream := sdk(t).Messages.NewStreaming(t.Context(), asked(long))
	defer stream.Close()
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	id := strings.TrimPrefix(stream.Current().Message.ID, "msg_")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, address(t)+"/v1/streams/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-api-key", "unused")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Errorf("DELETE: status %d", resp.StatusCode)
	}
	for stream.Next() {
		if stream.Current().Type == "message_stop" {
			t.Error("a stopped stream ended without an error")
		}
	}
	wantError(t, stream.Err(), http.StatusOK, "api_error", "user_stop", "", "")
}

// wantError checks the fields of the SDK's error.
func wantError(t *testing.T, err error, status int, kind, reason, param, code string) {
	t.Helper()
	e, ok := errors.AsType[*anthropic.Error](err)
	if !ok {
		t.Errorf("the SDK reports %v", err)
		return
	}
	var body struct {
		Whence struct{ Reason, Param, Code string }
	}
	if err := json.Unmarshal([]byte(e.RawJSON()), &body); err != nil {
		t.Errorf("%s: %v", e.RawJSON(), err)
	}
	if e.StatusCode != status || string(e.Type()) != kind || e.RequestID == "" || body.Whence.Reason != reason || body.Whence.Param != param || body.Whence.Code != code {
		t.Errorf("status %d, request %q, %s; want %d, %q, %q, %q, %q", e.StatusCode, e.RequestID, e.RawJSON(), status, kind, reason, param, code)
	}
}
