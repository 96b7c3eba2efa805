package route

import (
	"context"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/fleet"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// retryAfter is what callers are told while no worker is healthy.
const retryAfter = time.Second

// A relay takes one stream from worker to worker, until it ends. Its fields are owned by the stream's goroutine.
type relay struct {
	pool     *Pool
	req      *workerv1.TokenRequest // as it was asked
	sampling *streamv1.Sampling     // as it was asked, with a seed

	room    int             // tokens that the answer may have: as many as with the worker that began it
	answer  []uint32        // delivered so far; at most room
	started bool            // Started was delivered
	moves   int             // since the first token
	tried   []*fleet.Worker // since the last token
	behind  []*attempt      // those that were silent
	timer   *time.Timer
}

type yielder = func(*workerv1.GenerateResponse, error) bool

// Generate is a stream.Engine. Where no worker can be reached, it is UNAVAILABLE; when the last one that can go on with a
// stream is lost, the stream ends as that one did.
func (p *Pool) Generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		if cause := stream.Cause(ctx); cause != nil {
			yield(nil, cause)
			return
		}
		p.retries.earn()
		a := p.take(req, asked(req), nil)
		if a == nil {
			yield(nil, p.refused(req))
			return
		}
		r := &relay{pool: p, req: req, sampling: seeded(req.GetSampling()), timer: time.NewTimer(0)}
		defer r.timer.Stop()
		for a != nil {
			a = r.follow(ctx, a, yield)
		}
	}
}

// unavailable says that no worker of model can be asked, and why. cause is the failure of one that was asked; nil if none was.
func (p *Pool) unavailable(model string, cause error) error {
	problem := p.Problem()
	if problem == "" && cause != nil {
		problem = streamerr.As(cause).Text()
	}
	e := streamerr.New(streamerr.Unavailable, "no healthy worker for %q", model)
	if problem != "" {
		e.Message += ": " + problem
	}
	e.Cause, e.RetryAfter = cause, retryAfter
	return e
}

// seeded returns sampling with a seed, so that the answer can go on elsewhere. It has no more bits than every engine takes.
func seeded(sampling *streamv1.Sampling) *streamv1.Sampling {
	if sampling != nil && sampling.Seed != nil {
		return sampling
	}
	if sampling = proto.CloneOf(sampling); sampling == nil {
		sampling = &streamv1.Sampling{}
	}
	sampling.Seed = new(uint64(rand.Int32()))
	return sampling
}

// asked returns how many positions of its context a worker needs for the request: one token at least.
func asked(req *workerv1.TokenRequest) int {
	answer := 1
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		answer = max(answer, int(min(*s.MaxTokens, math.MaxInt32))-int(req.GetGenerated()))
	}
	return len(req.GetPrompt()) + answer
}

// room returns how many tokens an answer may have: those that were asked for, or what the context leaves.
func room(req *workerv1.TokenRequest, info *workerv1.InfoResponse) int {
	room := int(info.GetContextLength()) - len(req.GetPrompt())
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		room = min(room, int(min(*s.MaxTokens, math.MaxInt32))-int(req.GetGenerated()))
	}
	return room
}

// follow delivers what one worker sends, until the stream ends or another worker is to go on, which it returns. The call is
// over then; only one that is silent is left behind, for the pool to wait for: it must hold up neither the next worker nor
// the ending.
func (r *relay) follow(ctx context.Context, a *attempt, yield yielder) (next *attempt) {
	if len(r.answer) == 0 {
		r.room = room(r.req, a.info)
	}
	req := r.request(a.info)
	if err := r.prepare(ctx, a, req); err != nil {
		yield(nil, err)
		return nil
	}
	a.start(ctx, &r.pool.calls, req)
	var left error = streamerr.New(streamerr.Internal, "the reader panicked") // unless the code below says otherwise
	behind := false
	defer func() {
		a.leave(left)
		if !behind {
			<-a.ended
		}
	}()
	for {
		it, ok := a.next(r.timer, r.patience(a))
		if !ok && stream.Cause(ctx) != nil {
			continue // it has the grace to say goodbye
		}
		if !ok {
			silent := streamerr.New(streamerr.Deadline, "%s sent nothing for %v", a.peer, r.pool.opts.MigrateAfter)
			a.worker.Suspect()
			if next = r.move(ctx, a, silent); next != nil || r.complete(a, yield) {
				left, behind = silent, true
				r.behind = append(r.behind, a)
				return next
			}
			continue // there is nobody else: the timers of the hops decide
		}
		if it.panicked != nil {
			a.over = true
			panic(it.panicked)
		}
		if it.out == nil { // the last item, or none
			a.over = true
			return r.lost(ctx, a, it.err, yield)
		}
		more, err := r.deliver(a, it.out, yield)
		if !more {
			if left = err; err == nil {
				left = streamerr.New(streamerr.Completed, "the reader has what it needs")
			}
			if cause := stream.Cause(ctx); cause != nil {
				left = cause // it has gone because of that
			}
			return nil
		}
	}
}

// prepare has the prompt read for a worker, if others do that. The error is why the stream is to end; the worker is free again then.
func (r *relay) prepare(ctx context.Context, a *attempt, req *workerv1.TokenRequest) (err error) {
	ready := false
	defer func() {
		if !ready {
			a.abandon()
		}
	}()
	if err := r.handOver(ctx, a, req); err != nil {
		return err
	}
	ready = true
	r.pool.opts.Metrics.Expect(a.expected)
	return nil
}

