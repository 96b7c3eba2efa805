package route

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whence-dev/whence/chat-service/fleet"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/capability"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// exactFirst returns the workers that continue an answer from elsewhere exactly. It returns all workers if none does,
// or if the answer has not begun.
func exactFirst(req *workerv1.TokenRequest, all []fleet.Snapshot) []fleet.Snapshot {
	if req.GetGenerated() == 0 || !slices.ContainsFunc(all, exact) {
		return all
	}
	return slices.DeleteFunc(all, func(s fleet.Snapshot) bool { return !exact(s) })
}

func exact(s fleet.Snapshot) bool { return s.Info.GetContinues() }

// refused says why no worker takes a request: none is healthy, or it asks for something that none of them honours. A worker that is
// known to honour all and is not healthy may come back, so then the request is not at fault.
func (p *Pool) refused(req *workerv1.TokenRequest) error {
	var nearest *workerv1.InfoResponse // the healthy worker that lacks the least
	var missing []string
	for _, w := range p.Members() {
		if last := w.Last(); last != nil && len(capability.Missing(req.GetSampling(), last.GetCapabilities())) == 0 {
			return p.unavailable(req.GetModel())
		}
		info := w.Info()
		lacks := capability.Missing(req.GetSampling(), info.GetCapabilities())
		if info != nil && len(lacks) > 0 && (nearest == nil || len(lacks) < len(missing)) {
			nearest, missing = info, lacks
		}
	}
	if nearest == nil {
		return p.unavailable(req.GetModel())
	}
	engine := cmp.Or(nearest.GetCapabilities().GetUpstream(), nearest.GetEngine())
	return streamerr.InvalidParam("sampling."+missing[0], "no engine here honours all that is asked for: %s (%s) would ignore %s",
		nearest.GetInstance(), engine, strings.Join(missing, ", "))
}
