package openai

import (
	"strconv"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/jsontext"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// textObject is the object name of text completions, whole or in chunks.
const textObject = "text_completion"

func textID(stream string) string { return "cmpl-" + stream }

// appendText appends a piece of a choice.
func (c *Chunks) appendText(b []byte, choice uint32, text string, likely *textLogprobs, finish string) []byte {
	b = append(b, c.head...)
	b = append(b, `{"text":`...)
	b = jsontext.String(b, text)
	b = append(b, `,"index":`...)
	b = strconv.AppendUint(b, uint64(choice), 10)
	b = append(b, `,"logprobs":`...)
	if likely == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, marshal(likely)...)
	}
	return c.finish(b, finish)
}

// textEvents writes the chunks of a text completion.
func (c *Chat) textEvents() call.Writer {
	var chunks *Chunks
	var offsets []offset
	top, choices := c.Request.GetSampling().GetLogprobs() > 0, call.Choices(c.Request)
	return func(out *chatv1.GenerateResponse, lines call.Lines) {
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			chunks = newChunks(textID(m.Started.GetStreamId()), textObject, m.Started.GetModel(), c.IncludeUsage)
			offsets = make([]offset, choices)
		case *chatv1.GenerateResponse_Delta:
			d := m.Delta
			lines.End(chunks.appendText(lines.Begin(), d.GetChoice(), d.GetText(), offsets[d.GetChoice()].take(d.GetLogprobs(), top), ""))
		case *chatv1.GenerateResponse_ChoiceEnd:
			lines.End(chunks.appendText(lines.Begin(), m.ChoiceEnd.GetChoice(), "", nil, Finish(m.ChoiceEnd.GetFinish())))
		case *chatv1.GenerateResponse_End:
			if len(offsets) == 1 {
				lines.End(chunks.appendText(lines.Begin(), 0, "", nil, Finish(m.End.GetFinish())))
			}
			done(chunks, m.End, lines)
		}
	}
}

type textCompletion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []textChoice `json:"choices"`
	Usage   *usage       `json:"usage"`
}

type textChoice struct {
	Text         string        `json:"text"`
	Index        int           `json:"index"`
	Logprobs     *textLogprobs `json:"logprobs"`
	FinishReason string        `json:"finish_reason"`
}

// wholeText writes a text completion as one body.
func (c *Chat) wholeText() call.Gatherer {
	top := c.Request.GetSampling().GetLogprobs() > 0
	return call.Gather(c.Request, func(started *llmv1.Started, all []call.Choice, end *llmv1.End) []byte {
		body := textCompletion{
			ID: textID(started.GetStreamId()), Object: textObject, Created: time.Now().Unix(), Model: started.GetModel(), Usage: usageOf(end.GetUsage()),
		}
		for i := range all {
			g := &all[i]
			body.Choices = append(body.Choices, textChoice{
				Text: g.Text(), Index: i, Logprobs: new(offset).take(g.Tokens, top), FinishReason: Finish(g.Finish),
			})
		}
		return marshal(body)
	})
}
