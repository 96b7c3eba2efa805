package call

import (
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/answer"
)

// A Choice is one answer of a stream, joined from its deltas.
type Choice struct {
	answer.Answer
	Tokens []*chatv1.TokenLogprob // if the request asks for log-probabilities
	IDs    []uint32               // if the request asks for token ids
	Finish llmv1.Finish
	// Matched is the token that ended the answer; nil if none did.
	Matched *uint32
}

// Gather returns a Gatherer for a request. With the End it passes the joined choices to whole, and
// returns the result.
func Gather(req *chatv1.ChatRequest, whole func(*llmv1.Started, []Choice, *llmv1.End) []byte) Gatherer {
	var started *llmv1.Started
	all := make([]Choice, Choices(req))
	return func(out *chatv1.GenerateResponse) []byte {
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			started = m.Started
		case *chatv1.GenerateResponse_Delta:
			g := &all[m.Delta.GetChoice()]
			g.Add(m.Delta)
			g.Tokens = append(g.Tokens, m.Delta.GetLogprobs()...)
			g.IDs = append(g.IDs, m.Delta.GetIds()...)
		case *chatv1.GenerateResponse_Restarted:
			all[m.Restarted.GetChoice()] = Choice{}
		case *chatv1.GenerateResponse_ChoiceEnd:
			one := &all[m.ChoiceEnd.GetChoice()]
			one.Finish, one.Matched = m.ChoiceEnd.GetFinish(), m.ChoiceEnd.MatchedToken
		case *chatv1.GenerateResponse_End:
			if len(all) == 1 {
				all[0].Finish, all[0].Matched = m.End.GetFinish(), m.End.MatchedToken
			}
			return whole(started, all, m.End)
		}
		return nil
	}
}
