package openai

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A textChunk is the data of one event of /v1/chat/completions, or of /v1/completions, whose text the
// server has parsed.
type textChunk struct {
	Choices []textChoice    `json:"choices"`
	Usage   *textUsage      `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Object  string          `json:"object"` // "error", from older servers
}

type textChoice struct {
	Text  lexicon.Part `json:"text"` // of /v1/completions
	Delta struct {
		Content   lexicon.Part `json:"content"`
		Reasoning lexicon.Part `json:"reasoning"`
		Reasoned  lexicon.Part `json:"reasoning_content"` // the older name of reasoning; some send both
		Refusal   lexicon.Part `json:"refusal"`
		Calls     []textCall   `json:"tool_calls"`
	} `json:"delta"`
	Finish string `json:"finish_reason"`
}

type textCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string    `json:"name"`
		Arguments arguments `json:"arguments"`
	} `json:"function"`
}

// arguments are a piece of a JSON text, or a whole value.
type arguments []byte

// UnmarshalJSON implements json.Unmarshaler.
func (a *arguments) UnmarshalJSON(b []byte) error {
	if b[0] == '"' || string(b) == "null" {
		return (*lexicon.Part)(a).UnmarshalJSON(b)
	}
	*a = append([]byte{}, b...)
	return nil
}

type textUsage struct {
	usage
	Details struct {
		Reasoning *uint32 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// A textAnswer is the part of the server's answer received so far. The server has parsed it, and nothing of
// it is token ids.
type textAnswer struct {
	prompt, limit int // estimated tokens of the prompt, and max_tokens; 0 for none
	dialect       beside.Dialect

	text, reasoning, refusal, argued lexicon.Characters
	calls                            map[int]*openCall // by the server's numbers
	called                           uint32            // calls so far
	given                            uint32            // tokens, as counted here
	counted                          bool              // the last event had the usage so far
	pieces                           []piece           // read from events, and not yet taken

	finish llmv1.Finish
	usage  *textUsage // nil until the server has reported it
}

// An openCall is a tool call whose arguments may follow.
type openCall struct {
	index uint32
	id    string // the server's
}

func newTextAnswer(prompt, limit int, dialect beside.Dialect) *textAnswer {
	return &textAnswer{prompt: prompt, limit: limit, dialect: dialect, calls: map[int]*openCall{}}
}

// A piece is the content of one message, with the number of its tokens. A reader takes the reasoning of a message
// first, then the text, and then the calls.
type piece struct {
	written *workerv1.Written
	tokens  uint32
}

// follows reports whether a reader takes the content of w after that of the piece, if both are one message.
func (p *piece) follows(w *workerv1.Written) bool {
	hasText, hasCalls := p.written.GetText() != "", len(p.written.GetCalls()) > 0
	return (w.GetText() == "" || !hasCalls) && (w.GetReasoning() == "" || !hasCalls && !hasText)
}

// take returns the first piece, or an empty one.
func (a *textAnswer) take() (first piece) {
	if len(a.pieces) > 0 {
		first, a.pieces = a.pieces[0], a.pieces[1:]
	}
	return first
}

// next returns a zero for each token of one event; [DONE] carries the ending.
func (a *textAnswer) next(data []byte) ([]uint32, *llmv1.End, error) {
	if string(data) == overhttp.Done {
		if a.finish == llmv1.Finish_FINISH_UNSPECIFIED && a.limit > 0 && a.usage != nil && int(a.usage.Completion) == a.limit {
			a.finish = llmv1.Finish_FINISH_LENGTH
		}
		if a.finish == llmv1.Finish_FINISH_UNSPECIFIED {
			return nil, nil, beside.Lost(nil, "ended the stream without a finish_reason")
		}
		return a.end()
	}
	c, err := a.read(data)
	if err != nil || len(c.Choices) == 0 {
		return nil, nil, err
	}
	w, err := a.write(&c.Choices[0])
	if err != nil {
		return nil, nil, err
	}
	if said := c.Choices[0].Finish; said != "" {
		if a.finish, err = textFinish(said); err != nil {
			return nil, nil, err
		}
	}
	return a.add(w), nil, nil
}

// closed returns the ending of an answer after its events could not be read further because of err.
func (a *textAnswer) closed(err error) ([]uint32, *llmv1.End, error) {
	if a.finish == llmv1.Finish_FINISH_UNSPECIFIED || !errors.Is(err, streamerr.PeerLost) {
		return nil, nil, err
	}
	return a.end()
}

// read parses an event. The error is an ending, in the dialect of the server.
func (a *textAnswer) read(data []byte) (*textChunk, error) {
	c := new(textChunk)
	if err := json.Unmarshal(data, c); err != nil {
		return nil, beside.Broken(fmt.Errorf("an event is not a chunk of a chat: %w", err))
	}
	switch {
	case len(c.Error) > 0 && string(c.Error) != "null", c.Object == "error":
		return nil, a.dialect.Complete(overhttp.ReadComplaint(data), true).Ending(beside.InAnswer)
	case len(c.Choices) > 1:
		return nil, beside.Broken(fmt.Errorf("an event has %d choices, where one was asked for", len(c.Choices)))
	}
	if a.counted = c.Usage != nil; a.counted {
		a.usage = c.Usage
	}
	return c, nil
}

// write returns the content of an event.
func (a *textAnswer) write(c *textChoice) (*workerv1.Written, error) {
	thought := c.Delta.Reasoning
	if len(thought) == 0 {
		thought = c.Delta.Reasoned
	}
	if a.finish != llmv1.Finish_FINISH_UNSPECIFIED && len(c.Text)+len(c.Delta.Content)+len(thought)+len(c.Delta.Refusal)+len(c.Delta.Calls) > 0 {
		return nil, beside.Broken(errors.New("the answer continues after its finish_reason"))
	}
	w := &workerv1.Written{
		Text:      a.text.Next(append(c.Delta.Content, c.Text...)) + a.refusal.Next(c.Delta.Refusal),
		Reasoning: a.reasoning.Next(thought),
	}
	for i := range c.Delta.Calls {
		piece, err := a.call(&c.Delta.Calls[i])
		if err != nil {
			return nil, err
		}
		w.Calls = append(w.Calls, piece)
	}
	return w, nil
}

// call returns a piece of a tool call. A name begins another call, also if the server gives all calls one
// number, unless it repeats the id of the open one.
func (a *textAnswer) call(c *textCall) (*workerv1.CallPiece, error) {
	open := a.calls[c.Index]
	if open == nil && c.Function.Name == "" {
		return nil, beside.Broken(errors.New("a tool call has no name"))
	}
	piece := &workerv1.CallPiece{}
	if open == nil || c.Function.Name != "" && (c.ID == "" || c.ID != open.id) {
		open = &openCall{index: a.called, id: c.ID}
		a.calls[c.Index] = open
		a.called++
		a.argued = lexicon.Characters{}
		if piece.Id, piece.Name = c.ID, c.Function.Name; c.ID == "" {
			piece.Id = "call_" + rand.Text()
		}
	}
	piece.Index, piece.Arguments = open.index, a.argued.Next(lexicon.Part(c.Function.Arguments))
	return piece, nil
}

// add returns a zero for each token of a piece. A piece without content has none: its tokens count with
// the next piece, or at the end.
func (a *textAnswer) add(w *workerv1.Written) []uint32 {
	if w.GetText() == "" && w.GetReasoning() == "" && len(w.GetCalls()) == 0 {
		return nil
	}
	n := uint32(1)
	if a.counted {
		w.PromptTokens = new(a.usage.Prompt)
		if a.usage.Completion > a.given {
			n = min(a.usage.Completion-a.given, maxAtOnce)
		}
	}
	a.given += n
	if last := len(a.pieces) - 1; last >= 0 && a.pieces[last].follows(w) { // events that arrived together are one piece
		before := a.pieces[last]
		w.Text, w.Reasoning, w.Calls = before.written.GetText()+w.GetText(), before.written.GetReasoning()+w.GetReasoning(), append(before.written.GetCalls(), w.GetCalls()...)
		a.pieces[last] = piece{w, before.tokens + n}
	} else {
		a.pieces = append(a.pieces, piece{w, n})
	}
	return make([]uint32, n)
}

// maxAtOnce bounds the tokens that one event counts.
const maxAtOnce = 4096

// end returns the tokens of what was held back, and the ending of a whole answer.
func (a *textAnswer) end() ([]uint32, *llmv1.End, error) {
	a.counted = false
	rest := a.add(&workerv1.Written{Text: a.text.Flush() + a.refusal.Flush(), Reasoning: a.reasoning.Flush()})
	switch { // some servers end an answer with calls like any other, and one without calls like one with
	case a.called > 0 && a.finish == llmv1.Finish_FINISH_STOP:
		a.finish = llmv1.Finish_FINISH_TOOL_CALLS
	case a.called == 0 && a.finish == llmv1.Finish_FINISH_TOOL_CALLS:
		a.finish = llmv1.Finish_FINISH_STOP
	}
	used := &llmv1.Usage{PromptTokens: uint32(a.prompt), CompletionTokens: a.given, Estimated: true}
	if said := a.usage; said != nil && max(said.Prompt, said.Completion) <= beside.MaxCounted && said.Prompt > 0 {
		used = &llmv1.Usage{PromptTokens: said.Prompt, CompletionTokens: said.Completion, ReasoningTokens: said.Details.Reasoning}
		if cached := said.usage.Details.Cached; cached != nil {
			used.CachedTokens = new(min(*cached, said.Prompt))
		}
	}
	return rest, &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{beside.Hop}, Finish: a.finish, Usage: used}, nil
}

// textFinish converts the server's finish reason.
func textFinish(said string) (llmv1.Finish, error) {
	switch said {
	case "tool_calls", "function_call":
		return llmv1.Finish_FINISH_TOOL_CALLS, nil
	case "eos_token", "stop_sequence": // of Text Generation Inference
		return llmv1.Finish_FINISH_STOP, nil
	default:
		return beside.Finish(said)
	}
}
