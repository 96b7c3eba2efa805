// Package beside is what the engines have in common that let a server beside the worker generate: how many streams it is
// asked for at once, what becomes of a stream that ends, how the server is watched, and the words for what it does wrong.
//
// An Engine is made of one function, Look, which says what the server is and how it is asked. A stream that is stopped is
// stopped at the server first: the cause is yielded when the Call has been told so. What the server makes of a stream ends it
// with the origin "engine": see Fail. Nothing is queued here, and nothing is read ahead: a slow reader is felt by the server.
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

// Options are those that every engine has.
type Options struct {
	Upstream string // where the server is
	Name     string // what Started calls the model; "" is Upstream.Name
	// MaxRunning is how many streams there are at most; further ones are refused with OVERLOADED. The server may let some of
	// them wait.
	MaxRunning int
	// Log gets what is no single stream's ending; nil is nobody.
	Log *slog.Logger
}

// An Upstream is what is known of the server since it was last looked at. It is static.
type Upstream struct {
	Name         string // the model's
	Context      int    // tokens of prompt and answer together
	Vocab        int    // token ids are below this
	EOS          []uint32
	Capabilities *llmv1.Capabilities
	// Resumes says that the server goes on with answers that were begun elsewhere; see whence.llm.v1.WorkerInfo.
	Resumes bool
	// Ask checks a request, and returns the call that will ask for it; nothing is sent yet.
	Ask func(ctx context.Context, req *workerv1.TokenRequest) (Call, error)
	// AskEmbed is Ask for vectors; nil if the server makes none.
	AskEmbed func(req *workerv1.EmbedRequest) (EmbedCall, error)
}

// A Call asks the server for one answer.
type Call interface {
	// Open sends the request, and returns when the server has taken it. Of ctx it takes the values alone: Stop ends it.
	Open(ctx context.Context) error
	// Next awaits what comes next, which may be nothing. The last has the ending.
	Next() (ids []uint32, end *llmv1.End, err error)
	// Stop ends the call: one that has not ended by itself is aborted at the server, and Open and Next return soon. confirmed
	// says that the server generates no more, as far as it can be known. It may be called by another goroutine than the
	// others, and again.
	Stop() (confirmed bool)
}

// A Teller is a Call that knows more of its tokens than their ids.
type Teller interface {
	// Tell completes an item with the ids that Next returned last.
	Tell(tokens *workerv1.Tokens)
}

// A Reader is a Call that has a prompt read for another server.
type Reader interface {
	// Handover returns what that one is to be told; it is called when Next has returned the ending.
	Handover() []byte
}

// An Engine lets a server generate. Generate works while Watch finds the server well.
type Engine struct {
	opts     Options
	look     Look
	doubt    chan struct{}            // capacity 1: a stream's ending says that the server should be probed now
	upstream atomic.Pointer[Upstream] // nil while it cannot be used
	problem  atomic.Pointer[string]   // why it cannot be used; "" while it can
	running  atomic.Int64
}

// New returns an engine on the server that look looks at.
func New(opts Options, look Look) *Engine {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{opts: opts, look: look, doubt: make(chan struct{}, 1)}
	e.problem.Store(new("the server that generates has not answered a probe yet"))
	return e
}

// Upstream returns what is known of the server, nil while it cannot be used.
func (e *Engine) Upstream() *Upstream { return e.upstream.Load() }

// Problem returns why the server cannot be used, for people; "" while it can.
func (e *Engine) Problem() string { return *e.problem.Load() }

// unavailable refuses a request while the server cannot be used.
func (e *Engine) unavailable() error {
	problem := e.Problem()
	if problem == "" { // it has come back meanwhile
		return Unavailable(nil)
	}
	return unavailable(nil, problem)
}

// Load is how busy the engine is. The server knows which of its streams wait; it is not asked.
func (e *Engine) Load() *llmv1.Load {
	return &llmv1.Load{Running: uint32(e.running.Load()), MaxRunning: uint32(e.opts.MaxRunning)}
}

