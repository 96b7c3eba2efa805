// Package beside is the common part of the engines that use a model server beside the worker: the
// limit on concurrent streams, the ending of a stream, the health probes of the server, and the
// errors for its failures.
//
// An Engine is built on one function, Look, which probes the server and returns how to call it. A
// stopped stream is aborted at the server first; the engine yields the cause after the Call has
// aborted. An ending that the server caused has the origin "engine": see Fail. The engine queues
// nothing and reads nothing ahead, so the server feels the backpressure of a slow reader.
package beside

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Options are common to all engines on a server.
type Options struct {
	Upstream string // address of the server
	Name     string // model name in Started; "" means Upstream.Name
	// MaxRunning is the maximum number of streams; further ones are refused with OVERLOADED. The
	// server may queue some of the accepted ones. 0 means the server's slots, and at least
	// DefaultMaxRunning.
	MaxRunning int
	// Rank is the data-parallel rank of the server that the engine uses; the zero value means that the
	// server chooses one for each request.
	Rank Rank
	// ProbeInterval is the time between health probes; 0 means a second.
	ProbeInterval time.Duration
	// Log receives messages that are not about the ending of a single stream; nil means none.
	Log *slog.Logger
}

// An Upstream describes the server, as of the last probe. It is immutable.
type Upstream struct {
	Name         string // of the model
	Context      int    // tokens of prompt and answer together
	Vocab        int    // token ids are below Vocab
	EOS          []uint32
	Capabilities *llmv1.Capabilities
	// Facts describe the use of the server for the operator, and Notes describe findings of a trial that the
	// operator may want to change, one sentence each. Notes are also logged, as warnings.
	Facts, Notes []string
	// Rendered is the prompt that the server's chat template makes of capability.Greeting; "" if unknown.
	Rendered string
	// Slots is the number of requests that the server runs at a time; 0 if the server does not report it.
	Slots int
	// Resumes reports that the server can continue answers that another server began; see
	// whence.llm.v1.WorkerInfo.
	Resumes bool
	// Ask checks a request and returns its call. It sends nothing. It is nil if the server's model only pools:
	// it embeds or scores.
	Ask func(ctx context.Context, req *workerv1.TokenRequest) (Call, error)
	// AskEmbed is Ask for vectors; nil if the server does not embed.
	AskEmbed func(ctx context.Context, req *workerv1.EmbedRequest) (PoolingCall[*workerv1.EmbedResponse], error)
	// AskScore is Ask for scores; nil if the server does not rate documents.
	AskScore func(ctx context.Context, req *workerv1.ScoreRequest) (PoolingCall[*workerv1.ScoreResponse], error)

	adapters []string // see WithAdapters
	confirms bool     // requests may name only adapters; otherwise the server refuses unknown names itself
}

// A Call is one request to the server and its answer.
type Call interface {
	// Open sends the request and returns when the server has accepted it. It uses only the values
	// of ctx; Stop ends it.
	Open(ctx context.Context) error
	// Next waits for the next tokens, which may be none, and does not wait for more of them. The last call
	// returns the ending.
	Next() (ids []uint32, end *llmv1.End, err error)
	// Stop ends the call. If the call has not ended by itself, Stop aborts it at the server; Open
	// and Next then return soon. confirmed reports that the server generates no more, as far as the
	// client can know; see Confirmer. Any goroutine may call Stop, and more than once.
	Stop() (confirmed bool)
}

// A Teller is a Call that adds data such as log-probabilities to its tokens.
type Teller interface {
	// Tell completes an item with the ids that Next returned last.
	Tell(tokens *workerv1.Tokens)
}

// A Scorer is a Call that may have the log-probabilities of its prompt.
type Scorer interface {
	// Scores returns them when Next has returned the first tokens or the ending, and nil if the request
	// does not ask for them.
	Scores() *workerv1.PromptLogprobs
}

// A Confirmer is a Call whose server does not answer a stop: other requests show whether the server
// still works on the call.
type Confirmer interface {
	// Confirm is called after a Stop that confirmed nothing. It reports whether the server is known to
	// generate no more for the call, and returns within seconds, or once ctx is done.
	Confirm(ctx context.Context) bool
}

