// Package fit says what a request needs of a worker, and whether a worker has it.
package fit

import (
	"math"
	"math/rand/v2"

	"google.golang.org/protobuf/proto"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/capability"
)

// Takes reports whether a worker can take a request as it stands: its engine ignores nothing that is asked for, and an answer that
// was begun elsewhere goes on.
func Takes(info *workerv1.InfoResponse, req *workerv1.TokenRequest) bool {
	return len(capability.Missing(req.GetSampling(), info.GetCapabilities())) == 0 &&
		(req.GetGenerated() == 0 || GoesOn(req.GetSampling(), info))
}

// GoesOn reports whether an answer that was begun elsewhere may go on at a worker, and one that was begun there elsewhere. A worker
// that resumes takes the answer so far for a part of the prompt: what comes is not exactly the same answer, but still one that the
// model gives, and better than none. That does not do for a request with a seed, which asks for the very same answer, with
// penalties that count what was said before the move, or with a guide, whose grammar would begin anew.
func GoesOn(s *streamv1.Sampling, info *workerv1.InfoResponse) bool {
	exact := s != nil && s.Seed != nil || s.GetFrequencyPenalty() != 0 || s.GetPresencePenalty() != 0 || s.GetGuide() != nil
	return info.GetContinues() || info.GetResumes() && !exact
}

// Positions returns how many positions of its context a worker needs for a request: those of the prompt and of max_tokens, or of
// one token where the request has no max_tokens.
func Positions(req *workerv1.TokenRequest) int {
	answer := 1
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		answer = max(answer, int(min(*s.MaxTokens, math.MaxInt32))-int(req.GetGenerated()))
	}
	return len(req.GetPrompt()) + answer
}

// Room returns how many tokens an answer may have at a worker: those that were asked for, or what the context leaves.
func Room(req *workerv1.TokenRequest, info *workerv1.InfoResponse) int {
	room := int(info.GetContextLength()) - len(req.GetPrompt())
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		room = min(room, int(min(*s.MaxTokens, math.MaxInt32))-int(req.GetGenerated()))
	}
	return room
}

// Seeded returns sampling with a seed, so that the answer can go on elsewhere exactly. A new seed has no more bits than every
// engine takes.
func Seeded(sampling *streamv1.Sampling) *streamv1.Sampling {
	if sampling != nil && sampling.Seed != nil {
		return sampling
	}
	if sampling = proto.CloneOf(sampling); sampling == nil {
		sampling = &streamv1.Sampling{}
	}
	sampling.Seed = new(uint64(rand.Int32()))
	return sampling
}

// Limited returns sampling with this max_tokens. Without one a worker uses all of its context, which may be longer than that of the
// worker where the answer began. For a worker that does not honour max_tokens it returns sampling as it is.
func Limited(s *streamv1.Sampling, most uint32, info *workerv1.InfoResponse) *streamv1.Sampling {
	if s != nil && s.MaxTokens != nil && *s.MaxTokens == most || len(capability.Missing(&streamv1.Sampling{MaxTokens: &most}, info.GetCapabilities())) > 0 {
		return s
	}
	if s = proto.CloneOf(s); s == nil {
		s = &streamv1.Sampling{}
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
