package beside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A FormTrial asks a server that has answered a plain trial for answers with everything that the requests of
// clients may have, and leaves out of the Upstream's capabilities what the server refuses or ignores. A field
// that a version of the server refuses would otherwise fail every request that has it.
type FormTrial struct {
	Upstream *Upstream
	Ask      func(ctx context.Context, req *workerv1.TokenRequest) (Call, error)
	Prompt   []uint32
	// Text returns the text of token ids; nil if the worker has no tokenizer: an answer with a guide is then
	// compared with one without it.
	Text func(ids []uint32) string
	// Parser returns the name of the server's reasoning parser, if the server tells it; it may be nil.
	Parser func(ctx context.Context) string
}

// Try returns an error only if the server has failed, or was too busy: the trial is then not over.
func (t *FormTrial) Try(ctx context.Context) error {
	can := t.Upstream.Capabilities
	fields := slices.DeleteFunc(slices.Clone(can.GetSampling()), func(field string) bool { return trialFields[field] == nil })
	groups := [][]string{fields}
	if i := slices.Index(fields, "logprobs"); i >= 0 && can.GetSampledLogprobs() { // only beside fields that change none
		groups = [][]string{slices.Delete(slices.Clone(fields), i, i+1), {"logprobs"}}
	}
	for _, group := range groups {
		if err := t.tryFields(ctx, group); err != nil {
			return err
		}
	}
	return t.tryGuides(ctx)
}

// trialFields set the fields of Sampling for a trial, to values with an effect that every server takes.
// max_tokens and temperature are missing here, because every trial has them, and guides have trials of their
// own.
var trialFields = map[string]func(s *llmv1.Sampling, prompt []uint32){
	"top_p":              func(s *llmv1.Sampling, _ []uint32) { s.TopP = proto.Float32(0.9) },
	"top_k":              func(s *llmv1.Sampling, _ []uint32) { s.TopK = proto.Uint32(40) },
	"min_p":              func(s *llmv1.Sampling, _ []uint32) { s.MinP = proto.Float32(0.05) },
	"repetition_penalty": func(s *llmv1.Sampling, _ []uint32) { s.RepetitionPenalty = proto.Float32(1.1) },
	"frequency_penalty":  func(s *llmv1.Sampling, _ []uint32) { s.FrequencyPenalty = proto.Float32(0.1) },
	"presence_penalty":   func(s *llmv1.Sampling, _ []uint32) { s.PresencePenalty = proto.Float32(0.1) },
	"logit_bias":         func(s *llmv1.Sampling, prompt []uint32) { s.LogitBias = map[uint32]float32{prompt[0]: 0.5} },
	"seed":               func(s *llmv1.Sampling, _ []uint32) { s.Seed = proto.Uint64(7) },
	"min_tokens":         func(s *llmv1.Sampling, _ []uint32) { s.MinTokens = proto.Uint32(1) },
	"ignore_eos":         func(s *llmv1.Sampling, _ []uint32) { s.IgnoreEos = true },
	"stop_token_ids":     func(s *llmv1.Sampling, prompt []uint32) { s.StopTokenIds = prompt[:1] },
	"logprobs":           func(s *llmv1.Sampling, _ []uint32) { s.Logprobs = proto.Uint32(1) },
	"prompt_logprobs":    func(s *llmv1.Sampling, _ []uint32) { s.Logprobs, s.PromptLogprobs = proto.Uint32(1), true },
}

// tryFields sends a request with all of fields, and, if the server refuses it, one with each.
func (t *FormTrial) tryFields(ctx context.Context, fields []string) error {
	refusal := t.send(ctx, fields)
	if !isRefusal(refusal) {
		return refusal
	}
	var refused []string
	for _, field := range fields {
		switch err := t.send(ctx, []string{field}); {
		case isRefusal(err):
			refused = append(refused, field)
			refusal = err
		case err != nil:
			return err
		}
	}
	if len(refused) == 0 {
		t.note("the server refuses a request with all fields of sampling together, and takes each: %s", refusal)
		return nil
	}
	t.leaveOut(refused...)
	t.note("the server refuses "+strings.Join(refused, ", ")+", so requests with that are refused: %s", refusal)
	return nil
}

func (t *FormTrial) send(ctx context.Context, fields []string) error {
	req := TrialRequest(t.Prompt)
	for _, field := range fields {
		trialFields[field](req.GetSampling(), t.Prompt)
	}
	_, err := t.answer(ctx, req)
	return err
}

