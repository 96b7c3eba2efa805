package ollama

import (
	"context"
	"encoding/json"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/guided"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
)

// A generate is the body of POST /api/generate.
type generate struct {
	Model    string          `json:"model"`
	Prompt   string          `json:"prompt"`
	Raw      bool            `json:"raw"` // no template of Ollama's
	Stream   bool            `json:"stream"`
	Truncate bool            `json:"truncate"`        // false: refuse what the context cannot hold
	Shift    *bool           `json:"shift,omitempty"` // see target
	Format   json.RawMessage `json:"format,omitempty"`
	Logprobs bool            `json:"logprobs,omitempty"`
	Top      uint32          `json:"top_logprobs,omitempty"`
	Options  options         `json:"options"`
}

// options are Ollama's parameters. Fields that a request omits have the defaults of
// whence.llm.v1.Sampling, not Ollama's. Stop strings are deliberately absent: chat-service detects those of
// a request, and those of the Modelfile, which usually end a turn, remain in force: see logStops.
type options struct {
	MaxTokens        uint32  `json:"num_predict"`
	Temperature      float32 `json:"temperature"`
	TopP             float32 `json:"top_p"`
	TopK             uint32  `json:"top_k"` // 0 keeps all
	MinP             float32 `json:"min_p"`
	RepeatPenalty    float32 `json:"repeat_penalty"`
	RepeatLastN      *int    `json:"repeat_last_n,omitempty"` // see beside.PenaltyWindow
	FrequencyPenalty float32 `json:"frequency_penalty"`
	PresencePenalty  float32 `json:"presence_penalty"`
	Seed             *uint64 `json:"seed,omitempty"`
}

// A call is one request to the server.
type call struct {
	stream *overhttp.Stream
	answer *answer
}

// A target is a model of Ollama's.
type target struct {
	name string
	// unbounded reports that the length of the context is not known, so that answers may reach its end: then
	// Ollama must not drop the beginning of the prompt for the rest. Otherwise "shift" is absent: Ollama loads a
	// model anew when the next request has another value, which other clients do not send.
	unbounded bool
}

// ask returns the call of a request for a model.
func (e *Engine) ask(up *beside.Upstream, to *target, req *workerv1.TokenRequest) (*call, error) {
	if err := up.Check(req); err != nil {
		return nil, err
	}
	text, err := e.model.Spell(req.GetPrompt())
	if err != nil {
		return nil, err
	}
	s := up.Rest(req)
	g := generate{Model: to.name, Prompt: text, Raw: true, Stream: true, Options: options{
		MaxTokens: s.GetMaxTokens(), Temperature: orOne(s.Temperature), TopP: orOne(s.TopP), TopK: s.GetTopK(), MinP: s.GetMinP(),
		RepeatPenalty: orOne(s.RepetitionPenalty), RepeatLastN: up.PenaltyWindow(s), FrequencyPenalty: s.GetFrequencyPenalty(), PresencePenalty: s.GetPresencePenalty(),
	}}
	if to.unbounded {
		g.Shift = new(false)
	}
	if s.Seed != nil {
		g.Options.Seed = new(beside.Seed(*s.Seed))
	}
	g.Logprobs, g.Top = s.Logprobs != nil, s.GetLogprobs()
	if schema, ok := guided.Schema(s.GetGuide()); ok {
		g.Format = json.RawMessage(schema)
	}
	body, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	a, err := newAnswer(e.model, up, req)
	if err != nil {
		return nil, err
	}
	return &call{e.client.Lines("/api/generate", body), a}, nil
}

// orOne returns the requested value, or 1, which has no effect.
func orOne(asked *float32) float32 {
	if asked != nil {
		return *asked
	}
	return 1
}

// Open implements beside.Call. Ollama sends the header of its response with the first token.
func (c *call) Open(ctx context.Context) error { return c.stream.Open(ctx) }

// Next implements beside.Call: the tokens of lines; the last line has the ending.
func (c *call) Next() ([]uint32, *llmv1.End, error) { return c.stream.Tokens(c.read) }

// read reads one line.
func (c *call) read() ([]uint32, *llmv1.End, error) {
	line, err := c.stream.Next()
	if err != nil {
		return nil, nil, err
	}
	return c.answer.next(line)
}

// Tell implements beside.Teller.
func (c *call) Tell(tokens *workerv1.Tokens) { c.answer.likely.Complete(tokens) }

// Stop implements beside.Call.
func (c *call) Stop() (confirmed bool) {
	c.stream.HangUp()
	return false // Ollama does not tell when its runner has stopped: a runner reads a batch of the prompt to its end
}
