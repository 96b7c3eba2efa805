package route

import (
	"slices"
	"time"

	"github.com/whence-dev/whence/chat-service/route/fit"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// retryAfter is the Retry-After for callers while no worker is healthy.
const retryAfter = time.Second

// unavailable says that no worker of a model can be asked, and why.
func (p *Pool) unavailable(model string) error {
	e := streamerr.New(streamerr.Unavailable, "no healthy worker for %q", model)
	if problem := p.Problem(); problem != "" {
		e.Message += ": " + problem
	}
	e.RetryAfter = retryAfter
	return e
}

// request returns the request for a worker: to continue the answer so far for the rest of the stream's tokens, in a
// way that lets other workers continue it exactly, where possible. A nil info gives the request as it looks to any
// worker.
func (d *drive) request(info *workerv1.InfoResponse) *workerv1.TokenRequest {
	req := &workerv1.TokenRequest{
		StreamId: d.req.GetStreamId(), Model: d.req.GetModel(), Sampling: d.req.GetSampling(), Prompt: d.req.GetPrompt(), Generated: d.req.GetGenerated(),
		Session: d.req.GetSession(), Claim: d.req.GetClaim(),
	}
	if len(d.answer) > 0 {
		req.Prompt = slices.Concat(req.Prompt, d.answer)
		req.Generated += uint32(len(d.answer))
	}
	if info == nil {
		return req
	}
	if info.GetContinues() {
		req.Sampling = d.sampling
	}
	req.Sampling = fit.Limited(req.Sampling, uint32(int(req.GetGenerated())+d.machine.Room()), info)
	return req
}
