package llamacpp

import (
	"encoding/json"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/guided"
	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
	"github.com/whence-dev/whence/llm-worker/guide"
)

// A completion is the body of POST /completion. Fields that a request omits have the defaults of
// whence.llm.v1.Sampling, not those of the server. Stop strings are deliberately absent: chat-service
// detects them.
type completion struct {
	Prompt           []uint32        `json:"prompt"`
	MaxTokens        uint32          `json:"n_predict"`
	Stream           bool            `json:"stream"`
	ReturnTokens     bool            `json:"return_tokens"`
	TimingsPerToken  bool            `json:"timings_per_token"` // has the cached tokens from the first event on
	CachePrompt      bool            `json:"cache_prompt"`
	Temperature      float32         `json:"temperature"`
	TopP             float32         `json:"top_p"`
	TopK             uint32          `json:"top_k"` // 0 keeps all
	MinP             float32         `json:"min_p"`
	RepeatPenalty    float32         `json:"repeat_penalty"`
	RepeatLastN      *int            `json:"repeat_last_n,omitempty"` // see beside.PenaltyWindow
	FrequencyPenalty float32         `json:"frequency_penalty"`
	PresencePenalty  float32         `json:"presence_penalty"`
	LogitBias        []tokenBias     `json:"logit_bias,omitempty"`
	Seed             uint64          `json:"seed"`
	IgnoreEOS        bool            `json:"ignore_eos,omitempty"`
	TopTokens        uint32          `json:"n_probs,omitempty"` // 0 means no log-probabilities
	JSONSchema       json.RawMessage `json:"json_schema,omitempty"`
	Grammar          string          `json:"grammar,omitempty"` // GBNF
}

// A tokenBias is a token id and its bias.
type tokenBias [2]any

// ask returns the call of a request.
func (e *Engine) ask(up *beside.Upstream, req *workerv1.TokenRequest) (*call, error) {
	if err := up.Check(req); err != nil {
		return nil, err
	}
	s := up.Rest(req)
	c := completion{
		Prompt: req.GetPrompt(), MaxTokens: s.GetMaxTokens(), Stream: true, ReturnTokens: true, TimingsPerToken: true, CachePrompt: true,
		Temperature: orOne(s.Temperature), TopP: orOne(s.TopP), TopK: s.GetTopK(), MinP: s.GetMinP(),
		RepeatPenalty: orOne(s.RepetitionPenalty), RepeatLastN: up.PenaltyWindow(s), FrequencyPenalty: s.GetFrequencyPenalty(), PresencePenalty: s.GetPresencePenalty(),
		LogitBias: biases(s), IgnoreEOS: s.GetIgnoreEos(),
	}
	if s.Seed != nil {
		c.Seed = beside.Seed(*s.Seed)
	} else {
		c.Seed = anySeed()
	}
	if s.Logprobs != nil {
		c.TopTokens = max(s.GetLogprobs(), 1)
	}
	if err := c.constrain(s.GetGuide(), &e.grammars); err != nil {
		return nil, err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return &call{
		stream: e.client.Stream("/completion", body, len(req.GetPrompt())), slots: e.slots, seed: c.Seed, unique: s.Seed == nil,
		answer: &answer{pieces: e.pieces, ids: beside.NewAnswer(req, up.Vocab, up.EOS), likely: likely.NewQueue(s)},
	}, nil
}

// constrain sets the constraint of a guide: the grammar that the embedded engine follows, or, for a
// schema that has none, what the server makes of the schema. The server's own grammar of a schema leaves
// out more keywords, and with llguidance it has white space without end.
func (c *completion) constrain(g *llmv1.Guide, grammars *guide.Grammars) error {
	if g == nil {
		return nil
	}
	var err error
	if c.Grammar, err = grammars.GBNF(g); err == nil {
		return nil
	}
	schema, ok := guided.Schema(g)
	if !ok {
		return err
	}
	c.JSONSchema = json.RawMessage(schema)
	return nil
}

func biases(s *llmv1.Sampling) []tokenBias {
	var all []tokenBias
	for id, bias := range s.GetLogitBias() {
		all = append(all, tokenBias{id, bias})
	}
	return all
}

// orOne returns the requested value, or 1, which has no effect.
func orOne(asked *float32) float32 {
	if asked != nil {
		return *asked
	}
	return 1
}
