package openai

import (
	"strconv"
	"time"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// Chunks makes the data of a stream's events, in the order that SDKs expect: for each choice Role, then Delta for each piece of
// text, then Finish; then, if the request asked for it, Usage. What it returns is valid until the next call. It is made for one
// stream and one goroutine.
type Chunks struct {
	head  []byte // up to the choices
	tail  []byte // after them
	buf   []byte
	usage bool
}

// NewChunks returns the chunks of one chat. With usage, each chunk says that its usage is null.
func NewChunks(started *llmv1.Started, usage bool) *Chunks {
	return newChunks(completionID(started.GetStreamId()), "chat.completion.chunk", started.GetModel(), usage)
}

func newChunks(id, object, model string, usage bool) *Chunks {
	c := &Chunks{usage: usage, tail: []byte("]}")}
	c.head = append(c.head, `{"id":`...)
	c.head = AppendString(c.head, id)
	c.head = append(append(append(c.head, `,"object":"`...), object...), `","created":`...)
	c.head = strconv.AppendInt(c.head, time.Now().Unix(), 10)
	c.head = append(c.head, `,"model":`...)
	c.head = AppendString(c.head, model)
	c.head = append(c.head, `,"choices":[`...)
	if usage {
		c.tail = []byte(`],"usage":null}`)
	}
	return c
}

// Role is the first chunk of a choice.
func (c *Chunks) Role(choice uint32) []byte {
	b := append(c.delta(choice), `{"role":"assistant","content":"","refusal":null}`...)
	return c.end(b, nil, "")
}

// Delta is a piece of an answer: text, reasoning, or of tool calls.
func (c *Chunks) Delta(d *chatv1.Delta) []byte {
	return c.end(appendPart(c.delta(d.GetChoice()), d), d.GetLogprobs(), "")
}

// Finish is the last chunk of a choice.
func (c *Chunks) Finish(choice uint32, finish llmv1.Finish) []byte {
	return c.end(append(c.delta(choice), `{}`...), nil, Finish(finish))
}

// Usage is the chunk without choices, or nil if nobody asked for it.
func (c *Chunks) Usage(end *llmv1.End) []byte {
	if !c.usage {
		return nil
	}
	c.buf = append(c.buf[:0], c.head...)
	c.buf = append(c.buf, `],"usage":`...)
	c.buf = append(c.buf, Usage(end.GetUsage())...)
	c.buf = append(c.buf, '}')
	return c.buf
}

// delta begins a chunk of a choice, up to its delta.
func (c *Chunks) delta(choice uint32) []byte {
	b := append(c.buf[:0], c.head...)
	b = append(b, `{"index":`...)
	b = strconv.AppendUint(b, uint64(choice), 10)
	return append(b, `,"delta":`...)
}

// end ends it, behind its delta.
func (c *Chunks) end(b []byte, tokens []*chatv1.TokenLogprob, finish string) []byte {
	b = append(b, `,"logprobs":`...)
	if len(tokens) == 0 {
		b = append(b, "null"...)
	} else {
		b = append(b, marshal(NewLogprobs(tokens))...)
	}
	return c.finish(b, finish)
}

// finish ends it, behind all else.
func (c *Chunks) finish(b []byte, finish string) []byte {
	b = append(b, `,"finish_reason":`...)
	if finish == "" {
		b = append(b, "null"...)
	} else {
		b = AppendString(b, finish)
	}
	c.buf = append(append(b, '}'), c.tail...)
	return c.buf
}
