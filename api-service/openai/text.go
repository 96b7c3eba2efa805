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

func textID(stream string) string { return textPrefix + stream }

// Prefixes of the ids of answers.
const (
	chatPrefix = "chatcmpl-"
	textPrefix = "cmpl-"
)

// appendText appends a chunk of a text completion.
func (w *chunkWriter) appendText(b []byte, d *chatv1.Delta, first bool, finish string) []byte {
	likely := w.offsets[d.GetChoice()].take(d.GetLogprobs(), w.chat.Request.GetSampling().GetLogprobs() > 0, w.chat.idNames)
	b = append(b, w.head...)
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
	return w.Chunks.finish(b, d.GetIds(), w.promptOf(d.GetChoice(), first), finish)
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
				PromptTokenIDs: promptOf(started, i/each), TokenIDs: c.withEnd(g.IDs, g.Matched),
			})
		}
		return marshal(body)
	})
}