// A Reader is a Call that prefills a prompt for another server.
type Reader interface {
	// Handover returns the parameters for the other server. It is called after Next has returned
	// the ending.
	Handover() []byte
}

// An Engine generates on a model server. Generate works while Watch finds the server healthy.
type Engine struct {
	opts     Options
	look     Look
	doubt    chan struct{}            // capacity 1: a stream's ending suggests probing the server now
	upstream atomic.Pointer[Upstream] // nil while the server cannot be used
	problem  atomic.Pointer[string]   // why the server cannot be used; "" while it can
	running  atomic.Int64
	answers  atomic.Uint64              // messages that the server has sent, and changes of its Done; see lull
	done     float64                    // ServerLoad.Done as last reported; owned by readLoads
	slots    atomic.Int64               // ServerLoad.Slots as last reported; 0 if they never were
	readLoad LoadReader                 // nil if the engine cannot ask for the server's load
	reported atomic.Pointer[loadReport] // nil while the server's load is unknown
}

// New returns an engine on the server that look probes.
func New(opts Options, look Look) *Engine {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{opts: opts, look: look, doubt: make(chan struct{}, 1)}
	e.problem.Store(new("the server that generates has not answered a probe yet"))
	return e
}

// Upstream returns the description of the server, or nil while the server cannot be used.
func (e *Engine) Upstream() *Upstream { return e.upstream.Load() }

// Problem returns why the server cannot be used, for people; "" while it can.
func (e *Engine) Problem() string { return *e.problem.Load() }

// unavailable refuses a request while the server cannot be used.
func (e *Engine) unavailable() error {
	problem := e.Problem()
	if problem == "" { // the server has recovered in the meantime
		return Unavailable(nil)
	}
	return unavailable(nil, problem)
}

// Generate is a stream.Sequence. Started comes when the server has accepted the request, or has been
// silent for takenAfter. Then come Tokens as the server sends them, and End. The call is over when
// Generate returns.
func (e *Engine) Generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		if cause := stream.Cause(ctx); cause != nil {
			yield(nil, cause)
			return
		}
		if err := e.enter(); err != nil {
			yield(nil, err)
			return
		}
		defer e.running.Add(-1)
		if err := e.generate(ctx, req, func(out *workerv1.GenerateResponse) bool { return yield(out, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

// enter reserves a place for a stream, or returns the error that refuses the stream. Decrementing
// running frees the place.
func (e *Engine) enter() error {
	_, limit := e.limits()
	if n := e.running.Add(1); n <= int64(limit) {
		return nil
	}
	e.running.Add(-1)
	err := streamerr.New(streamerr.Overloaded, "%d streams run; no more are taken", limit)
	err.RetryAfter = RetryAfter
	return err
}

// takenAfter is the silence after which the server counts as having accepted a request. Many
// servers send nothing before the first token, which waits for its turn and for the prompt, and no
// server takes that long to refuse a request.
const takenAfter = time.Second

// generate yields all items, and returns the error instead of yielding it. A reader that leaves is
// not an error.
func (e *Engine) generate(ctx context.Context, req *workerv1.TokenRequest, yield func(*workerv1.GenerateResponse) bool) error {
	up := e.upstream.Load()
	switch {
	case up == nil:
		return e.unavailable()
	case up.Ask == nil:
		return e.lacks(up, "chats and completions")
	}
	call, err := up.Ask(ctx, req)
	if err != nil {
		return err
	}
	req.Images, req.Conversation = nil, "" // the call has them in the form that it sends
	record := ledger.Of(ctx)
	stopped := make(chan struct{})
	undo := stream.AfterStop(ctx, func(error) {
		defer close(stopped)
		confirmed := call.Stop()
		if c, ok := call.(Confirmer); ok && !confirmed {
			confirmed = c.Confirm(ctx)
		}
		if confirmed {
			record.Confirmed()
		}
	})
	opened := make(chan error, 1)
	go func() { opened <- call.Open(ctx) }()
	r := run{call: call, opened: opened, record: record, answers: &e.answers, begun: int(req.GetGenerated())}
	defer func() {
		if undo() {
			call.Stop()
		} else {
			<-stopped
		}
		_ = r.await() // the request was aborted, or its result no longer matters
	}()
	err = r.pass(ctx, e.started(ctx, up, req), yield)
	if err == nil {
		return nil
	}
	if cause := stream.Cause(ctx); cause != nil {
		return cause // the server's own error is a consequence of the stop
	}
	e.answers.Add(1)
	e.suspect(err)
	return err
}

func (e *Engine) started(ctx context.Context, up *Upstream, req *workerv1.TokenRequest) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{
		StreamId: stream.ID(ctx), Model: cmp.Or(e.opts.Name, up.Name), PromptTokens: uint32(len(req.GetPrompt())) - req.GetGenerated(),
		Estimated: up.Capabilities.GetPrompt() == llmv1.Form_FORM_CONVERSATION,
	}}}
}

