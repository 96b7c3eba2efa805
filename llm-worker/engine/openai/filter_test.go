package openai_test

import (
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

func TestFilteredAnswerIsComplete(t *testing.T) {
	for name, answer := range map[string]script{
		"ids":  events(ids(100), finish("content_filter"), "[DONE]"),
		"text": events(text("hello"), finish("content_filter"), "[DONE]"),
	} {
		f := newFake(t, answer)
		r := read(t.Context(), engineOn(t, f.URL), request(100), nil)
		if r.err != nil || r.end.GetFinish() != llmv1.Finish_FINISH_CONTENT_FILTER || len(r.tokens) == 0 || int(r.end.GetUsage().GetCompletionTokens()) != len(r.tokens) {
			t.Errorf("%s: %v, %v, %v", name, r.tokens, r.end, r.err)
		}
	}
}
