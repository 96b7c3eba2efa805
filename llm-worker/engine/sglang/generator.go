package sglang

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/guided"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/llm-worker/engine/features"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// minGrace is the time in which the server must answer an abort, unless its stream has a longer grace.
const minGrace = 250 * time.Millisecond

// A generator is an SGLang over HTTP.
type generator struct {
	client *overhttp.Client
	config *beside.Config
	files  *lexicon.Model // nil if the worker has no tokenizer
	rank   *uint32        // nil if the server chooses one for each request

	// Owned by look.
	trials beside.Trials[modelInfo]
	last   *modelInfo // the last answer of the server
}

func newGenerator(opts *Options, config *beside.Config) *generator {
	g := &generator{client: overhttp.New(opts.Upstream, opts.Key), config: config, files: opts.Files}
	g.client.Pin(opts.Rank)
	if rank, ok := opts.Rank.Number(); ok {
		g.rank = &rank
	}
	g.trials.Same, g.trials.Plain = (*modelInfo).equals, beside.TrialRequest(opts.Files.TrialPrompt())
	g.trials.Alive = func(ctx context.Context) error { return g.client.Get(ctx, "/v1/models", new(struct{})) }
	return g
}

// A modelInfo is what the server reports about its model.
type modelInfo struct {
	name    string
	context int
	seeded  bool
	forms   bool     // the server compiles structural tags in XGrammar's current format
	listed  []string // adapters in the list of models, which older versions leave out
	started []string // adapters that the server was started with
	images  bool     // the model sees images, and the server says so
}

func (m *modelInfo) equals(other *modelInfo) bool {
	return m.name == other.name && m.context == other.context && m.seeded == other.seeded && m.forms == other.forms && m.images == other.images &&
		slices.Equal(m.listed, other.listed) && slices.Equal(m.started, other.started)
}

// look is a beside.Look.
func (g *generator) look(ctx context.Context, was *beside.Upstream, doubt bool) (*beside.Upstream, error) {
	now, err := g.list(ctx, was == nil || doubt)
	if err != nil {
		return g.trials.Unlisted(err)
	}
	g.last = now
	return g.trials.Look(ctx, now, was, doubt, func(ctx context.Context) (*beside.Upstream, error) { return g.try(ctx, now) })
}

// try proves that the server runs the model of the worker's files, and makes it answer with one token, and
// with everything that requests may have.
func (g *generator) try(ctx context.Context, now *modelInfo) (*beside.Upstream, error) {
	model := beside.Model{Name: now.name, Context: now.context, Generation: true}
	up, err := model.Upstream(g.config)
	if err != nil {
		return nil, err
	}
	up.Resumes, up.Capabilities = true, features.SGLangHTTP.Capabilities()
	if now.seeded {
		up.Capabilities = features.SGLangHTTP.Capabilities("seed")
	}
	if now.forms {
		up.Capabilities.Guides = llmv1.GuideSupport_GUIDE_SUPPORT_FORMS
	}
	if now.images {
		up.Capabilities.Images = llmv1.ImageInput_IMAGE_INPUT_PROMPT
	}
	*up = up.WithAdapters(now.listed, now.started)
	up.Ask = func(ctx context.Context, req *workerv1.TokenRequest) (beside.Call, error) { return g.ask(ctx, up, req) }
	if up.Notes, err = g.agree(ctx, now); err != nil {
		return nil, err
	}
	if err := beside.TryPlain(ctx, up.Ask, g.trials.Plain); err != nil {
		return up, err
	}
	form := beside.FormTrial{Upstream: up, Ask: up.Ask, Prompt: g.trials.Plain.GetPrompt(), Text: g.files.Texts()}
	return up, form.Try(ctx)
}

// agree compares the worker's model files with the server's model: older versions do not tell the tokens of
// texts, and count them.
func (g *generator) agree(ctx context.Context, now *modelInfo) (notes []string, err error) {
	if g.files == nil {
		return nil, nil
	}
	a := lexicon.Agreement{Model: g.files, Server: now.name}
	note, err := a.Prove(ctx, func(ctx context.Context, text string, special bool) (said lexicon.Spelling, err error) {
		said.IDs, err = g.client.Tokenize(ctx, map[string]any{"model": now.name, "prompt": text, "add_special_tokens": special})
		return said, err
	})
	if errors.Is(err, lexicon.ErrUntold) {
		note, err = a.Count(ctx, func(ctx context.Context, text string, _ bool) (lexicon.Spelling, error) {
			var said struct {
				Meta struct {
					Prompt int `json:"prompt_tokens"`
				} `json:"meta_info"`
			}
			body := map[string]any{"text": text, "stream": false, "sampling_params": map[string]any{"max_new_tokens": 1, "temperature": 0}}
			err := g.client.Ask(ctx, "/generate", body, &said)
			return lexicon.Spelling{Count: said.Meta.Prompt}, err
		})
	}
	if note != "" {
		notes = []string{note}
	}
	return notes, err
}

