package openai

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

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
	l := &call.Call{
		Request: c.Request, ID: c.id, Stream: c.Stream, Timeout: c.Timeout, Images: c.images, DefaultTokens: c.defaultTokens, Param: c.Param,
		Events: c.events, Whole: c.whole, Touched: c.touched, Failure: c.fail, Opens: true, IDPrefix: chatPrefix,
	}
	if c.completion {
		l.Whole, l.Touched, l.IDPrefix = c.wholeText, nil, textPrefix
	}
	return l
}

// touched adds the memory that the last encoder of events touches with each item.
func (c *Chat) touched(to *prefetch.List) { c.writer.Touched(to) }

// A chunkWriter encodes the items of an answer as chunks.
type chunkWriter struct {
	Chunks
	chat    *Chat
	encode  func(b []byte, d *chatv1.Delta, first bool, finish string) []byte
	choices []choiceState
	one     [1]choiceState

	offsets []offset              // of completions: where the next token of each choice begins
	prompts []*llmv1.PromptTokens // the tokens of the prompts, if the request asks for them
	each    int                   // choices per prompt
}

// A choiceState is the state of one choice.
type choiceState struct {
	begun bool          // the first chunk is written
	held  *chatv1.Delta // the last piece, which waits for the end of the choice
}

// events encodes the chunks of an answer: the role comes with the first piece of a choice, and the
// finish reason with the last, if chat-service marks it.
func (c *Chat) events() call.Writer {
	w := &chunkWriter{chat: c, each: max(1, int(c.Request.GetN()))}
	w.one = [1]choiceState{}
	if w.choices = w.one[:]; call.Choices(c.Request) > 1 {
		w.choices = make([]choiceState, call.Choices(c.Request))
	}
	if w.encode = w.appendChat; c.completion {
		w.encode, w.offsets = w.appendText, make([]offset, len(w.choices))
	}
	c.writer = w
	return w.write
}

func (w *chunkWriter) write(out *chatv1.GenerateResponse, lines call.Lines) {
	switch m := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		w.begin(m.Started)
	case *chatv1.GenerateResponse_Delta:
		w.release(lines, m.Delta.GetChoice())
		if m.Delta.GetLast() {
			w.choices[m.Delta.GetChoice()].held = proto.CloneOf(m.Delta) // out is valid until write returns
			return
		}
		w.piece(lines, m.Delta)
	case *chatv1.GenerateResponse_ChoiceEnd:
		w.used.add(m.ChoiceEnd.GetTokens())
		w.finish(lines, m.ChoiceEnd.GetChoice(), m.ChoiceEnd.GetFinish(), m.ChoiceEnd.MatchedToken)
	case *chatv1.GenerateResponse_End:
		w.used.add(m.End.GetTokens())
		if len(w.choices) == 1 {
			w.finish(lines, 0, m.End.GetFinish(), m.End.MatchedToken)
		}
		call.Answered(lines)
		if w.chat.IncludeUsage {
			lines.End(w.AppendUsage(lines.Begin(), m.End))
		}
		lines.End(append(lines.Begin(), Done...))
	}
}

func (w *chunkWriter) begin(started *llmv1.Started) {
	c := w.chat
	id, object := completionID(started.GetStreamId()), chunkObject
	if c.completion {
		id, object = textID(started.GetStreamId()), textObject
	}
	w.init(id, object, started.GetModel(), c.tier(), c.IncludeUsage)
	w.custom, w.older = c.tools.Custom, c.older
	if w.prompts = started.GetPrompts(); c.counts {
		w.used = &running{prompt: started.GetPromptTokens()}
	}
}

// piece writes a piece of a choice.
func (w *chunkWriter) piece(lines call.Lines, d *chatv1.Delta) {
	w.used.add(d.GetTokens())
	state := &w.choices[d.GetChoice()]
	if state.begun && w.used == nil && !w.chat.completion {
		lines.End(w.AppendDelta(lines.Begin(), d))
		return
	}
	lines.End(w.encode(lines.Begin(), d, !state.begun, ""))
	state.begun = true
}

// release writes the piece of a choice that was held back, if there is one.
func (w *chunkWriter) release(lines call.Lines, choice uint32) {
	if held := w.choices[choice].held; held != nil {
		w.choices[choice].held = nil
		w.piece(lines, held)
	}
}

// finish writes the last chunk of a choice, which the token matched has ended, if any.
func (w *chunkWriter) finish(lines call.Lines, choice uint32, finish llmv1.Finish, matched *uint32) {
	state, ends, left := &w.choices[choice], w.chat.withEnd(nil, matched), w.callForms.finish(choice)
	last := state.held
	if state.held = nil; last == nil {
		last = &chatv1.Delta{Choice: choice}
		if state.begun && !w.chat.completion && ends == nil && left == nil {
			lines.End(w.AppendFinish(lines.Begin(), choice, finish))
			return
		}
	}
	last.Ids, last.ToolCalls = append(last.Ids, ends...), append(last.ToolCalls, left...)
	w.used.add(last.GetTokens())
	lines.End(w.encode(lines.Begin(), last, !state.begun, w.word(finish)))
	state.begun = true
}

// fail ends the answer of a stream that failed, after the pieces that were held back.
func (c *Chat) fail(err *streamerr.Error, id string, lines call.Lines) {
	if w := c.writer; w != nil {
		for choice := range w.choices {
			w.release(lines, uint32(choice)) //nolint:gosec // few choices
		}
	}
	Form.Failure(err, id, lines)
}

// promptOf returns the tokens of a choice's prompt for its first chunk.
func (w *chunkWriter) promptOf(choice uint32, first bool) []uint32 {
	number := int(choice) / w.each
	if !first || number >= len(w.prompts) {
		return nil
	}
	return w.prompts[number].GetIds()
}

// appendChat appends a chunk of a chat.
func (w *chunkWriter) appendChat(b []byte, d *chatv1.Delta, first bool, finish string) []byte {
	b = w.appendPart(w.delta(b, d.GetChoice()), d, first)
	b = w.end(b, d.GetLogprobs(), d.GetIds(), finish)
	if prompt := w.promptOf(0, first); len(prompt) > 0 {
		b = append(appendIDs(b[:len(b)-1], "prompt_token_ids", prompt), '}')
	}
	return b
}

// whole encodes a chat's answer as one body.
func (c *Chat) whole() call.Gatherer {
	forms := &callForms{custom: c.tools.Custom, older: c.older}
	return call.Gather(c.Request, func(started *llmv1.Started, all []call.Choice, end *llmv1.End) []byte {
		body := completion{
			ID: completionID(started.GetStreamId()), Object: "chat.completion", Created: time.Now().Unix(), Model: started.GetModel(),
			Usage: usageOf(end.GetUsage()), PromptTokenIDs: promptOf(started, 0), Choices: slices.Grow([]choice(nil), len(all)), Tier: c.tier(),
		}
		for i := range all {
			g := &all[i]
			body.Choices = append(body.Choices, choice{
				Index: i, Message: forms.messageOf(&g.Answer), LogProbs: NewLogprobs(g.Tokens), FinishReason: forms.word(g.Finish), TokenIDs: c.withEnd(g.IDs, g.Matched),
			})
		}
		return marshal(body)
	})
}
