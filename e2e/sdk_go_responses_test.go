package e2e

import (
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

func responded(input string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: model, Temperature: param.NewOpt(0.0), Store: param.NewOpt(false),
		Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(input)},
	}
}

// wholeResponse requests an unstreamed response.
func wholeResponse(t *testing.T, c *openai.Client, p responses.ResponseNewParams) *responses.Response {
	t.Helper()
	got, err := c.Responses.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// sameResponse checks that streamed and unstreamed responses are equal, and returns the response.
func sameResponse(t *testing.T, c *openai.Client, p responses.ResponseNewParams) *responses.Response {
	t.Helper()
	want := wholeResponse(t, c, p)
	stream := c.Responses.NewStreaming(t.Context(), p)
	var last responses.ResponseStreamEventUnion
	var text strings.Builder
	n := int64(0)
	for stream.Next() {
		last = stream.Current()
		if last.SequenceNumber != n {
			t.Errorf("event %d has the number %d", n, last.SequenceNumber)
		}
		n++
		switch e := last.AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text.WriteString(e.Delta)
		case responses.ResponseFunctionCallArgumentsDeltaEvent:
			text.WriteString(e.Delta)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	got := last.Response
	all := want.OutputText()
	for _, item := range want.Output {
		all += item.Arguments.OfString
	}
	if last.Type != "response."+string(want.Status) || got.Status != want.Status || got.OutputText() != want.OutputText() || text.String() != all || len(got.Output) != len(want.Output) {
		t.Errorf("streamed %s %s, unstreamed %s", last.Type, got.RawJSON(), want.RawJSON())
	}
	if got.Usage.InputTokens == 0 || got.Usage.InputTokens != want.Usage.InputTokens || got.Usage.OutputTokens != want.Usage.OutputTokens || got.Usage.TotalTokens != got.Usage.InputTokens+got.Usage.OutputTokens {
		t.Errorf("usage streamed %s, unstreamed %s", got.Usage.RawJSON(), want.Usage.RawJSON())
	}
	return want
}

func TestOpenAIGoGetsTheSameResponseStreamedAndWhole(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		c := w.sdk()
		if got := sameResponse(t, &c, responded(short)); got.Status != responses.ResponseStatusCompleted || !strings.HasPrefix(got.OutputText(), "When you close the tab,") {
			t.Errorf("%s", got.RawJSON())
		}
		cut := responded(short)
		cut.MaxOutputTokens = param.NewOpt[int64](5)
		if got := sameResponse(t, &c, cut); got.Status != responses.ResponseStatusIncomplete || got.IncompleteDetails.Reason != "max_output_tokens" || got.Usage.OutputTokens != 5 {
			t.Errorf("5 tokens: %s", got.RawJSON())
		}
	})
}

func TestOpenAIGoRunsALoopOfToolsOverResponses(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		c := w.sdk()
		p := responded("What is the weather in Paris?")
		p.Tools = []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{
			Name: "get_weather", Strict: param.NewOpt(true), Parameters: weatherTool.OfFunction.Function.Parameters,
		}}}
		p.ToolChoice = responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: param.NewOpt(responses.ToolChoiceOptionsRequired)}
		got := sameResponse(t, &c, p)
		if len(got.Output) != 1 || got.Output[0].Type != "function_call" || got.Output[0].Name != "get_weather" {
			t.Fatalf("%s", got.RawJSON())
		}
		call := got.Output[0].AsFunctionCall()
		wantWeather(t, call.Arguments)
		p.ToolChoice = responses.ResponseNewParamsToolChoiceUnion{}
		p.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
			responses.ResponseInputItemParamOfMessage("What is the weather in Paris?", responses.EasyInputMessageRoleUser),
			responses.ResponseInputItemParamOfFunctionCall(call.Arguments, call.CallID, call.Name),
			responses.ResponseInputItemParamOfFunctionCallOutput(call.CallID, "Rain."),
		}}
		if got := sameResponse(t, &c, p); got.Status != responses.ResponseStatusCompleted || got.OutputText() == "" {
			t.Errorf("%s", got.RawJSON())
		}
	})
}

func TestOpenAIGoReadsTheFailureOfAResponse(t *testing.T) {
	t.Parallel()
	w := run(t, allInOne, flags{worker: onServer("openai", badEngine(t, breaksOff("")))})
	c := w.sdk()
	stream := c.Responses.NewStreaming(t.Context(), responded(short))
	var last responses.ResponseStreamEventUnion
	for stream.Next() {
		last = stream.Current()
	}
	if err := stream.Err(); err == nil || last.Type != "response.output_text.delta" {
		t.Fatalf("%v: %s", err, last.RawJSON())
	}
	for _, part := range []string{`"reason":"peer_lost"`, `"origin":"engine"`} {
		if text := stream.Err().Error(); !strings.Contains(text, part) {
			t.Errorf("no %s in %s", part, text)
		}
	}
}
