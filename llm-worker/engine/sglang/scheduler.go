package sglang

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	sglangscheduler "github.com/whence-dev/whence/idl/gen/sglang/scheduler"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/guided"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overgrpc"
	"github.com/whence-dev/whence/llm-worker/engine/features"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A scheduler is an SGLang over gRPC.
type scheduler struct {
	config *beside.Config
	files  *lexicon.Model // nil if the worker has no tokenizer
	conn   *grpc.ClientConn
	client sglangscheduler.SglangSchedulerClient
	log    *slog.Logger

	// Owned by look.
	trials beside.Trials[sglangscheduler.GetModelInfoResponse]
	// adapters has the ids of the adapters of the server that was usable last.
	adapters map[string]string
	unlisted bool // the server failed to list its adapters, and the log says so
}

func newScheduler(opts *Options, config *beside.Config) (*scheduler, error) {
	conn, err := overgrpc.Dial(opts.Upstream)
	if err != nil {
		return nil, err
	}
	s := &scheduler{
		config: config, log: cmp.Or(opts.Log, slog.New(slog.DiscardHandler)), conn: conn, client: sglangscheduler.NewSglangSchedulerClient(conn), files: opts.Files,
	}
	s.trials.Same = func(a, b *sglangscheduler.GetModelInfoResponse) bool { return proto.Equal(a, b) }
	s.trials.Plain = beside.TrialRequest(opts.Files.TrialPrompt())
	s.trials.Alive = func(ctx context.Context) error {
		_, err := s.info(ctx)
		return err
	}
	return s, nil
}

// look is a beside.Look. It always requests the model's info, which costs the server nothing.
func (s *scheduler) look(ctx context.Context, was *beside.Upstream, doubt bool) (*beside.Upstream, error) {
	info, err := s.info(ctx)
	if err != nil {
		return s.trials.Unlisted(err)
	}
	if was == nil {
		s.adapters = nil // another process may answer, with other ids
	}
	adapters := s.listAdapters(ctx)
	up, err := s.trials.Look(ctx, info, was, doubt, func(ctx context.Context) (*beside.Upstream, error) {
		up, err := s.try(ctx, info)
		if up == nil {
			return nil, err
		}
		return s.withAdapters(up, adapters), err
	})
	if err == nil && up == was && !maps.Equal(adapters, s.adapters) {
		return s.withAdapters(was, adapters), nil
	}
	return up, err
}

// info asks for the server's model.
func (s *scheduler) info(ctx context.Context) (info *sglangscheduler.GetModelInfoResponse, err error) {
	err = overgrpc.Ask(ctx, beside.AskTimeout, func(ctx context.Context) (err error) {
		info, err = s.client.GetModelInfo(ctx, &sglangscheduler.GetModelInfoRequest{})
		return err
	})
	return info, err
}

// try makes the server answer with one token, and with everything that requests may have. HealthCheck makes
// SGLang generate, too, and says what is wrong.
func (s *scheduler) try(ctx context.Context, info *sglangscheduler.GetModelInfoResponse) (*beside.Upstream, error) {
	model := beside.Model{
		Name: info.GetServedModelName(), Context: int(info.GetMaxContextLength()), Vocab: int(info.GetVocabSize()), EOS: overgrpc.IDs(info.GetEosTokenIds()),
		Generation: info.GetIsGeneration(),
	}
	if model.Name == "" {
		model.Name = info.GetModelPath()
	}
	up, err := model.Upstream(s.config)
	if err != nil {
		return nil, err
	}
	up.Resumes, up.Capabilities = true, features.SGLangGRPC.Capabilities()
	up.Ask = func(ctx context.Context, req *workerv1.TokenRequest) (beside.Call, error) {
		return s.ask(ctx, up, nil, req)
	}
	if s.files != nil {
		a := lexicon.Agreement{Model: s.files, Server: up.Name}
		if err := a.FitsInto(int(info.GetVocabSize())); err != nil {
			return nil, err
		}
	}
	if err := overgrpc.Ask(ctx, beside.TryTimeout, s.check); err != nil {
		return up, err
	}
	if err := beside.TryPlain(ctx, up.Ask, s.trials.Plain); err != nil {
		return up, err
	}
	form := beside.FormTrial{Upstream: up, Ask: up.Ask, Prompt: s.trials.Plain.GetPrompt(), Text: s.files.Texts()}
	return up, form.Try(ctx)
}

