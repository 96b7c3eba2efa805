package route

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxParameters bounds what one worker has us tell another, in bytes.
const maxParameters = 1 << 20

// handOver has another worker read the prompt of req for a, if a is one for whom others read, and puts what a is to be told for it
// into req. Where nobody reads it, or whoever does fails, a reads it itself: that costs time, and nothing else. The error is why the
// stream is to end meanwhile.
func (r *relay) handOver(ctx context.Context, a *attempt, req *workerv1.TokenRequest) error {
	unread := len(req.GetPrompt()) - max(0, a.expected)
	if a.info.GetRole() != workerv1.Role_ROLE_DECODE || unread <= r.pool.opts.HandoverAbove {
		return nil
	}
	ask := &workerv1.TokenRequest{
		StreamId: req.GetStreamId(), Model: req.GetModel(), Prompt: req.GetPrompt(), Session: req.GetSession(), Claim: req.GetClaim(),
		Sampling:   &streamv1.Sampling{MaxTokens: new(uint32(1)), Temperature: new(float32(0))},
		KvTransfer: &workerv1.KVTransfer{What: &workerv1.KVTransfer_Ask{Ask: true}},
	}
	begun, peer := time.Now(), ""
	var failed error
	from := r.pool.takeReader(ask, r.deaf())
	if from == nil {
		failed = streamerr.New(streamerr.Unavailable, "no healthy worker reads prompts for others")
	} else {
		peer = from.peer
		var handed reading
		handed, failed = r.read(ctx, from, ask)
		if cause := stream.Cause(ctx); cause != nil {
			return cause // whatever the worker made of it
		}
		if failed == nil {
			req.KvTransfer = &workerv1.KVTransfer{What: &workerv1.KVTransfer_Parameters{Parameters: handed.parameters}}
			a.expected, a.found = from.expected, &handed.cached
			a.charge.Read()
		}
	}
	reason, took := streamerr.Completed, time.Since(begun)
	if failed != nil {
		reason = streamerr.As(failed).Reason
	}
	ledger.Of(ctx).HandedOver(peer, a.peer, reason, took)
	r.pool.opts.Metrics.HandedOver(reason, took)
	if failed != nil && from != nil { // that there is nobody is in the log already, once for each worker
		r.pool.opts.Log.LogAttrs(ctx, slog.LevelInfo, "prompt not handed over",
			slog.String("stream", stream.ID(ctx)), slog.String("hop", r.pool.opts.Self), slog.String("from", peer), slog.String("to", a.peer),
			slog.String("reason", reason.String()), slog.String("message", streamerr.As(failed).Text()))
	}
	return nil
}

// A reading is what came of a prompt that was read for another worker.
type reading struct {
	parameters []byte // for that one, as they stand
	cached     uint32 // tokens of the prompt that were in the reader's cache
}

// read follows who reads a prompt for another worker, until it is handed over. The call is over then, but for one that is silent.
func (r *relay) read(ctx context.Context, p *attempt, req *workerv1.TokenRequest) (handed reading, err error) {
	p.start(ctx, &r.pool.calls, req)
	var left error = streamerr.New(streamerr.Internal, "the reader panicked") // unless the code below says otherwise
	behind := false
	defer func() {
		p.leave(left)
		if !behind {
			<-p.ended
		}
	}()
	for {
		it, ok := p.next(r.timer, r.pool.opts.MigrateAfter)
		switch {
		case !ok && (stream.Cause(ctx) != nil || p.admitted && p.worker.Info() != nil && p.worker.Trusted()):
			continue // it has the grace to say goodbye; or it reads, or has others before
		case !ok:
			silent := streamerr.New(streamerr.Deadline, "%s sent nothing for %v", p.peer, r.pool.opts.MigrateAfter)
			p.worker.Suspect()
			r.behind = append(r.behind, p)
			left, behind = silent, true
			return handed, silent
		case it.panicked != nil:
			p.over = true
			panic(it.panicked)
		case it.out == nil: // the last item, or none
			p.over = true
			if it.err == nil {
				return handed, streamerr.New(streamerr.Internal, "the worker ended without an ending")
			}
			doubt(p.worker, streamerr.As(it.err))
			return handed, it.err
		}
		switch m := it.out.GetMessage().(type) {
		case *workerv1.GenerateResponse_Started:
			p.admitted = true
		case *workerv1.GenerateResponse_Handover:
			handed.parameters = m.Handover.GetParameters()
		case *workerv1.GenerateResponse_End:
			p.over = true
			p.worker.Delivered()
			handed.cached = m.End.GetUsage().GetCachedTokens()
			if n := len(handed.parameters); n == 0 || n > maxParameters {
				return handed, streamerr.New(streamerr.Internal, "the worker hands the prompt over with %d bytes; it must be 1 to %d", n, maxParameters)
			}
			return handed, nil
		case *workerv1.GenerateResponse_Tokens:
			left = streamerr.New(streamerr.Internal, "the worker answers, and was to read the prompt alone")
			return handed, left
		}
	}
}

// deaf returns the workers that have not heard yet that they were left, and would refuse the same stream once more.
func (r *relay) deaf() (workers []*fleet.Worker) {
	for _, a := range r.behind {
		select {
		case <-a.ended:
		default:
			workers = append(workers, a.worker)
		}
	}
	return slices.Clip(workers)
}
