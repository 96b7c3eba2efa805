package openai

import (
	"time"

	"github.com/whence-dev/whence/api-service/call"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Form is the form of errors in OpenAI's API.
var Form = call.Form{
	Done:    Done,
	Refusal: func(status int, err *streamerr.Error, _ string) (int, []byte) { return status, err.JSON() },
	Failure: func(err *streamerr.Error, _ string, lines call.Lines) {
		lines.End(append(lines.Begin(), err.JSON()...))
	},
}

// Call returns the edge's view of the body.
func (c *Chat) Call() *call.Call {
	l := &call.Call{Request: c.Request, ID: c.id, Stream: c.Stream, Timeout: c.Timeout, Images: c.images, DefaultTokens: c.defaultTokens, Param: c.Param, Events: c.events, Whole: c.whole, Touched: c.touched}
	if c.completion {
		l.Events, l.Whole, l.Touched = c.textEvents, c.wholeText, nil
	}
	return l
}

// touched adds the memory that the last encoder of events touches with each item.
func (c *Chat) touched(to *prefetch.List) { c.chunks.Touched(to) }

// events encodes the chunks of a chat.
func (c *Chat) events() call.Writer {
	chunks := &Chunks{}
	c.chunks = chunks
	choices := call.Choices(c.Request)
	return func(out *chatv1.GenerateResponse, lines call.Lines) {
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			chunks.initChat(m.Started, c.IncludeUsage)
			for choice := range choices {
				lines.End(chunks.appendRole(lines.Begin(), uint32(choice), promptOf(m.Started, 0)))
			}
		case *chatv1.GenerateResponse_Delta:
			lines.End(chunks.AppendDelta(lines.Begin(), m.Delta))
		case *chatv1.GenerateResponse_ChoiceEnd:
			lines.End(chunks.AppendFinish(lines.Begin(), m.ChoiceEnd.GetChoice(), m.ChoiceEnd.GetFinish()))
		case *chatv1.GenerateResponse_End:
			if choices == 1 {
				lines.End(chunks.AppendFinish(lines.Begin(), 0, m.End.GetFinish()))
			}
			done(chunks, m.End, lines)
		}
	}
}

// done encodes the events after the last choice.
func done(chunks *Chunks, end *llmv1.End, lines call.Lines) {
	call.Answered(lines)
	if chunks.usage {
		lines.End(chunks.AppendUsage(lines.Begin(), end))
	}
	lines.End(append(lines.Begin(), Done...))
}

// whole encodes a chat's answer as one body.
func (c *Chat) whole() call.Gatherer {
	return call.Gather(c.Request, func(started *llmv1.Started, all []call.Choice, end *llmv1.End) []byte {
		body := completion{
			ID: completionID(started.GetStreamId()), Object: "chat.completion", Created: time.Now().Unix(), Model: started.GetModel(),
			Usage: usageOf(end.GetUsage()), PromptTokenIDs: promptOf(started, 0),
		}
		for i := range all {
			g := &all[i]
			body.Choices = append(body.Choices, choice{
				Index: i, Message: messageOf(&g.Answer), LogProbs: NewLogprobs(g.Tokens), FinishReason: Finish(g.Finish), TokenIDs: g.IDs,
			})
		}
		return marshal(body)
	})
}