// request returns what a worker is asked: for the answer so far to go on, and in such a way that it goes on elsewhere exactly,
// where that can be. info is nil for what the stream asks for whatever the worker.
func (r *relay) request(info *workerv1.InfoResponse) *workerv1.TokenRequest {
	req := &workerv1.TokenRequest{
		StreamId: r.req.GetStreamId(), Model: r.req.GetModel(), Sampling: r.req.GetSampling(), Prompt: r.req.GetPrompt(), Generated: r.req.GetGenerated(),
		Session: r.req.GetSession(), Claim: r.req.GetClaim(),
	}
	if info.GetContinues() {
		req.Sampling = r.sampling
	}
	if len(r.answer) > 0 {
		req.Prompt = slices.Concat(req.Prompt, r.answer)
		req.Generated += uint32(len(r.answer))
	}
	return req
}

// patience returns how long a worker may be silent; 0 is for ever. A prompt takes its time between Started and the first
// token, and so does the queue.
func (r *relay) patience(a *attempt) time.Duration {
	if r.pool.Alone(a.worker) || a.admitted && !a.flowing {
		return 0
	}
	return r.pool.opts.MigrateAfter
}

// deliver passes an item on. more is false when the stream is over; err then says what is wrong with the worker, if it is
// its fault.
func (r *relay) deliver(a *attempt, out *workerv1.GenerateResponse, yield yielder) (more bool, err error) {
	switch m := out.GetMessage().(type) {
	case *workerv1.GenerateResponse_Started:
		a.admitted = true
		if r.started {
			return true, nil
		}
		r.started = true
	case *workerv1.GenerateResponse_Tokens:
		if !a.flowing {
			a.flowing = true
			a.worker.Delivered()
			r.tried = r.tried[:0]
		}
		if len(r.answer)+len(m.Tokens.GetIds()) > r.room {
			e := &streamerr.Error{Reason: streamerr.Internal, Path: streamerr.NewPath(a.peer), Message: "the worker sent more tokens than it was asked for"}
			yield(nil, e)
			return false, e
		}
		if m.Tokens.CachedTokens != nil && a.found != nil {
			m.Tokens.CachedTokens = new(min(*m.Tokens.CachedTokens, *a.found))
		}
		r.answer = append(r.answer, m.Tokens.GetIds()...)
	case *workerv1.GenerateResponse_End:
		a.over = true
		a.settle(m.End.GetUsage())
		yield(out, nil)
		return false, nil
	}
	return yield(out, nil), nil
}

// lost sees to a stream whose worker has ended it with err, or without a word if that is nil. It returns who goes on with
// it, if anybody does.
func (r *relay) lost(ctx context.Context, a *attempt, err error, yield yielder) (next *attempt) {
	if err == nil {
		return nil // the engine ended without an ending, and so does this one
	}
	if cause := stream.Cause(ctx); cause != nil {
		yield(nil, cause) // whatever the worker made of it
		return nil
	}
	e := streamerr.As(err)
	if !elsewhere(a.worker, e) {
		yield(nil, err)
		return nil
	}
	if next = r.move(ctx, a, e); next != nil || r.complete(a, yield) {
		return next
	}
	if e.Reason == streamerr.PeerLost && !r.started {
		err = r.pool.unavailable(r.req.GetModel(), err)
	}
	yield(nil, err)
	return nil
}

// move returns who goes on with the stream; nil if nobody does.
func (r *relay) move(ctx context.Context, from *attempt, why *streamerr.Error) *attempt {
	flowing := len(r.answer) > 0
	if flowing && (r.moves >= r.pool.opts.Migrations || len(r.answer) >= r.room || !goesOn(r.req.GetSampling(), from.info)) {
		return nil
	}
	without := append(slices.Concat(r.tried, r.deaf()), from.worker)
	positions := asked(r.req)
	if flowing {
		positions = len(r.req.GetPrompt()) + r.room
	}
	next := r.pool.take(r.request(nil), positions, without)
	if next == nil {
		return nil
	}
	if !flowing && !r.pool.retries.spend() {
		next.abandon()
		return nil
	}
	if flowing {
		r.moves++
	}
	r.tried = append(r.tried, from.worker)
	exact := !flowing || from.info.GetContinues() && next.info.GetContinues()
	r.pool.moved(ctx, from.peer, next.peer, why, len(r.answer), exact)
	return next
}

// complete ends a stream whose worker was lost after the last token that there was room for: all that is missing is its End.
func (r *relay) complete(a *attempt, yield yielder) bool {
	if len(r.answer) == 0 || len(r.answer) < r.room {
		return false
	}
	before := r.req.GetGenerated()
	yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &streamv1.End{
		Reason: streamv1.Reason_REASON_COMPLETED, Path: streamerr.NewPath(a.peer), Finish: streamv1.Finish_FINISH_LENGTH,
		Usage: &streamv1.Usage{PromptTokens: uint32(len(r.req.GetPrompt())) - before, CompletionTokens: before + uint32(len(r.answer))},
	}}}, nil)
	return true
}
