package route

import (
	"context"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/route/failover"
	"github.com/whence-dev/whence/chat-service/route/fit"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A pooling is a request whose answer is one item, vectors or scores, as workers are chosen for it.
type pooling struct {
	what           string                       // embeddings or scores
	stands         *workerv1.TokenRequest       // what policies see in place of the request
	total, longest int                          // tokens of all inputs together, and of the longest
	can            func(*llmv1.WorkerInfo) bool // the worker makes such answers
}

// fits reports whether a worker can answer the request.
func (r *pooling) fits(info *llmv1.WorkerInfo) bool {
	return r.can(info) && int(info.GetContextLength()) >= r.longest
}

// standIn returns what policies see in place of a request: a stream with a new session and no prompt,
// because no worker caches the inputs.
func standIn(id, model string, claim *llmv1.Claim) *workerv1.TokenRequest {
	return &workerv1.TokenRequest{StreamId: id, Model: model, Session: id, Claim: claim, Sampling: &llmv1.Sampling{MaxTokens: new(uint32(1))}}
}

// embedding describes a request for vectors.
func embedding(req *workerv1.EmbedRequest) *pooling {
	total, longest := fit.Sizes(req)
	return &pooling{"embeddings", standIn(req.GetStreamId(), req.GetModel(), req.GetClaim()), total, longest, (*llmv1.WorkerInfo).GetEmbeds}
}

// Embed has a worker compute vectors; stream.Unary makes an engine of it.
func (p *Pool) Embed(ctx context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	return pool(ctx, p, embedding(req), req, (*fleet.Worker).EmbedEngine)
}

// Score has a worker rate documents; stream.Unary makes an engine of it. The worker's server counts the
// tokens, and refuses what does not fit.
func (p *Pool) Score(ctx context.Context, req *workerv1.ScoreRequest) (*workerv1.ScoreResponse, error) {
	total := textonly.Count(req.GetQueries()...) + textonly.Count(req.GetDocuments()...)
	pooled := &pooling{"scores", standIn(req.GetStreamId(), req.GetModel(), req.GetClaim()), total, 0, (*llmv1.WorkerInfo).GetScores}
	return pool(ctx, p, pooled, req, (*fleet.Worker).ScoreEngine)
}

// pool has a worker answer a request with one item. If the worker fails, the request is retried like a
// stream without tokens. The stream's timers bound the worker's time.
func pool[Req, Resp any](ctx context.Context, p *Pool, r *pooling, req Req, of func(w *fleet.Worker, peer string) stream.Engine[Req, Resp]) (resp Resp, err error) {
	p.retries.Earn(time.Now())
	began := time.Now()
	machine := failover.New[*fleet.Worker](failover.Limits{})
	var none Resp
	var current, next *attempt
	for e := (event{Kind: failover.Begin}); ; {
		for _, a := range machine.Step(time.Since(began), e) {
			switch a.Verb {
			case failover.Ask:
				next, e = p.findPooler(r, a)
			case failover.Call:
				current = next
				resp, err = once(ctx, current, of(current.worker, current.peer), req)
				switch {
				case err == nil:
					e = event{Kind: failover.Ended}
				case stream.Cause(ctx) != nil:
					return none, err
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
				return none, a.Err
			default: // is about tokens and does not occur
			}
		}
	}
}

// once calls the worker.
func once[Req, Resp any](ctx context.Context, a *attempt, engine stream.Engine[Req, Resp], req Req) (resp Resp, err error) {
	defer a.charge.End()
	ledger.SendsPrompt(ctx)
	for resp, err = range engine.Range(ctx, req) {
		if err == nil {
			a.worker.Deliver()
		}
	}
	return resp, err
}

// findPooler answers the machine's Ask: it chooses a worker, and charges the request to it.
func (p *Pool) findPooler(r *pooling, ask action) (*attempt, event) {
	found, outcome := p.choose(wish{req: r.stands, by: p.policy, without: ask.Without, usesBudget: ask.Retry, accepts: r.fits})
	switch outcome {
	case noWorker:
		return nil, event{Kind: failover.NotFound, Err: p.poolingRefused(r)}
	case unpaid:
		return nil, event{Kind: failover.NotFound}
	default:
	}
	found.charge.Add(r.total)
	return found, event{Kind: failover.Found, Choice: failover.Choice[*fleet.Worker]{Worker: found.worker, Name: found.peer, Room: 1}}
}

// poolingRefused returns the error for a request that no worker can serve. If a suitable worker is
// known but unhealthy, it may come back, so the request is not at fault.
func (p *Pool) poolingRefused(r *pooling) error {
	model := r.stands.GetModel()
	healthy, context := false, 0
	for _, w := range p.Members() {
		if last := w.Last(); last != nil && r.fits(last) {
			return p.unavailable(model)
		}
		if info := w.Info(); info != nil {
			healthy = true
			if r.can(info) {
				context = max(context, int(info.GetContextLength()))
			}
		}
	}
	switch {
	case context > 0:
		return streamerr.TooLong("inputs", r.longest, context)
	case healthy:
		return streamerr.InvalidParam("model", "%q does not support %s: no worker that serves it can", model, r.what)
	default:
		return p.unavailable(model)
	}
}
