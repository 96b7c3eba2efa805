// Package vllm is an engine that generates on a vLLM beside the worker, over vLLM's own gRPC
// service: token ids in, token ids out, no text.
//
// A stopped stream is aborted by its request's id, and then reset; the stop is confirmed when vLLM
// has answered the abort. The stream's trace context is sent as metadata. Guides become vLLM's
// structured outputs. vLLM's service has no field for LoRA adapters, so requests for them are refused.
package vllm

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	vllmengine "github.com/whence-dev/whence/idl/gen/vllm/engine"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/guided"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overgrpc"
	"github.com/whence-dev/whence/llm-worker/engine/features"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An Engine generates on a vLLM. Generate works while Watch finds the vLLM healthy.
type Engine struct {
	*beside.Engine
	config *beside.Config
	conn   *grpc.ClientConn
	client vllmengine.VllmEngineClient
	files  *lexicon.Model // nil if the worker has none
	rank   *int32         // the data-parallel rank of all requests; nil lets the server choose

	trials beside.Trials[vllmengine.GetModelInfoResponse] // owned by look
}

// New returns an engine on the vLLM at opts.Upstream, a valid host:port. config is the operator's
// description of the model; nil means vLLM's own. files has the model's tokenizer; nil if the worker has
// none.
func New(opts beside.Options, config *beside.Config, files *lexicon.Model) (*Engine, error) {
	conn, err := overgrpc.Dial(opts.Upstream)
	if err != nil {
		return nil, err
	}
	e := &Engine{config: config, conn: conn, client: vllmengine.NewVllmEngineClient(conn), files: files}
	if rank, ok := opts.Rank.Number(); ok {
		e.rank = new(int32(rank)) //nolint:gosec // bounded
	}
	e.trials.Same = func(a, b *vllmengine.GetModelInfoResponse) bool { return proto.Equal(a, b) }
	e.trials.Plain = beside.TrialRequest(files.TrialPrompt())
	e.trials.Alive = func(ctx context.Context) error {
		_, err := e.info(ctx)
		return err
	}
	e.Engine = beside.New(opts, e.look)
	e.ReadLoad(e.load)
	return e, nil
}

// Watch is beside.Engine's Watch. When it returns, the connection is closed.
func (e *Engine) Watch(ctx context.Context, changed func(healthy bool)) {
	defer e.conn.Close() //nolint:errcheck // nothing is lost: the streams have ended
	e.Engine.Watch(ctx, changed)
}

// look is a beside.Look.
func (e *Engine) look(ctx context.Context, was *beside.Upstream, doubt bool) (*beside.Upstream, error) {
	info, err := e.info(ctx)
	if err != nil {
		return e.trials.Unlisted(err)
	}
	return e.trials.Look(ctx, info, was, doubt, func(ctx context.Context) (*beside.Upstream, error) { return e.try(ctx, info) })
}

// info asks for the server's health and for its model.
func (e *Engine) info(ctx context.Context) (info *vllmengine.GetModelInfoResponse, err error) {
	err = overgrpc.Ask(ctx, beside.AskTimeout, func(ctx context.Context) error {
		health, err := e.client.HealthCheck(ctx, &vllmengine.HealthCheckRequest{})
		if err != nil {
			return err
		}
		if !health.GetHealthy() {
			return beside.Fail(streamerr.Unavailable, nil, "the server says that it is not healthy: %s", beside.Clip(health.GetMessage(), beside.MaxMessage))
		}
		info, err = e.client.GetModelInfo(ctx, &vllmengine.GetModelInfoRequest{})
		return err
	})
	return info, err
}

