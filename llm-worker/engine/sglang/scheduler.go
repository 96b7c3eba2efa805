package sglang

import (
	"cmp"
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	sglangscheduler "github.com/whence-dev/whence/idl/gen/sglang/scheduler"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overgrpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A scheduler is an SGLang over gRPC.
type scheduler struct {
	config *beside.Config
	conn   *grpc.ClientConn
	client sglangscheduler.SglangSchedulerClient

	// Owned by look.
	last  *sglangscheduler.GetModelInfoResponse // of the server that was usable last
	seen  *sglangscheduler.GetModelInfoResponse // the server's last answer; nil after a failure
	trial beside.Trial
}

func newScheduler(upstream string, config *beside.Config) (*scheduler, error) {
	conn, err := overgrpc.Dial(upstream)
	if err != nil {
		return nil, err
	}
	return &scheduler{config: config, conn: conn, client: sglangscheduler.NewSglangSchedulerClient(conn)}, nil
}

// look is a beside.Look. It always requests the model's info, which costs the server nothing.
// HealthCheck makes SGLang generate a token and takes at least a second, so look calls it only to
// try a server that is new or in doubt.
func (s *scheduler) look(ctx context.Context, was *beside.Upstream, doubt bool) (*beside.Upstream, error) {
	var info *sglangscheduler.GetModelInfoResponse
	err := overgrpc.Ask(ctx, beside.AskTimeout, func(ctx context.Context) (err error) {
		info, err = s.client.GetModelInfo(ctx, &sglangscheduler.GetModelInfoRequest{})
		return err
	})
	if err != nil {
		if !beside.Late(err) { // when the server answers again, it is tried at once
			s.seen = nil
		}
		return nil, err
	}
	if s.seen == nil || !proto.Equal(info, s.seen) {
		s.trial.Reset()
	}
	s.seen = info
	if was != nil && !doubt && proto.Equal(info, s.last) {
		return was, nil
	}
	if err := s.trial.Do(func() error { return overgrpc.Ask(ctx, beside.TryTimeout, s.check) }); err != nil {
		return nil, err
	}
	if was != nil && proto.Equal(info, s.last) {
		return was, nil
	}
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
	up.Resumes, up.Capabilities = true, capabilities(false)
	up.Ask = func(ctx context.Context, req *workerv1.TokenRequest) (beside.Call, error) { return s.ask(ctx, up, req) }
	s.last = info
	return up, nil
}

func (s *scheduler) check(ctx context.Context) error {
	health, err := s.client.HealthCheck(ctx, &sglangscheduler.HealthCheckRequest{})
	if err == nil && !health.GetHealthy() {
		err = beside.Fail(streamerr.Unavailable, nil, "the server says that it is not healthy: %s", beside.Clip(health.GetMessage(), beside.MaxMessage))
	}
	return err
}

func (s *scheduler) ask(ctx context.Context, up *beside.Upstream, req *workerv1.TokenRequest) (beside.Call, error) {
	if err := up.Check(req); err != nil {
		return nil, err
	}
	asked := &sglangscheduler.GenerateRequest{
		RequestId:      beside.NewID(ctx),
		Tokenized:      &sglangscheduler.TokenizedInput{InputIds: req.GetPrompt()},
		SamplingParams: sampling(up.Rest(req)),
		Stream:         true,
	}
	return overgrpc.NewCall(beside.NewAnswer(req, up.Vocab, up.EOS), overgrpc.Method[sglangscheduler.GenerateResponse]{
		Open: func(ctx context.Context) (grpc.ServerStreamingClient[sglangscheduler.GenerateResponse], error) {
			return s.client.Generate(ctx, asked)
		},
		Abort: func(ctx context.Context) error {
			told, err := s.client.Abort(ctx, &sglangscheduler.AbortRequest{RequestId: asked.GetRequestId(), Reason: "the stream was stopped"})
			if err == nil && !told.GetSuccess() {
				err = beside.Fail(streamerr.EngineFailed, nil, "%s", told.GetMessage())
			}
			return err
		},
		Read: read,
	}), nil
}

// sampling returns all sampling parameters: an absent one would be read as 0.
func sampling(s *llmv1.Sampling) *sglangscheduler.SamplingParams {
	p := &sglangscheduler.SamplingParams{
		Temperature: orOne(s.Temperature), TopP: orOne(s.TopP), TopK: topK(s), MinP: s.GetMinP(),
		FrequencyPenalty: s.GetFrequencyPenalty(), PresencePenalty: s.GetPresencePenalty(), RepetitionPenalty: orOne(s.RepetitionPenalty),
		MaxNewTokens: s.MaxTokens, MinNewTokens: s.GetMinTokens(), StopTokenIds: s.GetStopTokenIds(), IgnoreEos: s.GetIgnoreEos(), N: 1,
	}
	p.LogitBias = biases(s)
	return p
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
		return overgrpc.Piece{IDs: m.Chunk.GetTokenIds(), Index: m.Chunk.GetIndex(), Usage: beside.Usage{Cached: m.Chunk.GetCachedTokens()}}, true
	case *sglangscheduler.GenerateResponse_Complete:
		c := m.Complete
		return overgrpc.Piece{
			Last: true, Finish: c.GetFinishReason(), Index: c.GetIndex(),
			Usage: beside.Usage{Prompt: c.GetPromptTokens(), Completion: c.GetCompletionTokens(), Cached: c.GetCachedTokens()},
		}, true
	case *sglangscheduler.GenerateResponse_Error:
		status, _ := strconv.Atoi(m.Error.GetHttpStatusCode()) // 0 means no status
		return overgrpc.Piece{Failed: &beside.Complaint{Message: cmp.Or(m.Error.GetMessage(), m.Error.GetDetails()), Status: status}}, true
	default:
		return p, false
	}
}