// Generate is a stream.Engine. Started comes when the server has taken the request or says nothing for takenAfter; Tokens as
// the server sends them; then End. When the loop is left, the call is over.
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

// enter takes a place for a stream, which running gives back, or says that there is none.
func (e *Engine) enter() error {
	if n := e.running.Add(1); n <= int64(e.opts.MaxRunning) {
		return nil
	}
	e.running.Add(-1)
	err := streamerr.New(streamerr.Overloaded, "%d streams run; no more are taken", e.opts.MaxRunning)
	err.RetryAfter = RetryAfter
	return err
}

// takenAfter is how long a server may be silent until it counts as having taken a request: many send nothing before the
// first token, which waits for its turn and for the prompt, and no server takes as long to refuse one.
const takenAfter = time.Second

// generate yields everything but the error. A reader that leaves is no error.
func (e *Engine) generate(ctx context.Context, req *workerv1.TokenRequest, yield func(*workerv1.GenerateResponse) bool) error {
	up := e.upstream.Load()
	if up == nil {
		return e.unavailable()
	}
	call, err := up.Ask(ctx, req)
	if err != nil {
		return err
	}
	record := ledger.Of(ctx)
	stopped := make(chan struct{})
	undo := stream.AfterStop(ctx, func(error) {
		defer close(stopped)
		if call.Stop() {
			record.Confirmed()
		}
	})
	opened := make(chan error, 1)
	go func() { opened <- call.Open(ctx) }()
	r := run{call: call, opened: opened, record: record, begun: int(req.GetGenerated())}
	defer func() {
		if undo() {
			call.Stop()
		} else {
			<-stopped
		}
		_ = r.await() // it has been told, or is not of interest any more
	}()
	err = r.pass(ctx, e.started(ctx, up, req), yield)
	if err == nil {
		return nil
	}
	if cause := stream.Cause(ctx); cause != nil {
		return cause // whatever the server made of it
	}
	e.suspect(err)
	return err
}

func (e *Engine) started(ctx context.Context, up *Upstream, req *workerv1.TokenRequest) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{
		StreamId: stream.ID(ctx), Model: cmp.Or(e.opts.Name, up.Name), PromptTokens: uint32(len(req.GetPrompt())) - req.GetGenerated(),
	}}}
}

// A run is a call whose answer is passed on.
type run struct {
	call   Call
	opened chan error // capacity 1: what Open returned
	done   bool       // it has returned
	record *ledger.Record
	begun  int // tokens of the answer that were generated elsewhere
}

// await returns what Open did.
func (r *run) await() (err error) {
	if !r.done {
		err, r.done = <-r.opened, true
	}
	return err
}

// pass yields Started and all that follows. A reader that leaves is no error.
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
			r.record.Unreceived(len(ids)) // tokens that the server has sent already
			return cause
		}
		if err != nil {
			return err
		}
		if n := len(ids); n > 0 {
			given += n
			r.record.In(n)
			tokens := &workerv1.Tokens{Ids: ids}
			if t, ok := r.call.(Teller); ok {
				t.Tell(tokens)
			}
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: tokens}}) {
				return nil
			}
		}
		if end != nil {
			r.call.Stop()                          // it has ended, and is gone before the reader hears of it
			if reader, ok := r.call.(Reader); ok { // a reader generates no part of the answer, though the server counts a token
				if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Handover{Handover: &workerv1.Handover{Parameters: reader.Handover()}}}) {
					return nil
				}
			} else if unsent := int(end.GetUsage().GetCompletionTokens()) - r.begun - given; unsent > 0 {
				end.Tokens = uint32(unsent) // tokens that the server has counted and not sent, such as the token that ended the answer
				r.record.In(unsent)
			}
			yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: end}})
			return nil
		}
	}
}
