package openai

import (
	"slices"
	"strconv"
	"time"

	"github.com/whence-dev/whence/api-service/jsontext"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/prefetch"
)

// chunkObject is the object name of the chunks of chats.
const chunkObject = "chat.completion.chunk"

// Chunks appends the data of a stream's events to buffers. One goroutine uses a Chunks for one
// stream. The constant parts of a chunk are encoded once.
type Chunks struct {
	callForms

	head []byte   // the part before the choices
	tail []byte   // the part after the choices
	used *running // the usage so far, if each chunk has it

	// Chunks of the first choice with only text: the parts before and after the text. The first begins
	// with head. They are in room if they fit, so that the memory of a stream's chunks is known before
	// they are encoded.
	before, behind []byte
	room           [256]byte
}

// A running is the usage of an answer so far. A nil running counts nothing.
type running struct{ prompt, answer uint32 }

func (r *running) add(tokens uint32) {
	if r != nil {
		r.answer += tokens
	}
}

// NewChunks returns the encoder of a chat's chunks. With usage, each chunk has a null usage.
func NewChunks(started *llmv1.Started, usage bool) *Chunks {
	c := new(Chunks)
	c.init(completionID(started.GetStreamId()), chunkObject, started.GetModel(), "", usage)
	return c
}

func (c *Chunks) init(id, object, model, tier string, usage bool) {
	c.tail = []byte("]}")
	c.head = append(c.room[:0], `{"id":`...)
	c.head = jsontext.String(c.head, id)
	c.head = append(append(append(c.head, `,"object":"`...), object...), `","created":`...)
	c.head = strconv.AppendInt(c.head, time.Now().Unix(), 10)
	c.head = append(c.head, `,"model":`...)
	c.head = jsontext.String(c.head, model)
	if tier != "" {
		c.head = append(append(append(c.head, `,"service_tier":"`...), tier...), '"')
	}
	c.head = slices.Clip(append(c.head, `,"choices":[`...))
	if usage {
		c.tail = []byte(`],"usage":null}`)
	}
	c.before = append(c.delta(c.room[:0], 0), `{"content":`...)
	free := c.room[min(len(c.before), len(c.room)):]
	c.behind = c.end(append(free[:0], '}'), nil, nil, "")
}

// Touched implements prefetch.Toucher.
func (c *Chunks) Touched(to *prefetch.List) { to.Add(prefetch.Of(c)) }

// AppendDelta appends a piece of an answer: text, reasoning, or parts of tool calls.
func (c *Chunks) AppendDelta(b []byte, d *chatv1.Delta) []byte {
	if d.GetChoice() == 0 && d.GetReasoning() == "" && len(d.GetToolCalls()) == 0 && len(d.GetLogprobs()) == 0 && len(d.GetIds()) == 0 {
		b = append(b, c.before...)
		return append(jsontext.String(b, d.GetText()), c.behind...)
	}
	return c.end(c.appendPart(c.delta(b, d.GetChoice()), d, false), d.GetLogprobs(), d.GetIds(), "")
}

// AppendFinish appends the last chunk of a choice whose last piece has been written.
func (c *Chunks) AppendFinish(b []byte, choice uint32, finish llmv1.Finish) []byte {
	return c.end(append(c.delta(b, choice), `{}`...), nil, nil, c.word(finish))
}

// word returns the finish reason in OpenAI's spelling.
func (f *callForms) word(finish llmv1.Finish) string {
	if f.older && finish == llmv1.Finish_FINISH_TOOL_CALLS {
		return "function_call"
	}
	return Finish(finish)
}

// AppendUsage appends the chunk without choices, for requests that ask for their usage.
func (c *Chunks) AppendUsage(b []byte, end *llmv1.End) []byte {
	b = append(b, c.head...)
	b = append(b, `],"usage":`...)
	b = append(b, Usage(end.GetUsage())...)
	return append(b, '}')
}

// delta begins a chunk of a choice, up to its delta.
func (c *Chunks) delta(b []byte, choice uint32) []byte {
	b = append(b, c.head...)
	b = append(b, `{"index":`...)
	b = strconv.AppendUint(b, uint64(choice), 10)
	return append(b, `,"delta":`...)
}

// end ends a chunk, after its delta.
func (c *Chunks) end(b []byte, tokens []*chatv1.TokenLogprob, ids []uint32, finish string) []byte {
	b = append(b, `,"logprobs":`...)
	if len(tokens) == 0 {
		b = append(b, "null"...)
	} else {
		b = append(b, marshal(NewLogprobs(tokens))...)
	}
	return c.finish(b, ids, nil, finish)
}

// finish ends a chunk, from its finish_reason on. The tokens of the prompt are in the choice of text
// completions alone.
func (c *Chunks) finish(b []byte, ids, prompt []uint32, finish string) []byte {
	b = append(b, `,"finish_reason":`...)
	if finish == "" {
		b = append(b, "null"...)
	} else {
		b = jsontext.String(b, finish)
	}
	b = appendIDs(appendIDs(b, "token_ids", ids), "prompt_token_ids", prompt)
	b = append(b, '}')
	if c.used == nil {
		return append(b, c.tail...)
	}
	b = append(b, `],"usage":{"prompt_tokens":`...)
	b = append(strconv.AppendUint(b, uint64(c.used.prompt), 10), `,"completion_tokens":`...)
	b = append(strconv.AppendUint(b, uint64(c.used.answer), 10), `,"total_tokens":`...)
	return append(strconv.AppendUint(b, uint64(c.used.prompt)+uint64(c.used.answer), 10), "}}"...)
}
