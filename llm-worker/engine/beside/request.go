package beside

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/llm-worker/engine/beside/guided"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Check refuses a request that the server could not answer, or of which it would ignore a part. Its
// errors have the same texts as the embedded engine's.
func (u *Upstream) Check(req *workerv1.TokenRequest) error {
	prompt, begun, s := req.GetPrompt(), req.GetGenerated(), req.GetSampling()
	switch {
	case len(prompt) == 0:
		return streamerr.InvalidParam("prompt", "the prompt has no tokens")
	case len(prompt) >= u.Context:
		return streamerr.TooLong("prompt", len(prompt), u.Context)
	case begun > 0 && int64(begun) >= int64(len(prompt)):
		return streamerr.InvalidParam("generated", "generated is %d, but the prompt has %d tokens with them", begun, len(prompt))
	case begun > 0 && s != nil && s.MaxTokens != nil && begun >= *s.MaxTokens:
		return streamerr.InvalidParam("generated", "generated is %d, and max_tokens %d: the answer is whole", begun, *s.MaxTokens)
	}
	for i, id := range prompt {
		if int64(id) >= int64(u.Vocab) {
			return streamerr.InvalidParam(fmt.Sprintf("prompt[%d]", i), "token id %d is not below %d, the size of the vocabulary", id, u.Vocab)
		}
	}
	if err := sample.Validate(s, u.Vocab); err != nil {
		return err
	}
	if err := sample.CheckScores(s, u.Vocab, len(req.GetPrompt())); err != nil {
		return err
	}
	if err := u.checkAdapter(req.GetAdapter()); err != nil {
		return err
	}
	if err := capability.CheckImages(u.Capabilities.GetUpstream(), u.Capabilities, req); err != nil {
		return err
	}
	if missing := capability.Missing(s, u.Capabilities); len(missing) > 0 {
		return streamerr.InvalidParam("sampling."+missing[0], "the server that generates (%s) %s", u.Capabilities.GetUpstream(), capability.Lack(u.Capabilities, missing[0]))
	}
	return checkGuide(s.GetGuide(), begun)
}

// checkGuide refuses a guide that a server could misread. A server starts a guide anew in the middle
// of an answer that another server began, so such an answer has none.
func checkGuide(g *llmv1.Guide, begun uint32) error {
	if g == nil {
		return nil
	}
	if begun > 0 {
		return streamerr.InvalidParam("generated", "generated is %d, but an answer with a guide cannot be continued: the guide would start anew", begun)
	}
	return guided.Validate(g)
}

// Rest returns the sampling options of a request that Check accepts, for a server that takes the
// answer so far as a part of the prompt. It always sets max_tokens, because some servers have a
// default of their own.
func (u *Upstream) Rest(req *workerv1.TokenRequest) *llmv1.Sampling {
	s, begun := proto.CloneOf(req.GetSampling()), req.GetGenerated()
	if s == nil {
		s = new(llmv1.Sampling)
	}
	room := uint32(u.Context - len(req.GetPrompt()))
	if s.MaxTokens != nil {
		room = min(room, *s.MaxTokens-begun)
	}
	s.MaxTokens = &room
	if s.MinTokens != nil {
		s.MinTokens = new(*s.MinTokens - min(*s.MinTokens, begun))
	}
	s.PromptLogprobs = s.GetPromptLogprobs() && begun == 0
	if s.GetGuide() != nil && u.Capabilities.GetGuides() != llmv1.GuideSupport_GUIDE_SUPPORT_FORMS {
		s.Guide = capability.Needed(s.GetGuide())
	}
	return s
}

// Limit returns the max_tokens that the server is asked for, of the options that Rest returns; 0
// means as many as its context holds. Images take more of the context than their placeholders in the
// prompt, and only the server knows how much: it would refuse the number that fills the context
// without them.
func (u *Upstream) Limit(req *workerv1.TokenRequest, rest *llmv1.Sampling) uint32 {
	if len(req.GetImages()) > 0 && int(rest.GetMaxTokens()) >= u.Context-len(req.GetPrompt()) {
		return 0
	}
	return rest.GetMaxTokens()
}

// PenaltyWindow returns repeat_last_n for llama.cpp and Ollama: the number of last tokens that count for
// penalties. All tokens of the context count, and the servers' own default is 64. The window is nil without
// penalties, which then have no effect.
func (u *Upstream) PenaltyWindow(s *llmv1.Sampling) *int {
	repetition := s.GetRepetitionPenalty()
	if s.RepetitionPenalty == nil {
		repetition = 1
	}
	if repetition == 1 && s.GetFrequencyPenalty() == 0 && s.GetPresencePenalty() == 0 {
		return nil
	}
	return new(u.Context)
}

// NewID returns a new request id for the server. The id begins with the id of ctx's stream, so that
// logs can be searched for it. No id is a prefix of another, because SGLang's abort matches
// prefixes.
func NewID(ctx context.Context) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return strings.TrimPrefix(stream.ID(ctx)+"-", "-") + hex.EncodeToString(b[:])
}

// seeds is the number of seeds that all servers accept from all clients.
const seeds = 1<<31 - 1

// Seed maps a seed to one that every server accepts. Equal seeds stay equal.
func Seed(seed uint64) uint64 { return seed % seeds }