// try makes the server answer with one token, and with everything that requests may have.
func (e *Engine) try(ctx context.Context, info *vllmengine.GetModelInfoResponse) (*beside.Upstream, error) {
	model := beside.Model{
		Name: info.GetServedModelName(), Context: int(info.GetMaxContextLength()), Vocab: int(info.GetVocabSize()), EOS: overgrpc.IDs(info.GetEosTokenIds()),
		Generation: true, // tryEmbed handles a model that does not generate
	}
	if model.Name == "" {
		model.Name = info.GetModelPath()
	}
	up, err := model.Upstream(e.config)
	if err == nil {
		err = e.checkRank(ctx)
	}
	if err != nil {
		return nil, err
	}
	if !info.GetIsGeneration() {
		return e.tryEmbed(ctx, up, int(info.GetVocabSize()))
	}
	up.Resumes, up.Capabilities = true, features.VLLM.Capabilities()
	up.Ask = func(ctx context.Context, req *workerv1.TokenRequest) (beside.Call, error) { return e.ask(ctx, up, req) }
	if up.Notes, err = e.agree(ctx, up, int(info.GetVocabSize())); err != nil {
		return nil, err
	}
	if err := beside.TryPlain(ctx, up.Ask, e.trials.Plain); err != nil {
		return up, err
	}
	form := beside.FormTrial{Upstream: up, Ask: up.Ask, Prompt: e.trials.Plain.GetPrompt(), Text: e.files.Texts(), Parser: e.parser}
	return up, form.Try(ctx)
}

// parser returns the name of the server's reasoning parser; "" if there is none, or an older server does not
// tell.
func (e *Engine) parser(ctx context.Context) (name string) {
	_ = overgrpc.Ask(ctx, beside.AskTimeout, func(ctx context.Context) error {
		info, err := e.client.GetServerInfo(ctx, &vllmengine.GetServerInfoRequest{})
		name = info.GetEngineReasoningParser()
		return err
	})
	return name
}

// checkRank refuses a server that lacks the rank of --upstream-rank: an older vLLM would ignore the rank.
func (e *Engine) checkRank(ctx context.Context) error {
	if e.rank == nil {
		return nil
	}
	return overgrpc.Ask(ctx, beside.AskTimeout, func(ctx context.Context) error {
		info, err := e.client.GetServerInfo(ctx, &vllmengine.GetServerInfoRequest{})
		if err == nil && *e.rank >= info.GetDataParallelSize() {
			err = beside.Fail(streamerr.EngineFailed, nil, "--upstream-rank is %d, and the server that generates says that it has %d data-parallel ranks, numbered from 0", *e.rank, info.GetDataParallelSize())
		}
		return err
	})
}

// load is a beside.LoadReader. Older versions of vLLM's service do not report the size of the KV cache
// and the maximum number of running requests.
func (e *Engine) load(ctx context.Context) (*beside.ServerLoad, error) {
	loads, err := e.client.GetLoads(ctx, &vllmengine.GetLoadsRequest{DpRank: e.rank})
	if err != nil {
		return nil, err
	}
	return overgrpc.Load(loads.GetLoads()), nil
}

func (e *Engine) ask(ctx context.Context, up *beside.Upstream, req *workerv1.TokenRequest) (beside.Call, error) {
	if err := up.Check(req); err != nil {
		return nil, err
	}
	params, err := sampling(up.Rest(req))
	if err != nil {
		return nil, err
	}
	asked := &vllmengine.GenerateRequest{
		RequestId:      beside.NewID(ctx),
		Input:          &vllmengine.GenerateRequest_Tokenized{Tokenized: &vllmengine.TokenizedInput{InputIds: req.GetPrompt()}},
		SamplingParams: params,
		Stream:         true,

		DataParallelRank: e.rank,
	}
	return overgrpc.NewCall(ctx, up, req, overgrpc.Method[vllmengine.GenerateResponse]{
		Open: func(ctx context.Context) (grpc.ServerStreamingClient[vllmengine.GenerateResponse], error) {
			return e.client.Generate(ctx, asked)
		},
		Abort: func(ctx context.Context) error {
			_, err := e.client.Abort(ctx, &vllmengine.AbortRequest{RequestIds: []string{asked.GetRequestId()}})
			return err
		},
		Read:    read,
		Dialect: beside.VLLM,
	}), nil
}

