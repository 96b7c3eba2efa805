package e2e

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
)

// weatherTool is a tool that the model was not trained on.
var weatherTool = openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
	Name: "get_weather",
	Parameters: shared.FunctionParameters{
		"type": "object", "required": []string{"city", "unit"}, "additionalProperties": false,
		"properties": map[string]any{"city": map[string]any{"type": "string", "maxLength": 20}, "unit": map[string]any{"enum": []string{"C", "F"}}},
	},
})

// wantWeather checks that arguments are valid under the tool's schema.
func wantWeather(t *testing.T, arguments string) {
	t.Helper()
	var v struct{ City, Unit *string }
	if err := json.Unmarshal([]byte(arguments), &v); err != nil || v.City == nil || v.Unit == nil || !slices.Contains([]string{"C", "F"}, *v.Unit) {
		t.Errorf("%s: %v", arguments, err)
	}
}

func TestOpenAIGoRunsALoopOfTools(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		c := w.sdk()
		p := asked("What is the weather in Paris?", 0)
		p.Tools = []openai.ChatCompletionToolUnionParam{weatherTool}
		for name, choice := range map[string]openai.ChatCompletionToolChoiceOptionUnionParam{
			"required": {OfAuto: param.NewOpt("required")},
			"named":    openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "get_weather"}),
		} {
			p := p
			p.ToolChoice = choice
			answers := []openai.ChatCompletionChoice{whole(t, &c, p).Choices[0], streamed(t, &c, p).Choices[0]}
			for _, answer := range answers {
				calls := answer.Message.ToolCalls
				if answer.FinishReason != "tool_calls" || len(calls) != 1 || calls[0].Function.Name != "get_weather" || calls[0].ID == "" || calls[0].Type != "function" {
					t.Fatalf("%s: %s %+v", name, answer.FinishReason, calls)
				}
				wantWeather(t, calls[0].Function.Arguments)
			}
			if a, b := answers[0].Message.ToolCalls[0].Function.Arguments, answers[1].Message.ToolCalls[0].Function.Arguments; a != b {
				t.Errorf("%s: unstreamed %s, streamed %s", name, a, b)
			}
			p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{}
			p.Messages = append(slices.Clone(p.Messages), answers[0].Message.ToParam(), openai.ToolMessage("Rain.", answers[0].Message.ToolCalls[0].ID))
			if got := whole(t, &c, p).Choices[0]; got.FinishReason != "stop" || got.Message.Content == "" {
				t.Errorf("%s: %q (%s)", name, got.Message.Content, got.FinishReason)
			}
		}
	})
}

func TestOpenAIGoGetsAnAnswerUnderASchema(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		c := w.sdk()
		schema := map[string]any{
			"type": "object", "required": []string{"city", "high", "sky"}, "additionalProperties": false,
			"properties": map[string]any{
				"city": map[string]any{"type": "string"}, "high": map[string]any{"type": "integer", "minimum": -40, "maximum": 50},
				"sky": map[string]any{"type": "array", "items": map[string]any{"enum": []string{"clear", "rain"}}, "minItems": 1, "maxItems": 3},
			},
		}
		for seed := range int64(8) {
			p := asked("Report the weather.", 1)
			p.Seed, p.MaxTokens = param.NewOpt(seed), param.NewOpt[int64](120)
			p.ResponseFormat = openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
				JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "report", Strict: param.NewOpt(true), Schema: schema},
			}}
			got := same(t, &c, p)
			var v struct {
				City *string
				High *int
				Sky  []string
			}
			if err := json.Unmarshal([]byte(got.Message.Content), &v); err != nil || v.City == nil || v.High == nil || *v.High < -40 || *v.High > 50 || len(v.Sky) == 0 || got.FinishReason != "stop" {
				t.Errorf("%s (%s): %v", got.Message.Content, got.FinishReason, err)
			}
		}
	})
}