// withAdapters returns a description of the same server with these adapters.
func (s *scheduler) withAdapters(up *beside.Upstream, adapters map[string]string) *beside.Upstream {
	with := up.WithAdapters(slices.Sorted(maps.Keys(adapters)))
	with.Ask = func(ctx context.Context, req *workerv1.TokenRequest) (beside.Call, error) {
		return s.ask(ctx, &with, adapters, req)
	}
	s.adapters = adapters
	return &with
}

// listAdapters returns the ids of the adapters that the server has loaded, by their names. Servers
// that cannot list adapters cannot be asked for one, because only they know the ids. A server that
// fails to list them serves its model all the same, with the adapters that it listed last.
func (s *scheduler) listAdapters(ctx context.Context) map[string]string {
	var list *sglangscheduler.ListLoadedLoRAAdaptersResponse
	err := overgrpc.Ask(ctx, beside.AskTimeout, func(ctx context.Context) (err error) {
		list, err = s.client.ListLoadedLoRAAdapters(ctx, &sglangscheduler.ListLoadedLoRAAdaptersRequest{})
		if status.Code(err) == codes.Unimplemented {
			list, err = nil, nil
		}
		return err
	})
	if err != nil {
		if !s.unlisted && ctx.Err() == nil {
			s.log.Warn("the server does not list its adapters; the last list stays in use", "adapters", len(s.adapters), "err", err)
		}
		s.unlisted = true
		return s.adapters
	}
	s.unlisted = false
	ids := make(map[string]string)
	for _, adapter := range list.GetLoadedAdapters() {
		if adapter.GetLoraId() != "" { // an empty id would ask for the base model
			ids[adapter.GetLoraName()] = adapter.GetLoraId()
		}
	}
	return ids
}

func (s *scheduler) check(ctx context.Context) error {
	health, err := s.client.HealthCheck(ctx, &sglangscheduler.HealthCheckRequest{})
	if err == nil && !health.GetHealthy() {
		err = beside.Fail(streamerr.Unavailable, nil, "the server says that it is not healthy: %s", beside.Clip(health.GetMessage(), beside.MaxMessage))
	}
	return err
}

// load is a beside.LoadReader.
func (s *scheduler) load(ctx context.Context) (*beside.ServerLoad, error) {
	loads, err := s.client.GetLoads(ctx, &sglangscheduler.GetLoadsRequest{Include: []string{"core"}})
	if err != nil {
		return nil, err
	}
	load := overgrpc.Load(loads.GetLoads())
	for _, rank := range loads.GetLoads() {
		load.UnreadPromptTokens += uint64(max(0, rank.GetNumWaitingUncachedTokens()))
	}
	return load, nil
}

