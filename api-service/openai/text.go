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
func (c *Chunks) appendText(b []byte, d *chatv1.Delta, likely *textLogprobs, prompt []uint32, finish string) []byte {
	b = append(b, c.head...)
	b = append(b, `{"text":`...)
	b = jsontext.String(b, d.GetText())
	b = append(b, `,"index":`...)
	b = strconv.AppendUint(b, uint64(d.GetChoice()), 10)
	b = append(b, `,"logprobs":`...)
	if likely == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, marshal(likely)...)
	}
	return c.finish(b, d.GetIds(), prompt, finish)
}

// textEvents writes the chunks of a text completion.
func (c *Chat) textEvents() call.Writer {
	chunks := &Chunks{}
	var offsets []offset
	var untold [][]uint32 // the tokens of the prompt of each choice, until its first chunk
	top, choices := c.Request.GetSampling().GetLogprobs() > 0, call.Choices(c.Request)
	each := max(1, int(c.Request.GetN()))
	end := func(b []byte, d *chatv1.Delta, likely *textLogprobs, finish string) []byte {
		prompt := untold[d.GetChoice()]
		untold[d.GetChoice()] = nil
		return chunks.appendText(b, d, likely, prompt, finish)
	}
	return func(out *chatv1.GenerateResponse, lines call.Lines) {
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			chunks.init(textID(m.Started.GetStreamId()), textObject, m.Started.GetModel(), c.IncludeUsage)
			offsets, untold = make([]offset, choices), make([][]uint32, choices)
			for choice := range choices {
				untold[choice] = promptOf(m.Started, choice/each)
			}
		case *chatv1.GenerateResponse_Delta:
			d := m.Delta
			lines.End(end(lines.Begin(), d, offsets[d.GetChoice()].take(d.GetLogprobs(), top, c.idNames), ""))
		case *chatv1.GenerateResponse_ChoiceEnd:
			lines.End(end(lines.Begin(), &chatv1.Delta{Choice: m.ChoiceEnd.GetChoice()}, nil, Finish(m.ChoiceEnd.GetFinish())))
		case *chatv1.GenerateResponse_End:
			if len(offsets) == 1 {
				lines.End(end(lines.Begin(), nil, nil, Finish(m.End.GetFinish())))
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

	PromptTokenIDs []uint32 `json:"prompt_token_ids,omitempty"` // as in vLLM, as is TokenIDs
	TokenIDs       []uint32 `json:"token_ids,omitempty"`
}

// wholeText writes a text completion as one body.
func (c *Chat) wholeText() call.Gatherer {
	top, each := c.Request.GetSampling().GetLogprobs() > 0, max(1, int(c.Request.GetN()))
	return call.Gather(c.Request, func(started *llmv1.Started, all []call.Choice, end *llmv1.End) []byte {
		body := textCompletion{
			ID: textID(started.GetStreamId()), Object: textObject, Created: time.Now().Unix(), Model: started.GetModel(), Usage: usageOf(end.GetUsage()),
		}
		for i := range all {
			g := &all[i]
			body.Choices = append(body.Choices, textChoice{
				Text: g.Text(), Index: i, Logprobs: new(offset).take(g.Tokens, top, c.idNames), FinishReason: Finish(g.Finish),
				PromptTokenIDs: promptOf(started, i/each), TokenIDs: g.IDs,
			})
		}
		return marshal(body)
	})
}
