package route

import (
	"context"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/route/failover"
	"github.com/whence-dev/whence/chat-service/route/fit"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Embed has a worker compute vectors; stream.Unary makes an engine of it. If the worker fails, the
// request is retried like a stream without tokens. The stream's timers bound the worker's time.
func (p *Pool) Embed(ctx context.Context, req *workerv1.EmbedRequest) (resp *workerv1.EmbedResponse, err error) {
	p.retries.Earn(time.Now())
	began := time.Now()
	machine := failover.New[*fleet.Worker](failover.Limits{})
	var current, next *attempt
	for e := (event{Kind: failover.Begin}); ; {
		for _, a := range machine.Step(time.Since(began), e) {
			switch a.Verb {
			case failover.Ask:
				next, e = p.findEmbedder(req, a)
			case failover.Call:
				current = next
				resp, err = current.embed(ctx, req)
				switch {
				case err == nil:
					e = event{Kind: failover.Ended}
				case stream.Cause(ctx) != nil:
					return nil, err
				default:
					e = event{Kind: failover.Fail, Err: err}
				}
			case failover.Done:
				return resp, nil
			case failover.Blamed:
				blame(a.Worker, a.As, streamerr.As(a.Err))
			case failover.Moved:
				p.noteMove(ctx, a, next.peer)
			case failover.End:
				return nil, a.Err
			default: // is about tokens and does not occur
			}
		}
	}
}

// findEmbedder answers the machine's Ask.
func (p *Pool) findEmbedder(req *workerv1.EmbedRequest, a action) (*attempt, event) {
	found, outcome := p.takeEmbedder(req, a)
	switch outcome {
	case noWorker:
		return nil, event{Kind: failover.NotFound, Err: p.embedRefused(req)}
	case unpaid:
		return nil, event{Kind: failover.NotFound}
	default:
	}
	return found, event{Kind: failover.Found, Choice: failover.Choice[*fleet.Worker]{Worker: found.worker, Name: found.peer, Room: 1}}
}

// embed calls the worker.
func (a *attempt) embed(ctx context.Context, req *workerv1.EmbedRequest) (resp *workerv1.EmbedResponse, err error) {
	defer a.charge.End()
	ledger.SendsPrompt(ctx)
	for resp, err = range a.worker.EmbedEngine(a.peer)(ctx, req) {
		if err == nil {
			a.worker.Deliver()
		}
	}
	return resp, err
}

// takeEmbedder chooses a worker that makes vectors, and charges the request to it. Policies see a
// stream with a new session and no prompt, because no worker caches the texts.
func (p *Pool) takeEmbedder(req *workerv1.EmbedRequest, ask action) (*attempt, outcome) {
	total, longest := fit.Sizes(req)
	stands := &workerv1.TokenRequest{
		StreamId: req.GetStreamId(), Model: req.GetModel(), Session: req.GetStreamId(), Claim: req.GetClaim(), Sampling: &llmv1.Sampling{MaxTokens: new(uint32(1))},
	}
	a, outcome := p.choose(wish{req: stands, by: p.policy, without: ask.Without, usesBudget: ask.Retry, accepts: func(info *llmv1.WorkerInfo) bool {
		return info.GetEmbeds() && int(info.GetContextLength()) >= longest
	}})
	if a != nil {
		a.charge.Add(total)
	}
	return a, outcome
}

// embedRefused returns the error for a request that no worker can serve. If a suitable worker is
// known but unhealthy, it may come back, so the request is not at fault.
func (p *Pool) embedRefused(req *workerv1.EmbedRequest) error {
	_, longest := fit.Sizes(req)
	healthy, context := false, 0
	for _, w := range p.Members() {
		if last := w.Last(); last.GetEmbeds() && int(last.GetContextLength()) >= longest {
			return p.unavailable(req.GetModel())
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
		return streamerr.TooLong("inputs", longest, context)
	case healthy:
		return streamerr.InvalidParam("model", "%q does not support embeddings: no worker that serves it can", req.GetModel())
	default:
		return p.unavailable(req.GetModel())
	}
}
