// Package fit says what a request needs of a worker, and whether the worker has it.
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
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Takes reports whether a worker can take a request: its engine ignores no field of the request, and can continue an
// answer that was begun elsewhere.
func Takes(info *llmv1.WorkerInfo, req *workerv1.TokenRequest) bool {
	return len(Missing(info, req)) == 0 &&
		(req.GetGenerated() == 0 || GoesOn(req, info))
}

// adapter and images stand for those of a request among the fields that an engine would ignore.
const (
	adapter = "adapter"
	images  = "images"
)

// Missing returns what a request demands and a worker's engine would ignore: its adapter, its images, and fields of its Sampling. A
// worker that reports no capabilities refuses requests itself.
func Missing(info *llmv1.WorkerInfo, req *workerv1.TokenRequest) []string {
	missing, can := capability.Missing(req.GetSampling(), info.GetCapabilities()), info.GetCapabilities()
	if can != nil && lacksImages(can, req) {
		missing = append([]string{images}, missing...)
	}
	if req.GetAdapter() != "" && can != nil && !can.GetAdapters() {
		return append([]string{adapter}, missing...)
	}
	return missing
}

// lacksImages reports whether an engine has no way to get the images of a request.
func lacksImages(can *llmv1.Capabilities, req *workerv1.TokenRequest) bool {
	return len(req.GetImages()) > 0 && (can.GetImages() == llmv1.ImageInput_IMAGE_INPUT_UNSPECIFIED || capability.Renders(can) && req.GetConversation() == "")
}

// Refusal returns the error for a request of which no engine honours everything. missing is what the engine of info, which lacks the
// least, would ignore.
func Refusal(info *llmv1.WorkerInfo, req *workerv1.TokenRequest, missing []string) error {
	engine := cmp.Or(info.GetCapabilities().GetUpstream(), info.GetEngine())
	if missing[0] == adapter {
		return capability.NoAdapters(engine, req.GetAdapter())
	}
	if missing[0] == images {
		return capability.CheckImages(engine, info.GetCapabilities(), req)
	}
	return streamerr.InvalidParam("sampling."+missing[0], "no engine here honours all that is asked for: %s (%s) would ignore %s",
		info.GetInstance(), engine, strings.Join(missing, ", ")).WithCode(streamerr.CodeUnsupportedField)
}

// GoesOn reports whether an answer may move to or from a worker. A worker that resumes reads the answer so far as a
// part of the prompt, so the rest is not exactly the same, but still the model's answer, and better than none. That
// does not suffice for a request with a seed, which asks for the exact answer, with penalties, which count the tokens
// before the move, or with a guide, whose grammar would start again. Nor may the answer to a conversation with images move to or
// from a worker whose engine renders it: the prompt of the answer so far is not the one that this service knows.
func GoesOn(req *workerv1.TokenRequest, info *llmv1.WorkerInfo) bool {
	if len(req.GetImages()) > 0 && capability.Renders(info.GetCapabilities()) {
		return false
	}
	s := req.GetSampling()
	exact := s != nil && s.Seed != nil || s.GetFrequencyPenalty() != 0 || s.GetPresencePenalty() != 0 || s.GetGuide() != nil
	return info.GetContinues() || info.GetResumes() && !exact
}

// Positions returns the number of context positions that a request needs: its prompt and max_tokens, or one token if
// it has no max_tokens.
func Positions(req *workerv1.TokenRequest) int {
	answer := 1
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		answer = max(answer, int(min(*s.MaxTokens, math.MaxInt32))-int(req.GetGenerated()))
	}
	return len(req.GetPrompt()) + answer
}

// Room returns the number of tokens that an answer may have at a worker: max_tokens, or the rest of the context.
func Room(req *workerv1.TokenRequest, info *llmv1.WorkerInfo) int {
	room := int(info.GetContextLength()) - len(req.GetPrompt())
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		room = min(room, int(min(*s.MaxTokens, math.MaxInt32))-int(req.GetGenerated()))
	}
	return room
}

// Seeded returns sampling with a seed, so that another worker can continue the answer exactly. A new seed is short
// enough for every engine.
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

// Limited returns sampling with this max_tokens. Without one a worker uses all of its context, which may be longer than that of the
// worker where the answer began. For a worker that does not honour max_tokens it returns sampling as it is.
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

// Sizes returns how many tokens the texts of a request for vectors have, together and the longest.
func Sizes(req *workerv1.EmbedRequest) (total, longest int) {
	for _, text := range req.GetInputs() {
		total, longest = total+len(text.GetIds()), max(longest, len(text.GetIds()))
	}
	return total, longest
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
