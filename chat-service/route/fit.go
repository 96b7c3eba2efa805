package route

import (
	"cmp"
	"strings"

	"github.com/whence-dev/whence/chat-service/fleet"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/capability"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// fits reports whether a worker can take a request as it stands: nothing that it asks for would be ignored there, and an answer
// that was begun elsewhere goes on.
func fits(req *workerv1.TokenRequest, info *workerv1.InfoResponse) bool {
	return len(capability.Missing(req.GetSampling(), info.GetCapabilities())) == 0 &&
		(req.GetGenerated() == 0 || goesOn(req.GetSampling(), info))
}

// goesOn reports whether an answer that was begun elsewhere may go on at a worker, and one that was begun there elsewhere. Where
// it would not be exactly the same answer, it still is one that the model gives, and better than none; but not for a request
// whose seed asks for the very same, or whose penalties count what was said before the move.
func goesOn(s *streamv1.Sampling, info *workerv1.InfoResponse) bool {
	exact := s != nil && s.Seed != nil || s.GetFrequencyPenalty() != 0 || s.GetPresencePenalty() != 0
	return info.GetContinues() || info.GetResumes() && !exact
}

// exactFirst returns those of the candidates where an answer that was begun elsewhere goes on exactly; all if it does so at
// none, or is none.
func exactFirst(req *workerv1.TokenRequest, candidates []*fleet.Worker, infos map[*fleet.Worker]*workerv1.InfoResponse) []*fleet.Worker {
	if req.GetGenerated() == 0 {
		return candidates
	}
	var exact []*fleet.Worker
	for _, w := range candidates {
		if infos[w].GetContinues() {
			exact = append(exact, w)
		}
	}
	if len(exact) == 0 {
		return candidates
	}
	return exact
}

// refused says why no worker takes a request: none is healthy, or it asks for something that none of them honours. One that is
// known to honour all and is not healthy may come back, so then the request is not at fault.
func (p *Pool) refused(req *workerv1.TokenRequest) error {
	var nearest *workerv1.InfoResponse // of those that are healthy, the one that lacks the least
	var missing []string
	for _, w := range p.Members() {
		if last := w.Last(); last != nil && len(capability.Missing(req.GetSampling(), last.GetCapabilities())) == 0 {
			return p.unavailable(req.GetModel(), nil)
		}
		info := w.Info()
		lacks := capability.Missing(req.GetSampling(), info.GetCapabilities())
		if info != nil && len(lacks) > 0 && (nearest == nil || len(lacks) < len(missing)) {
			nearest, missing = info, lacks
		}
	}
	if nearest == nil {
		return p.unavailable(req.GetModel(), nil)
	}
	engine := cmp.Or(nearest.GetCapabilities().GetUpstream(), nearest.GetEngine())
	return streamerr.InvalidParam("sampling."+missing[0], "no engine here honours all that is asked for: %s (%s) would ignore %s",
		nearest.GetInstance(), engine, strings.Join(missing, ", "))
}
