package server

import (
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/answer"
)

// A whole collects an answer, or its choices. The context length of the model bounds each choice.
type whole struct {
	resp    chatv1.CompleteResponse
	parts   []*answer.Answer
	choices []*chatv1.Choice
}

// at makes room for a choice. The pipeline refuses requests for more than choices.Max.
func (w *whole) at(choice uint32) {
	for uint32(len(w.choices)) <= choice {
		w.parts, w.choices = append(w.parts, &answer.Answer{}), append(w.choices, &chatv1.Choice{})
	}
}

func (w *whole) take(out *chatv1.GenerateResponse) {
	switch m := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		w.resp.Started = m.Started
	case *chatv1.GenerateResponse_Delta:
		i := m.Delta.GetChoice()
		w.at(i)
		w.parts[i].Add(m.Delta)
		w.choices[i].Logprobs = append(w.choices[i].Logprobs, m.Delta.GetLogprobs()...)
	case *chatv1.GenerateResponse_Restarted:
		i := m.Restarted.GetChoice()
		w.at(i)
		w.parts[i], w.choices[i] = &answer.Answer{}, &chatv1.Choice{}
	case *chatv1.GenerateResponse_ChoiceEnd:
		w.at(m.ChoiceEnd.GetChoice())
		w.choices[m.ChoiceEnd.GetChoice()].End = m.ChoiceEnd
	case *chatv1.GenerateResponse_End:
		w.resp.End = m.End
	}
}

func (w *whole) response() *chatv1.CompleteResponse {
	w.at(0)
	for i, c := range w.choices {
		c.Text, c.Reasoning, c.ToolCalls = w.parts[i].Text(), w.parts[i].Reasoning(), w.parts[i].Calls()
	}
	first := w.choices[0]
	w.resp.Text, w.resp.Logprobs, w.resp.Reasoning, w.resp.ToolCalls = first.GetText(), first.GetLogprobs(), first.GetReasoning(), first.GetToolCalls()
	if len(w.choices) > 1 {
		w.resp.Choices = w.choices
	}
	return &w.resp
}
