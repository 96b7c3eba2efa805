package openai

import (
	"encoding/json"
	"strconv"
	"time"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// Done is the data of the last event of a stream that completed.
const Done = "[DONE]"

// finishes are the finish reasons that SDKs know.
var finishes = map[streamv1.Finish]string{
	streamv1.Finish_FINISH_STOP:       "stop",
	streamv1.Finish_FINISH_LENGTH:     "length",
	streamv1.Finish_FINISH_TOOL_CALLS: "tool_calls",
}

// Finish returns the word for why an answer is complete.
func Finish(end *streamv1.End) string {
	if word, ok := finishes[end.GetFinish()]; ok {
		return word
	}
	return "stop"
}

// Usage is the usage object.
type usage struct {
	PromptTokens     uint32        `json:"prompt_tokens"`
	CompletionTokens uint32        `json:"completion_tokens"`
	TotalTokens      uint32        `json:"total_tokens"`
	PromptDetails    promptDetails `json:"prompt_tokens_details"`
}

type promptDetails struct {
	CachedTokens uint32 `json:"cached_tokens"`
}

func usageOf(u *streamv1.Usage) *usage {
	return &usage{
		PromptTokens:     u.GetPromptTokens(),
		CompletionTokens: u.GetCompletionTokens(),
		TotalTokens:      u.GetPromptTokens() + u.GetCompletionTokens(),
		PromptDetails:    promptDetails{u.GetCachedTokens()},
	}
}

// Usage returns the usage object.
func Usage(u *streamv1.Usage) []byte { return marshal(usageOf(u)) }

// completionID is the id of an answer, from the stream's.
func completionID(stream string) string { return "chatcmpl-" + stream }

type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage"`
}

type choice struct {
	Index        int           `json:"index"`
	Message      answerMessage `json:"message"`
	LogProbs     *struct{}     `json:"logprobs"`
	FinishReason string        `json:"finish_reason"`
}

type answerMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

// Completion returns the body of an answer that is not streamed.
func Completion(started *streamv1.Started, text string, end *streamv1.End) []byte {
	return marshal(completion{
		ID: completionID(started.GetStreamId()), Object: "chat.completion", Created: time.Now().Unix(), Model: started.GetModel(),
		Choices: []choice{{Message: answerMessage{Role: "assistant", Content: text}, FinishReason: Finish(end)}},
		Usage:   usageOf(end.GetUsage()),
	})
}

type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`

	// Not OpenAI's.
	ContextLength uint32       `json:"context_length"`
	Aliases       []string     `json:"aliases,omitempty"`
	Sampling      []string     `json:"sampling,omitempty"` // fields that are honoured
	Workers       modelWorkers `json:"workers"`
}

type modelWorkers struct {
	Healthy uint32 `json:"healthy"`
	Known   uint32 `json:"known"`
}

func modelOf(m *chatv1.Model) model {
	return model{
		ID: m.GetId(), Object: "model", Created: m.GetCreated(), OwnedBy: m.GetOwnedBy(), ContextLength: m.GetContextLength(),
		Aliases: m.GetAliases(), Sampling: m.GetSampling(), Workers: modelWorkers{m.GetHealthyWorkers(), m.GetKnownWorkers()},
	}
}

// Models returns the body of GET /v1/models.
func Models(models []*chatv1.Model) []byte {
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", make([]model, 0, len(models))}
	for _, m := range models {
		list.Data = append(list.Data, modelOf(m))
	}
	return marshal(list)
}

// Model returns the body of GET /v1/models/{id}.
func Model(m *chatv1.Model) []byte { return marshal(modelOf(m)) }

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs of strings and numbers
	}
	return b
}

// Chunks makes the data of a stream's events, in the order that SDKs expect: Role, then Delta for each piece of text, then
// Finish, then, if the request asked for it, Usage. What it returns is valid until the next call. It is made for one
// stream and one goroutine.
type Chunks struct {
	head  []byte // up to the choices
	tail  []byte // after them
	buf   []byte
	usage bool
}

// NewChunks returns the chunks of one stream. With usage, each chunk says that its usage is null.
func NewChunks(started *streamv1.Started, usage bool) *Chunks {
	c := &Chunks{usage: usage, tail: []byte("}")}
	c.head = append(c.head, `{"id":`...)
	c.head = appendString(c.head, completionID(started.GetStreamId()))
	c.head = append(c.head, `,"object":"chat.completion.chunk","created":`...)
	c.head = strconv.AppendInt(c.head, time.Now().Unix(), 10)
	c.head = append(c.head, `,"model":`...)
	c.head = appendString(c.head, started.GetModel())
	c.head = append(c.head, `,"choices":[`...)
	if usage {
		c.tail = []byte(`,"usage":null}`)
	}
	return c
}

// Role is the first chunk.
func (c *Chunks) Role() []byte {
	return c.choice(func(b []byte) []byte { return append(b, `{"role":"assistant","content":"","refusal":null}`...) }, "")
}

// Delta is a piece of text.
func (c *Chunks) Delta(text string) []byte {
	return c.choice(func(b []byte) []byte {
		b = append(b, `{"content":`...)
		return append(appendString(b, text), '}')
	}, "")
}

// Finish is the last chunk with a choice.
func (c *Chunks) Finish(end *streamv1.End) []byte {
	return c.choice(func(b []byte) []byte { return append(b, `{}`...) }, Finish(end))
}

// Usage is the chunk without choices, or nil if nobody asked for it.
func (c *Chunks) Usage(end *streamv1.End) []byte {
	if !c.usage {
		return nil
	}
	c.buf = append(c.buf[:0], c.head...)
	c.buf = append(c.buf, `],"usage":`...)
	c.buf = append(c.buf, Usage(end.GetUsage())...)
	c.buf = append(c.buf, '}')
	return c.buf
}

func (c *Chunks) choice(delta func([]byte) []byte, finish string) []byte {
	b := append(c.buf[:0], c.head...)
	b = append(b, `{"index":0,"delta":`...)
	b = delta(b)
	b = append(b, `,"logprobs":null,"finish_reason":`...)
	if finish == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, finish)
	}
	b = append(b, '}', ']')
	c.buf = append(b, c.tail...)
	return c.buf
}