// list requests the model's properties and, if anew, those that cannot change while the server
// runs.
func (g *generator) list(ctx context.Context, anew bool) (*modelInfo, error) {
	var models struct {
		Data []struct {
			ID      string `json:"id"`
			Context int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := g.client.Get(ctx, "/v1/models", &models); err != nil {
		return nil, err
	}
	if len(models.Data) == 0 {
		return nil, errors.New("/v1/models lists no model")
	}
	now := &modelInfo{name: models.Data[0].ID, context: models.Data[0].Context}
	for _, m := range models.Data[1:] {
		now.listed = append(now.listed, m.ID)
	}
	slices.Sort(now.listed)
	if !anew {
		now.seeded, now.forms, now.started, now.images = g.last.seeded, g.last.forms, g.last.started, g.last.images
		return now, nil
	}
	var server struct {
		Version       string           `json:"version"`
		Grammars      string           `json:"grammar_backend"`
		Deterministic bool             `json:"enable_deterministic_inference"`
		Adapters      beside.LoRAPaths `json:"lora_paths"`
	}
	if err := g.read(ctx, "server_info", &server); err == nil {
		// A server that does not report determinism does not honour seeds.
		now.seeded, now.started = server.Deterministic, server.Adapters
		now.forms = server.Grammars == "xgrammar" && knowsTags(server.Version)
	}
	var info struct {
		Images bool `json:"has_image_understanding"`
	}
	if err := g.read(ctx, "model_info", &info); err == nil {
		// A server without a processor for images ignores them, so one that does not report it gets none.
		now.images = info.Images
	}
	return now, nil
}

// read requests the properties at a path, which older versions have under a name with get_.
func (g *generator) read(ctx context.Context, path string, into any) error {
	err := g.client.Get(ctx, "/"+path, into)
	if errors.Is(err, streamerr.NotFound) {
		err = g.client.Get(ctx, "/get_"+path, into)
	}
	return err
}

// tagsSince is the first version that is known to take structural tags in XGrammar's current format.
// Older versions fail on such a tag.
var tagsSince = []int{0, 5, 5}

// knowsTags reports whether a version such as "0.5.5.post1" is tagsSince or later.
func knowsTags(version string) bool {
	var parts []int
	for part := range strings.SplitSeq(strings.TrimPrefix(version, "v"), ".") {
		digits := part[:len(part)-len(strings.TrimLeft(part, "0123456789"))]
		n, err := strconv.Atoi(digits)
		if err != nil {
			break
		}
		parts = append(parts, n)
	}
	return slices.Compare(parts, tagsSince) >= 0
}

// A generate is the body of POST /generate.
type generate struct {
	ID       string   `json:"rid"`
	Prompt   []uint32 `json:"input_ids"`
	Adapter  string   `json:"lora_path,omitempty"`  // by the name that the server has loaded it under
	Images   []string `json:"image_data,omitempty"` // data URLs, in the order of their placeholders in Prompt
	Sampling params   `json:"sampling_params"`
	Stream   bool     `json:"stream"`

	// The data-parallel rank that answers, under the name that newer versions have for it, and under
	// the name of older ones.
	Rank    *uint32 `json:"routed_dp_rank,omitempty"`
	OldRank *uint32 `json:"data_parallel_rank,omitempty"`

	ReturnLogprob   bool   `json:"return_logprob,omitempty"`
	LogprobStartLen int    `json:"logprob_start_len"` // -1 for none of the prompt
	TopLogprobsNum  uint32 `json:"top_logprobs_num,omitempty"`
}

// params are SGLang's sampling parameters. Stop strings are deliberately absent: chat-service
// detects them.
type params struct {
	Temperature       float32            `json:"temperature"`
	TopP              float32            `json:"top_p"`
	TopK              int32              `json:"top_k"`
	MinP              float32            `json:"min_p"`
	FrequencyPenalty  float32            `json:"frequency_penalty"`
	PresencePenalty   float32            `json:"presence_penalty"`
	RepetitionPenalty float32            `json:"repetition_penalty"`
	MaxTokens         *uint32            `json:"max_new_tokens"` // null means as many as the context holds
	MinTokens         uint32             `json:"min_new_tokens"`
	StopTokenIDs      []uint32           `json:"stop_token_ids,omitempty"`
	IgnoreEOS         bool               `json:"ignore_eos,omitempty"`
	LogitBias         map[string]float32 `json:"logit_bias,omitempty"`
	Seed              *uint64            `json:"sampling_seed,omitempty"`
	JSONSchema        string             `json:"json_schema,omitempty"`
	StructuralTag     string             `json:"structural_tag,omitempty"`
}

// constrain sets the constraint of a guide, which the server enforces, as Check has found.
func (p *params) constrain(g *llmv1.Guide) error {
	if g == nil {
		return nil
	}
	if schema, ok := guided.Schema(g); ok {
		p.JSONSchema = schema
		return nil
	}
	tag, err := json.Marshal(guided.StructuralTag(g))
	p.StructuralTag = string(tag)
	return err
}

func (g *generator) ask(ctx context.Context, up *beside.Upstream, req *workerv1.TokenRequest) (beside.Call, error) {
	if err := up.Check(req); err != nil {
		return nil, err
	}
	s := up.Rest(req)
	limit := up.Limit(req, s)
	asked := generate{
		ID: beside.NewID(ctx), Prompt: req.GetPrompt(), Adapter: req.GetAdapter(), Images: beside.DataURLs(req.GetImages()), Stream: true,
		Rank: g.rank, OldRank: g.rank,
		Sampling: params{
			Temperature: orOne(s.Temperature), TopP: orOne(s.TopP), TopK: topK(s), MinP: s.GetMinP(),
			FrequencyPenalty: s.GetFrequencyPenalty(), PresencePenalty: s.GetPresencePenalty(), RepetitionPenalty: orOne(s.RepetitionPenalty),
			MinTokens: s.GetMinTokens(), StopTokenIDs: s.GetStopTokenIds(), IgnoreEOS: s.GetIgnoreEos(), LogitBias: biases(s),
		},
		ReturnLogprob: s.Logprobs != nil, LogprobStartLen: -1, TopLogprobsNum: s.GetLogprobs(),
	}
	if err := asked.Sampling.constrain(s.GetGuide()); err != nil {
		return nil, err
	}
	if limit > 0 {
		asked.Sampling.MaxTokens = &limit
	}
	if s.Seed != nil {
		asked.Sampling.Seed = new(beside.Seed(*s.Seed))
	}
	body, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	abort, err := json.Marshal(map[string]string{"rid": asked.ID})
	if err != nil {
		return nil, err
	}
	return &call{
		client: g.client, control: stream.ControlOf(ctx), abort: abort,
		answer: answer{limit: int(limit), ids: beside.NewAnswer(req, up.Vocab, up.EOS), likely: likely.NewQueue(s)},
		// Each event repeats the answer so far, and the answer fits into the context.
		stream: g.client.Stream("/generate", body, len(req.GetPrompt())+int(s.GetMaxTokens())),
	}, nil
}

// Open implements beside.Call. SGLang sends the header of its response with the first token.
func (c *call) Open(ctx context.Context) error {
	err := c.stream.Open(ctx)
	if err != nil {
		c.ended.Store(true)
	}
	return err
}

// Next implements beside.Call: the tokens of events; the end of the response has the ending.
func (c *call) Next() ([]uint32, *llmv1.End, error) { return c.stream.Tokens(c.read) }

// read reads one event.
func (c *call) read() ([]uint32, *llmv1.End, error) {
	data, err := c.stream.Next()
	if err != nil {
		c.ended.Store(true)
		return c.answer.closed(err)
	}
	ids, end, err := c.answer.next(data)
	if end != nil {
		c.ended.Store(true)
	}
	return ids, end, err
}

// Tell implements beside.Teller.
func (c *call) Tell(tokens *workerv1.Tokens) {
	c.answer.ids.Tell(tokens)
	c.answer.likely.Complete(tokens)
}

// Stop implements beside.Call.
func (c *call) Stop() (confirmed bool) {
	c.stop.Do(func() {
		c.confirmed = true
		if !c.ended.Load() {
			ctx, cancel := context.WithTimeout(context.Background(), max(minGrace, c.control.Grace()))
			c.confirmed = c.client.Post(ctx, "/abort_request", c.abort) == nil
			cancel()
		}
		c.stream.HangUp()
	})
	return c.confirmed
}
