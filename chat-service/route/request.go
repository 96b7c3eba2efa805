package route

import (
	"slices"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/route/failover"
	"github.com/whence-dev/whence/chat-service/route/fit"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// unavailable returns the error for a model without a usable worker, with the reason if known.
func (p *Pool) unavailable(model string) error {
	e := streamerr.New(streamerr.Unavailable, "no healthy worker for %q", model)
	if problem := p.Problem(); problem != "" {
		e.Message += ": " + problem
	}
	e.RetryAfter = failover.RetryAfter
	return e
}

// request returns the request to continue the answer so far, if possible in a way that lets other
// workers continue it exactly. A nil info gives the part that is the same for all workers.
func (d *drive) request(info *llmv1.WorkerInfo) *workerv1.TokenRequest {
	req := &workerv1.TokenRequest{
		StreamId: d.req.GetStreamId(), Model: d.req.GetModel(), Sampling: d.req.GetSampling(), Prompt: d.req.GetPrompt(), Generated: d.req.GetGenerated(),
		Session: d.req.GetSession(), Claim: d.req.GetClaim(), Adapter: d.req.GetAdapter(),
		Images: d.req.GetImages(), Conversation: d.req.GetConversation(), BeforeImages: d.req.GetBeforeImages(),
	}
	req.Prompt = d.answer.AppendTo(slices.Clip(req.Prompt))
	req.Generated += uint32(d.answer.Len())
	if info == nil {
		return req
	}
	if info.GetContinues() {
		req.Sampling = d.sampling
	}
	req.Sampling = fit.Limited(fit.Guided(req.Sampling, info), uint32(int(req.GetGenerated())+d.machine.Room()), info)
	return req
}

// exactFirst returns the workers that continue an answer exactly, or all workers if there are none.
func exactFirst(req *workerv1.TokenRequest, all []fleet.Snapshot) []fleet.Snapshot {
	if req.GetGenerated() == 0 || !slices.ContainsFunc(all, exact) {
		return all
	}
	return slices.DeleteFunc(all, func(s fleet.Snapshot) bool { return !exact(s) })
}

func exact(s fleet.Snapshot) bool { return s.Info.GetContinues() }

// refused returns the error for a request that no worker takes. If a suitable worker is known but
// unhealthy, it may come back, so the request is not at fault. A worker that cannot continue the
// answer so far is not suitable.
func (p *Pool) refused(req *workerv1.TokenRequest) error {
	stuck := false                // a worker honours the request but cannot continue the answer
	var nearest *llmv1.WorkerInfo // the healthy worker that lacks the least
	var missing []string
	for _, w := range p.Members() {
		if last := w.Last(); last != nil && len(fit.Missing(last, req)) == 0 {
			if req.GetGenerated() == 0 || fit.MayMove(req, last) {
				return p.unavailable(req.GetModel())
			}
			stuck = true
			continue
		}
		info := w.Info()
		lacks := fit.Missing(info, req)
		if info != nil && len(lacks) > 0 && (nearest == nil || len(lacks) < len(missing)) {
			nearest, missing = info, lacks
		}
	}
	if stuck {
		return streamerr.InvalidParam("generated", "no engine here can continue the answer to this request")
	}
	if nearest == nil {
		return p.unavailable(req.GetModel())
	}
	return fit.Refusal(nearest, req, missing)
}
