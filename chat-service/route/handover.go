package route

import (
	"log/slog"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/route/failover"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxParameters bounds the parameters that one worker passes to another, in bytes.
const maxParameters = 1 << 20

// A prefill is a prompt that one worker reads for another. If no prefill worker is available, or if
// it fails, the decode worker reads the prompt itself, which costs only time.
type prefill struct {
	attempt    *attempt
	began      time.Time
	parameters []byte // for the decode worker, unchanged
	cached     uint32 // prompt tokens that the prefill worker had in its cache
	failed     error  // why the prompt was not handed over; nil on success
}

// isHandedOver reports whether the worker has sent parameters that a decode worker accepts.
func (r *prefill) isHandedOver() bool {
	return len(r.parameters) > 0 && len(r.parameters) <= maxParameters
}

func (r *prefill) transfer() *workerv1.KVTransfer {
	return &workerv1.KVTransfer{What: &workerv1.KVTransfer_Parameters{Parameters: r.parameters}}
}

// isReadFor reports whether a prefill worker should read the prompt of req for a. The APIs that take
// images support no handover, and only the worker that reads a prompt knows how likely its tokens are.
func (d *drive) isReadFor(a *attempt, req *workerv1.TokenRequest) bool {
	unread := len(req.GetPrompt()) - max(0, a.expected)
	return a.info.GetRole() == llmv1.Role_ROLE_DECODE && len(req.GetImages()) == 0 && !req.GetSampling().GetPromptLogprobs() && unread > d.pool.opts.HandoverAbove
}

// read calls a prefill worker for the current worker. It returns ReaderFound, or Read if there is
// none.
func (d *drive) read() event {
	req := d.request(nil)
	ask := &workerv1.TokenRequest{
		StreamId: req.GetStreamId(), Model: req.GetModel(), Prompt: req.GetPrompt(), Session: req.GetSession(), Claim: req.GetClaim(), Adapter: req.GetAdapter(),
		Sampling:   &llmv1.Sampling{MaxTokens: new(uint32(1)), Temperature: new(float32(0))},
		KvTransfer: &workerv1.KVTransfer{What: &workerv1.KVTransfer_Ask{Ask: true}},
	}
	from := d.pool.takeReader(ask, d.stopping())
	if from == nil {
		d.noteHandover("", d.attempt.peer, streamerr.Unavailable, 0)
		return event{Kind: failover.Read}
	}
	d.prefill = &prefill{attempt: from, began: time.Now(), failed: streamerr.New(streamerr.Internal, "the worker ended without an ending")}
	d.start(from, ask)
	return event{Kind: failover.ReaderFound, Choice: failover.Choice[*fleet.Worker]{Worker: from.worker, Name: from.peer, Unread: from.unread}}
}

// readerMessage converts a message of the prefill worker to an event.
func (d *drive) readerMessage(out *workerv1.GenerateResponse) event {
	r := d.prefill
	switch m := out.GetMessage().(type) {
	case *workerv1.GenerateResponse_Started:
		return event{Kind: failover.Started}
	case *workerv1.GenerateResponse_Handover:
		r.parameters = m.Handover.GetParameters()
	case *workerv1.GenerateResponse_Tokens:
		r.failed = streamerr.New(streamerr.Internal, "the worker answers, although it should only read the prompt")
		d.leave(r.failed)
		return event{Kind: failover.Read}
	}
	return event{Kind: failover.Tick}
}

// readerEnded converts the end of the prefill worker's call to an event.
func (d *drive) readerEnded(last *workerv1.GenerateResponse, err error) event {
	r := d.prefill
	if end := last.GetEnd(); end != nil {
		r.attempt.worker.Deliver()
		r.cached, r.failed = end.GetUsage().GetCachedTokens(), nil
		if !r.isHandedOver() {
			r.failed = streamerr.New(streamerr.Internal, "the worker handed the prompt over with %d bytes of parameters; it must be 1 to %d", len(r.parameters), maxParameters)
		}
		return event{Kind: failover.Read}
	}
	if err != nil {
		r.failed = err
	}
	why := streamerr.As(r.failed)
	if stream.Cause(d.ctx) == nil {
		blame(r.attempt.worker, failover.RuleOf(why.Reason).Blame, why)
	}
	return event{Kind: failover.Read}
}

// conclude records the result of a prefill, and returns the KVTransfer for the current worker.
func (d *drive) conclude(r *prefill) *workerv1.KVTransfer {
	took := time.Since(r.began)
	if r.failed == nil {
		d.attempt.expected, d.attempt.found = r.attempt.expected, &r.cached
		d.attempt.charge.Read()
		d.noteHandover(r.attempt.peer, d.attempt.peer, streamerr.Completed, took)
		return r.transfer()
	}
	why := streamerr.As(r.failed)
	d.noteHandover(r.attempt.peer, d.attempt.peer, why.Reason, took)
	d.pool.opts.Log.LogAttrs(d.ctx, slog.LevelInfo, "prompt not handed over",
		slog.String("stream", stream.ID(d.ctx)), slog.String("hop", d.pool.opts.Self), slog.String("from", r.attempt.peer), slog.String("to", d.attempt.peer),
		slog.String("reason", why.Reason.String()), slog.String("message", why.Text()))
	return nil
}

// abandonHandover has the current worker fetch the prompt of a stream that ends because of cause
// between prefill and decode. Otherwise the engine of the prefill worker would keep the prompt until
// its timeout. The call is stopped at its first message, and the stream does not wait for it.
func (d *drive) abandonHandover(cause error) {
	r := d.prefill
	if r == nil || !r.isHandedOver() {
		return
	}
	d.prefill = nil
	d.noteHandover(r.attempt.peer, "", streamerr.As(cause).Reason, time.Since(r.began))
	req := d.request(d.attempt.info)
	req.KvTransfer = r.transfer()
	d.start(d.attempt, req)
	d.leave(cause)
}

// abandonFetch ends a stream that was stopped before its worker has fetched the prompt. The call
// goes on until then.
func (d *drive) abandonFetch() {
	cause := stream.Cause(d.ctx)
	d.leave(cause)
	d.now = time.Since(d.began)
	d.step(event{Kind: failover.Fail, Err: cause})
}

// noteHandover records a handover. to is empty if no worker answers.
func (d *drive) noteHandover(from, to string, reason streamerr.Reason, took time.Duration) {
	ledger.Of(d.ctx).HandedOver(from, to, reason, took)
	d.pool.opts.Metrics.HandedOver(reason, took)
}
