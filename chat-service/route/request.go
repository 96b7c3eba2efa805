package route

import (
	"slices"
	"time"

	"github.com/whence-dev/whence/chat-service/route/fit"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// retryAfter is what callers are told while no worker is healthy.
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

// request returns what a worker is asked: to go on with the answer so far, for as many tokens as the stream may still have, and in
// such a way that the answer goes on elsewhere exactly, where that can be. info is nil for what the stream asks of any worker.
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