// answer returns the tokens of the server's answer to a request.
func (t *FormTrial) answer(ctx context.Context, req *workerv1.TokenRequest) (ids []uint32, err error) {
	call, err := t.Ask(ctx, req)
	if err != nil {
		return nil, err
	}
	ids, err = collect(ctx, call)
	if errors.Is(err, streamerr.PeerLost) && TryPlain(ctx, t.Ask, TrialRequest(t.Prompt)) == nil {
		return nil, Fail(streamerr.EngineFailed, err, "%s", streamerr.As(err).Text()) // only this request breaks
	}
	return ids, err
}

// isRefusal reports that the server did not take a request, or did not answer it as asked, and works.
func isRefusal(err error) bool {
	return errors.Is(err, streamerr.Invalid) || errors.Is(err, streamerr.EngineFailed) && !errors.Is(err, ErrKeyRefused)
}

// leaveOut takes fields out of the capabilities.
func (t *FormTrial) leaveOut(fields ...string) {
	can := t.Upstream.Capabilities
	can.Sampling = slices.DeleteFunc(can.GetSampling(), func(field string) bool { return slices.Contains(fields, field) })
}

// note adds a note to the Upstream. format has one verb, for the server's words.
func (t *FormTrial) note(format string, said error) {
	t.Upstream.Notes = append(t.Upstream.Notes, fmt.Sprintf(format, Clip(streamerr.As(said).Text(), MaxMessage)))
}

// The guides of a trial, and the answers that they allow. The second one has text beside its schema.
const trialSchema = `{"enum":["a"]}`

var (
	schemaGuide = &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: trialSchema}}}
	formGuide   = &llmv1.Guide{Forms: []*llmv1.GuideForm{{Before: "b", Schema: trialSchema}}}
)

// tryGuides asks for answers with a guide, which a model would not give by itself. A server with a reasoning
// parser applies guides only after the end of the reasoning, and says nothing when there is none.
func (t *FormTrial) tryGuides(ctx context.Context) error {
	can := t.Upstream.Capabilities
	if !slices.Contains(can.GetSampling(), "guide") {
		return nil
	}
	problem, err := t.tryGuide(ctx, schemaGuide, `"a"`)
	switch {
	case err != nil:
		return err
	case problem != nil:
		t.leaveOut("guide")
		t.note("the server does not enforce guides, so requests with a response format or a required tool call are refused: %s", problem)
		return nil
	case can.GetGuides() != llmv1.GuideSupport_GUIDE_SUPPORT_FORMS:
		return nil
	}
	problem, err = t.tryGuide(ctx, formGuide, `b"a"`)
	if problem != nil {
		can.Guides = llmv1.GuideSupport_GUIDE_SUPPORT_SCHEMA
		t.note("the server enforces only guides that are one schema, so others, such as required tool calls, are refused: %s", problem)
	}
	return err
}

// tryGuide returns why the server does not enforce a guide that allows one answer, or nil.
func (t *FormTrial) tryGuide(ctx context.Context, g *llmv1.Guide, want string) (problem, err error) {
	req := TrialRequest(t.Prompt)
	req.Sampling.MaxTokens, req.Sampling.Guide = proto.Uint32(16), g
	ids, err := t.answer(ctx, req)
	switch {
	case isRefusal(err):
		return err, nil
	case err != nil:
		return nil, err
	case t.Text != nil:
		if got := t.Text(ids); !follows(got, want) {
			return t.ignored(ctx, fmt.Sprintf("it was asked for %s alone, and answered %q", want, Clip(got, 48))), nil
		}
		return nil, nil
	}
	req.Sampling.Guide = nil
	free, err := t.answer(ctx, req)
	switch {
	case err != nil && !isRefusal(err):
		return nil, err
	case err == nil && slices.Equal(ids, free):
		return t.ignored(ctx, "its answer is the same with a guide and without"), nil
	}
	return nil, nil
}

// ignored describes a server that ignored a guide, and what its operator can do.
func (t *FormTrial) ignored(ctx context.Context, how string) error {
	parser := "a reasoning parser"
	if t.Parser != nil {
		if name := t.Parser(ctx); name != "" {
			parser = fmt.Sprintf("a reasoning parser, such as its %q,", Clip(name, 32))
		}
	}
	return streamerr.New(streamerr.EngineFailed, "%s. A server with %s applies a guide only after the reasoning. Start vLLM with "+
		`--structured-outputs-config '{"enable_in_reasoning":true}', or without --reasoning-parser, which Whence does not need`, how, parser)
}

// follows reports whether an answer, which may be cut, is the wanted JSON, with white space.
func follows(got, want string) bool {
	text := strings.TrimSpace(got)
	return strings.HasPrefix(want, text) && got != "" || strings.HasPrefix(text, want)
}
