// Package fit decides whether a worker can serve a request.
package fit

import (
	"cmp"
	"math"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Takes reports whether a worker can take a request: its engine honours every field of the request,
// and can continue an answer that another worker began.
func Takes(info *llmv1.WorkerInfo, req *workerv1.TokenRequest) bool {
	return len(Missing(info, req)) == 0 &&
		(req.GetGenerated() == 0 || MayMove(req, info))
}

// adapter, images and generation are names in the list of Missing, beside the names of Sampling fields.
const (
	adapter    = "adapter"
	images     = "images"
	generation = "generation"
)

// Missing returns the parts of a request that a worker's engine would ignore: its adapter, its
// images, and fields of its Sampling; or generation, if the worker's model only pools. For a worker that
// reports no capabilities it returns nothing: that worker refuses requests itself.
func Missing(info *llmv1.WorkerInfo, req *workerv1.TokenRequest) []string {
	if info.GetPoolsOnly() {
		return []string{generation}
	}
	missing, can := capability.Missing(req.GetSampling(), info.GetCapabilities()), info.GetCapabilities()
	if can != nil && lacksImages(can, req) {
		missing = append([]string{images}, missing...)
	}
	if req.GetAdapter() != "" && can != nil && !can.GetAdapters() {
		return append([]string{adapter}, missing...)
	}
	return missing
}

// lacksImages reports whether an engine cannot receive the images of a request.
func lacksImages(can *llmv1.Capabilities, req *workerv1.TokenRequest) bool {
	return len(req.GetImages()) > 0 && (can.GetImages() == llmv1.ImageInput_IMAGE_INPUT_UNSPECIFIED || capability.Renders(can) && req.GetConversation() == "")
}

// Refusal returns the error for a request that no engine honours completely. info describes the
// engine that lacks the least, and missing lists what that engine would ignore.
func Refusal(info *llmv1.WorkerInfo, req *workerv1.TokenRequest, missing []string) error {
	engine := cmp.Or(info.GetCapabilities().GetUpstream(), info.GetEngine())
	if missing[0] == generation {
		return capability.NoGeneration(info)
	}
	if missing[0] == adapter {
		return capability.NoAdapters(engine, req.GetAdapter())
	}
	if missing[0] == images {
		return capability.CheckImages(engine, info.GetCapabilities(), req)
	}
	return streamerr.InvalidParam("sampling."+missing[0], "no engine here honours all fields of the request: %s (%s) would ignore %s",
		info.GetInstance(), engine, strings.Join(missing, ", ")).WithCode(streamerr.CodeUnsupportedField)
}

// MayMove reports whether the answer to a request may move to or from a worker. A worker that
// resumes reads the answer so far as part of the prompt: the rest is not exactly the same, but
// still the model's answer. That is not enough for a request with a seed, which asks for the exact
// answer; with penalties, which count the tokens before the move; or with a guide, whose grammar
// would restart. Nor may the answer to a conversation with images move to or from a worker whose
// engine renders the conversation: this service does not know that engine's prompt.
func MayMove(req *workerv1.TokenRequest, info *llmv1.WorkerInfo) bool {
	if len(req.GetImages()) > 0 && capability.Renders(info.GetCapabilities()) {
		return false
	}
	s := req.GetSampling()
	if capability.KnownGuide(info.GetCapabilities(), s.GetGuide()) != s.GetGuide() {
		return false // the answer so far may have the part of the guide that this worker does not get
	}
	exact := s != nil && s.Seed != nil || s.GetFrequencyPenalty() != 0 || s.GetPresencePenalty() != 0 || s.GetGuide() != nil
	return info.GetContinues() || info.GetResumes() && !exact
}

// Positions returns the number of context positions that a request needs: its prompt plus
// max_tokens, or plus one token if it has no max_tokens.
func Positions(req *workerv1.TokenRequest) int {
	answer := 1
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		answer = max(answer, int(min(*s.MaxTokens, math.MaxInt32))-int(req.GetGenerated()))
	}
	return len(req.GetPrompt()) + answer
}

// Room returns the maximum number of answer tokens at a worker: max_tokens, or the rest of the
// context.
func Room(req *workerv1.TokenRequest, info *llmv1.WorkerInfo) int {
	room := int(info.GetContextLength()) - len(req.GetPrompt())
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		room = min(room, int(min(*s.MaxTokens, math.MaxInt32))-int(req.GetGenerated()))
	}
	return room
}

// Seeded returns sampling with a seed, so that another worker can continue the answer exactly. A
// new seed has 31 bits, which every engine accepts.
func Seeded(sampling *llmv1.Sampling) *llmv1.Sampling {
	if sampling != nil && sampling.Seed != nil {
		return sampling
	}
	if sampling = proto.CloneOf(sampling); sampling == nil {
		sampling = &llmv1.Sampling{}
	}
	sampling.Seed = new(uint64(rand.Int32()))
	return sampling
}

// Guided returns the sampling with the guide that a worker knows.
func Guided(s *llmv1.Sampling, info *llmv1.WorkerInfo) *llmv1.Sampling {
	known := capability.KnownGuide(info.GetCapabilities(), s.GetGuide())
	if known == s.GetGuide() {
		return s
	}
	s = proto.CloneOf(s)
	s.Guide = known
	return s
}

// Limited returns sampling with this max_tokens. Without max_tokens a worker would use its whole
// context, which may be longer than the context of the worker that began the answer. If the worker
// does not honour max_tokens, Limited returns sampling unchanged.
func Limited(s *llmv1.Sampling, most uint32, info *llmv1.WorkerInfo) *llmv1.Sampling {
	if s != nil && s.MaxTokens != nil && *s.MaxTokens == most || len(capability.Missing(&llmv1.Sampling{MaxTokens: &most}, info.GetCapabilities())) > 0 {
		return s
	}
	if s = proto.CloneOf(s); s == nil {
		s = &llmv1.Sampling{}
	}
	s.MaxTokens = &most
	return s
}

// Sizes returns the total number of tokens of an embeddings request, and the length of its longest
// input, which is 0 for texts: only the server knows their tokens, and refuses what does not fit.
func Sizes(req *workerv1.EmbedRequest) (total, longest int) {
	for _, text := range req.GetInputs() {
		total, longest = total+len(text.GetIds()), max(longest, len(text.GetIds()))
	}
	return total + textonly.Count(req.GetTexts()...), longest
}

// RoleOf returns the name of a worker's role in metrics.
func RoleOf(info *llmv1.WorkerInfo) string {
	switch info.GetRole() {
	case llmv1.Role_ROLE_PREFILL:
		return metrics.RolePrefill
	case llmv1.Role_ROLE_DECODE:
		return metrics.RoleDecode
	default:
		return metrics.RoleBoth
	}
}
