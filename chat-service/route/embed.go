package route

import (
	"context"
	"slices"

	"github.com/whence-dev/whence/chat-service/fleet"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An embedding is one worker's part in making vectors.
type embedding struct {
	worker *fleet.Worker
	peer   string // its name when it was chosen
	charge fleet.Charge
}

// Embed makes vectors of token ids, by a worker that can; stream.Unary makes an engine of it. Nothing has been said before all
// has, so a request whose worker is lost or full is another one's, within the budget for retries. How long a worker may take is up to the
// timers: it is silent until it is done.
func (p *Pool) Embed(ctx context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	p.retries.earn()
	a := p.takeEmbedder(req, nil)
	if a == nil {
		return nil, p.embedRefused(req)
	}
	for tried := []*fleet.Worker(nil); ; {
		resp, err := a.ask(ctx, req)
		if err == nil || stream.Cause(ctx) != nil {
			return resp, err
		}
		why := streamerr.As(err)
		if !elsewhere(a.worker, why) {
			return nil, err
		}
		tried = append(tried, a.worker)
		next := p.takeEmbedder(req, tried)
		if next == nil || !p.retries.spend() {
			if next != nil {
				next.charge.End()
			}
			if why.Reason == streamerr.PeerLost {
				err = p.unavailable(req.GetModel(), err)
			}
			return nil, err
		}
		p.moved(ctx, a.peer, next.peer, why, 0, true)
		a = next
	}
}

// ask has the worker make the vectors, and is done with it.
func (a *embedding) ask(ctx context.Context, req *workerv1.EmbedRequest) (resp *workerv1.EmbedResponse, err error) {
	defer a.charge.End()
	for resp, err = range a.worker.EmbedEngine(a.peer)(ctx, req) {
		if err == nil {
			a.worker.Delivered()
		}
	}
	return resp, err
}

// takeEmbedder chooses a healthy worker that makes vectors, none of without, and counts the stream as the worker's; nil if there is
// none.
func (p *Pool) takeEmbedder(req *workerv1.EmbedRequest, without []*fleet.Worker) *embedding {
	total, longest := sizes(req)
	p.mu.Lock()
	defer p.mu.Unlock()
	var trusted, doubted []*fleet.Worker
	for _, w := range p.Members() {
		info := w.Info()
		switch {
		case !info.GetEmbeds() || int(info.GetContextLength()) < longest || slices.Contains(without, w):
		case w.Trusted():
			trusted = append(trusted, w)
		default:
			doubted = append(doubted, w)
		}
	}
	if len(trusted) == 0 {
		trusted = doubted
	}
	if len(trusted) == 0 {
		return nil
	}
	// For a policy it is a stream without a prompt, of a session of its own: nobody has its texts in a cache.
	w := p.policy(&workerv1.TokenRequest{StreamId: req.GetStreamId(), Model: req.GetModel(), Session: req.GetStreamId(), Claim: req.GetClaim()}, trusted)
	p.opts.Metrics.Chose(roleOf(w.Info()))
	return &embedding{worker: w, peer: w.Name(), charge: w.Charge(total, 0)}
}

// sizes returns how many tokens the texts have, together and the longest.
func sizes(req *workerv1.EmbedRequest) (total, longest int) {
	for _, text := range req.GetInputs() {
		total, longest = total+len(text.GetIds()), max(longest, len(text.GetIds()))
	}
	return total, longest
}

// embedRefused says why no worker makes the vectors. One that is known to make some and is not healthy may come back, so then the
// request is not at fault.
func (p *Pool) embedRefused(req *workerv1.EmbedRequest) error {
	_, longest := sizes(req)
	healthy, context := false, 0
	for _, w := range p.Members() {
		if last := w.Last(); last.GetEmbeds() && int(last.GetContextLength()) >= longest {
			return p.unavailable(req.GetModel(), nil)
		}
		if info := w.Info(); info != nil {
			healthy = true
			if info.GetEmbeds() {
				context = max(context, int(info.GetContextLength()))
			}
		}
	}
	switch {
	case context > 0:
		return streamerr.InvalidParam("inputs", "an input is %d tokens long; no worker that makes embeddings takes more than %d", longest, context)
	case healthy:
		return streamerr.InvalidParam("model", "%q makes no embeddings: no worker that serves it can", req.GetModel())
	default:
		return p.unavailable(req.GetModel(), nil)
	}
}
