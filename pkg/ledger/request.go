package ledger

import (
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// request returns the parts of a request that the stream's span names.
func request(message any) (r streamtrace.Request) {
	if in, ok := message.(interface{ GetModel() string }); ok {
		r.Model = in.GetModel()
	}
	switch in := message.(type) {
	case *chatv1.ChatRequest:
		r.Choices = max(1, int(in.GetN())) * max(1, len(in.GetPrompts()))
	case interface{ GetPrompt() []uint32 }: // of a worker
		r.Choices = 1
	}
	return r
}

// finished reads why an answer, or one of several choices, is complete.
func (r *Record) finished(message any) {
	choice, finish := uint32(0), llmv1.Finish_FINISH_UNSPECIFIED
	if m, ok := message.(interface{ GetEnd() *llmv1.End }); ok {
		finish = m.GetEnd().GetFinish()
	}
	if m, ok := message.(interface{ GetChoiceEnd() *chatv1.ChoiceEnd }); ok && m.GetChoiceEnd() != nil {
		choice, finish = m.GetChoiceEnd().GetChoice(), m.GetChoiceEnd().GetFinish()
	}
	if finish != llmv1.Finish_FINISH_UNSPECIFIED {
		r.trace.Finished(int(choice), strings.ToLower(strings.TrimPrefix(finish.String(), "FINISH_"))) // OpenAI's word
	}
}