// sampling returns the sampling parameters. vLLM's defaults apply to unset fields. Stop strings are
// deliberately absent: chat-service detects them.
func sampling(s *llmv1.Sampling) (*vllmengine.SamplingParams, error) {
	p := &vllmengine.SamplingParams{
		Temperature: s.Temperature, TopP: s.GetTopP(), TopK: s.GetTopK(), MinP: s.GetMinP(),
		FrequencyPenalty: s.GetFrequencyPenalty(), PresencePenalty: s.GetPresencePenalty(), RepetitionPenalty: s.GetRepetitionPenalty(),
		MaxTokens: s.MaxTokens, MinTokens: s.GetMinTokens(), StopTokenIds: s.GetStopTokenIds(), IgnoreEos: s.GetIgnoreEos(), N: 1,
	}
	if s.Seed != nil {
		p.Seed = new(int32(beside.Seed(*s.Seed)))
	}
	if len(s.GetLogitBias()) > 0 {
		p.LogitBias = make(map[int32]float32, len(s.GetLogitBias()))
		for id, bias := range s.GetLogitBias() {
			p.LogitBias[int32(id)] = bias //nolint:gosec // below the vocabulary's size
		}
	}
	if s.Logprobs != nil {
		// The sampled token is counted among the top tokens, in place of the last of them.
		p.Logprobs = new(int32(s.GetLogprobs())) //nolint:gosec // checked
		if s.GetLogprobs() > 0 {
			*p.Logprobs++
		}
	}
	if s.GetPromptLogprobs() {
		p.PromptLogprobs = p.Logprobs
	}
	return p, constrain(p, s.GetGuide())
}

// constrain sets the simplest constraint that can express a guide, which itself says where reasoning ends.
func constrain(p *vllmengine.SamplingParams, g *llmv1.Guide) error {
	if g == nil {
		return nil
	}
	p.GrammarFromFirstToken = true
	if schema, ok := guided.Schema(g); ok {
		p.Constraint = &vllmengine.SamplingParams_JsonSchema{JsonSchema: schema}
		return nil
	}
	if choices, ok := guided.Choices(g); ok {
		p.Constraint = &vllmengine.SamplingParams_Choice{Choice: &vllmengine.ChoiceConstraint{Choices: choices}}
		return nil
	}
	tag, err := json.Marshal(guided.StructuralTag(g))
	p.Constraint = &vllmengine.SamplingParams_StructuralTag{StructuralTag: string(tag)}
	return err
}

// read converts a message. vLLM's ending counts only the tokens of the last chunk, so the engine
// counts the answer's tokens itself.
func read(m *vllmengine.GenerateResponse) (p overgrpc.Piece, ok bool) {
	switch m := m.GetResponse().(type) {
	case *vllmengine.GenerateResponse_Chunk:
		c := m.Chunk
		return overgrpc.Piece{
			IDs: c.GetTokenIds(), Index: c.GetIndex(), Usage: beside.Usage{Cached: new(c.GetCachedTokens())},
			Likely: overgrpc.Positions(c.GetOutputLogprobs(), c.GetOutputLogprobs().GetTopLogprobs()), Prompt: scores(c.GetInputLogprobs()),
		}, true
	case *vllmengine.GenerateResponse_Complete:
		return overgrpc.Piece{
			Last: true, Finish: m.Complete.GetFinishReason(), Index: m.Complete.GetIndex(),
			Usage: beside.Usage{Prompt: m.Complete.GetPromptTokens(), Cached: new(m.Complete.GetCachedTokens())},
		}, true
	default:
		return p, false
	}
}

// scores converts the log-probabilities of a prompt. The first token has no value, and gets 0.
func scores(of *vllmengine.InputLogProbs) []likely.Position {
	same := &vllmengine.OutputLogProbs{TokenIds: of.GetTokenIds(), TopLogprobs: of.GetTopLogprobs()}
	for _, one := range of.GetTokenLogprobs() {
		same.TokenLogprobs = append(same.TokenLogprobs, one.GetValue())
	}
	return overgrpc.Positions(same, same.GetTopLogprobs())
}