func (s *scheduler) ask(ctx context.Context, up *beside.Upstream, adapters map[string]string, req *workerv1.TokenRequest) (beside.Call, error) {
	if err := up.Check(req); err != nil {
		return nil, err
	}
	rest := up.Rest(req)
	params, err := sampling(rest)
	if err != nil {
		return nil, err
	}
	asked := &sglangscheduler.GenerateRequest{
		RequestId:      beside.NewID(ctx),
		Tokenized:      &sglangscheduler.TokenizedInput{InputIds: req.GetPrompt()},
		SamplingParams: params,
		Stream:         true,
		ReturnLogprob:  rest.Logprobs != nil, LogprobStartLen: -1, TopLogprobsNum: int32(rest.GetLogprobs()), //nolint:gosec // checked
		LoraId: adapters[req.GetAdapter()],
	}
	return overgrpc.NewCall(ctx, up, req, overgrpc.Method[sglangscheduler.GenerateResponse]{
		Open: func(ctx context.Context) (grpc.ServerStreamingClient[sglangscheduler.GenerateResponse], error) {
			return s.client.Generate(ctx, asked)
		},
		Abort: func(ctx context.Context) error {
			resp, err := s.client.Abort(ctx, &sglangscheduler.AbortRequest{RequestId: asked.GetRequestId(), Reason: "the stream was stopped"})
			if err == nil && !resp.GetSuccess() {
				err = beside.Fail(streamerr.EngineFailed, nil, "%s", resp.GetMessage())
			}
			return err
		},
		Read: read,
	}), nil
}

// sampling returns all sampling parameters: an absent one would be read as 0.
func sampling(s *llmv1.Sampling) (*sglangscheduler.SamplingParams, error) {
	p := &sglangscheduler.SamplingParams{
		Temperature: orOne(s.Temperature), TopP: orOne(s.TopP), TopK: topK(s), MinP: s.GetMinP(),
		FrequencyPenalty: s.GetFrequencyPenalty(), PresencePenalty: s.GetPresencePenalty(), RepetitionPenalty: orOne(s.RepetitionPenalty),
		MaxNewTokens: s.MaxTokens, MinNewTokens: s.GetMinTokens(), StopTokenIds: s.GetStopTokenIds(), IgnoreEos: s.GetIgnoreEos(), N: 1,
	}
	p.LogitBias = biases(s)
	return p, constrain(p, s.GetGuide())
}

// constrain sets the constraint of a guide.
func constrain(p *sglangscheduler.SamplingParams, g *llmv1.Guide) error {
	if g == nil {
		return nil
	}
	if schema, ok := guided.Schema(g); ok {
		p.Constraint = &sglangscheduler.SamplingParams_JsonSchema{JsonSchema: schema}
		return nil
	}
	tag, err := json.Marshal(guided.StructuralTag(g))
	p.Constraint = &sglangscheduler.SamplingParams_StructuralTag{StructuralTag: string(tag)}
	return err
}

// biases returns the logit biases with token ids as text.
func biases(s *llmv1.Sampling) map[string]float32 {
	if len(s.GetLogitBias()) == 0 {
		return nil
	}
	all := make(map[string]float32, len(s.GetLogitBias()))
	for id, bias := range s.GetLogitBias() {
		all[strconv.FormatUint(uint64(id), 10)] = bias
	}
	return all
}

// read converts a message.
func read(m *sglangscheduler.GenerateResponse) (p overgrpc.Piece, ok bool) {
	switch m := m.GetResponse().(type) {
	case *sglangscheduler.GenerateResponse_Chunk:
		c := m.Chunk
		return overgrpc.Piece{
			IDs: c.GetTokenIds(), Index: c.GetIndex(), Usage: beside.Usage{Cached: new(c.GetCachedTokens())},
			Likely: overgrpc.Positions(c.GetOutputLogprobs(), c.GetOutputLogprobs().GetTopLogprobs()),
		}, true
	case *sglangscheduler.GenerateResponse_Complete:
		c := m.Complete
		return overgrpc.Piece{
			Last: true, Finish: c.GetFinishReason(), Index: c.GetIndex(),
			Usage: beside.Usage{Prompt: c.GetPromptTokens(), Completion: c.GetCompletionTokens(), Cached: new(c.GetCachedTokens())},
		}, true
	case *sglangscheduler.GenerateResponse_Error:
		status, _ := strconv.Atoi(m.Error.GetHttpStatusCode()) // 0 means no status
		return overgrpc.Piece{Failed: &beside.Complaint{Message: cmp.Or(m.Error.GetMessage(), m.Error.GetDetails()), Status: status}}, true
	default:
		return p, false
	}
}