// A run passes on the answer of one call.
type run struct {
	call   Call
	opened chan error // capacity 1: the result of Open
	done   bool       // Open has returned
	record *ledger.Record
	// answers counts the messages of the server, of all its calls.
	answers *atomic.Uint64
	begun   int  // tokens of the answer that another worker generated
	scored  bool // the log-probabilities of the prompt were passed on, if there are any
}

// scores returns the log-probabilities of the prompt for the first item after Started.
func (r *run) scores() *workerv1.PromptLogprobs {
	s, ok := r.call.(Scorer)
	if !ok || r.scored {
		return nil
	}
	r.scored = true
	return s.Scores()
}

// await waits for Open and returns its error.
func (r *run) await() (err error) {
	if !r.done {
		err, r.done = <-r.opened, true
	}
	return err
}

// pass yields Started and all items after it. A reader that leaves is not an error.
func (r *run) pass(ctx context.Context, started *workerv1.GenerateResponse, yield func(*workerv1.GenerateResponse) bool) error {
	silent := time.NewTimer(takenAfter)
	defer silent.Stop()
	select {
	case err := <-r.opened:
		if r.done = true; err != nil {
			return err
		}
	case <-silent.C:
	}
	if !yield(started) {
		return nil
	}
	if err := r.await(); err != nil {
		return err
	}
	for given := 0; ; {
		ids, end, err := r.call.Next()
		if cause := stream.Cause(ctx); cause != nil {
			if reader, ok := r.call.(Reader); ok && end != nil {
				yield(handover(reader)) // the server keeps the prompt until another server fetches it
			}
			r.record.Unreceived(len(ids)) // tokens that the server had sent before the stop
			return cause
		}
		r.answers.Add(1)
		if err != nil {
			return err
		}
		if n := len(ids); n > 0 {
			given += n
			r.record.In(n)
			out := newItem(ids)
			if t, ok := r.call.(Teller); ok {
				t.Tell(&out.tokens)
			}
			out.response.Prompt = r.scores()
			if !yield(&out.response) {
				return nil
			}
		}
		if end != nil {
			r.call.Stop() // the call has ended; release it before the reader gets the ending
			if reader, ok := r.call.(Reader); ok {
				// A prefill call generates no part of the answer, although the server counts a
				// token.
				if !yield(handover(reader)) {
					return nil
				}
			} else if unsent := int(end.GetUsage().GetCompletionTokens()) - r.begun - given; unsent > 0 {
				// Tokens that the server has counted and not sent, such as the token that ended the
				// answer.
				end.Tokens = uint32(unsent)
				r.record.In(unsent)
			}
			yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: end}, Prompt: r.scores()})
			return nil
		}
	}
}

// An item is a message with tokens, in one piece of memory.
type item struct {
	response workerv1.GenerateResponse
	message  workerv1.GenerateResponse_Tokens
	tokens   workerv1.Tokens
}

func newItem(ids []uint32) *item {
	i := new(item)
	i.tokens.Ids, i.message.Tokens, i.response.Message = ids, &i.tokens, &i.message
	return i
}

func handover(r Reader) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Handover{Handover: &workerv1.Handover{Parameters: r.Handover()}}}
}
