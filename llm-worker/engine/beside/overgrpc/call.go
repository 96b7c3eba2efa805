package overgrpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
	"github.com/whence-dev/whence/pkg/stream"
)

// minGrace is the time in which the server must answer an abort, or end a call after its last message,
// unless its stream has a longer grace.
const minGrace = 250 * time.Millisecond

// A Piece is the content of one message, independent of the service.
type Piece struct {
	IDs   []uint32 // new tokens
	Usage beside.Usage
	// Likely has the log-probabilities of IDs, if the request asks for any.
	Likely []likely.Position
	// Prompt has those of the prompt's tokens, in a message before the first tokens or beside them.
	Prompt []likely.Position
	Last   bool              // the answer has ended: IDs is ignored, the other fields count
	Failed *beside.Complaint // the answer has failed; the other fields are ignored
	Finish string
	Index  uint32 // index of the choice; only one is allowed
}

// A Method describes how a service streams and aborts answers.
type Method[Resp any] struct {
	Open  func(context.Context) (grpc.ServerStreamingClient[Resp], error)
	Abort func(context.Context) error
	// Read converts a message; ok is false for a message without content.
	Read func(*Resp) (p Piece, ok bool)
	// Dialect completes the server's errors; it may be nil.
	Dialect beside.Dialect
}

// A trailerFlag records whether the server has sent the trailer of a call, which holds its status.
type trailerFlag struct{ trailer atomic.Bool }

// A Call is a beside.Call over gRPC.
type Call[Resp any] struct {
	method Method[Resp]
	stream *stream.Control // may be nil
	answer beside.Answer
	likely *likely.Queue  // nil unless the request asks for log-probabilities
	scored *likely.Prompt // nil unless it asks for those of the prompt
	heard  trailerFlag

	// Owned by the goroutine that calls Open and Next.
	st    grpc.ServerStreamingClient[Resp]
	first *Resp // the message that Open has read ahead
	begun bool  // a message has come

	ended atomic.Bool // the call has ended by itself

	mu      sync.Mutex         // guards the following fields
	cancel  context.CancelFunc // nil until the request is sent
	stopped bool

	stop      sync.Once
	confirmed bool // set by Stop
}

// NewCall returns a call of up for req. ctx is the stream's.
func NewCall[Resp any](ctx context.Context, up *beside.Upstream, req *workerv1.TokenRequest, method Method[Resp]) *Call[Resp] {
	return &Call[Resp]{method: method, stream: stream.ControlOf(ctx), answer: beside.NewAnswer(req, up.Vocab, up.EOS), likely: likely.NewQueue(req.GetSampling()), scored: likely.NewPrompt(req)}
}

// errStopped is the error of a call that was stopped before it was sent.
var errStopped = errors.New("overgrpc: the call was stopped")

// Open implements beside.Call. Servers usually send the header with the first message, so Open
// waits for the first message.
func (c *Call[Resp]) Open(ctx context.Context) error {
	ctx, cancel := outgoing(context.WithValue(ctx, trailerKey{}, &c.heard))
	c.mu.Lock()
	stopped := c.stopped
	c.cancel = cancel
	c.mu.Unlock()
	if stopped {
		cancel()
		return errStopped
	}
	st, err := c.method.Open(ctx)
	if err != nil {
		return c.failed(err)
	}
	c.st = st
	c.first, err = st.Recv()
	if err != nil {
		return c.failed(err)
	}
	c.begun = true
	return nil
}

// Next implements beside.Call.
func (c *Call[Resp]) Next() ([]uint32, *llmv1.End, error) {
	m := c.first
	if c.first = nil; m == nil {
		var err error
		if m, err = c.st.Recv(); err != nil {
			return nil, nil, c.failed(err)
		}
	}
	p, ok := c.method.Read(m)
	switch {
	case !ok:
		return nil, nil, beside.Broken(errors.New("a message has neither a chunk nor an ending"))
	case p.Failed != nil:
		return nil, nil, c.method.Dialect.Complete(p.Failed, true).Ending(beside.InAnswer)
	case p.Index != 0:
		return nil, nil, beside.Broken(errors.New("a message belongs to an answer that was not requested"))
	case !p.Last:
		_, err := c.scored.Add(p.Prompt)
		if err == nil {
			err = c.likely.Add(p.IDs, p.Likely)
		}
		if err == nil && len(p.IDs) > 0 {
			err = c.scored.Check()
		}
		if err != nil {
			return nil, nil, beside.Broken(err)
		}
		c.answer.Found(p.Usage.Cached)
		ids, err := c.answer.Take(p.IDs)
		return ids, nil, err
	}
	finish, err := beside.Finish(p.Finish)
	if err != nil {
		return nil, nil, err
	}
	if err := c.over(); err != nil {
		return nil, nil, err
	}
	ids, end := c.answer.End(finish, p.Usage)
	return ids, end, nil
}

// Tell implements beside.Teller.
func (c *Call[Resp]) Tell(tokens *workerv1.Tokens) {
	c.answer.Tell(tokens)
	c.likely.Complete(tokens)
}

// Scores implements beside.Scorer.
func (c *Call[Resp]) Scores() *workerv1.PromptLogprobs { return c.scored.Take() }

// grace returns how long Stop and over may wait for the server.
func (c *Call[Resp]) grace() time.Duration { return max(minGrace, c.stream.Grace()) }

// over waits at most the grace for the end of the call after its last message. If the call were reset,
// the server would report the request as abandoned.
func (c *Call[Resp]) over() error {
	late := time.AfterFunc(c.grace(), c.reset)
	defer late.Stop()
	_, err := c.st.Recv()
	switch {
	case err == nil:
		return beside.Broken(errors.New("the answer continues after its ending"))
	case errors.Is(err, io.EOF), !c.said():
		c.ended.Store(true)
		return nil
	default:
		return c.failed(err)
	}
}

// said reports whether the server has ended the call with a status.
func (c *Call[Resp]) said() bool {
	// A status without an answer has no trailer of its own.
	return c.heard.trailer.Load() || c.st != nil && len(c.st.Trailer()) > 0
}

// failed returns the ending of a call that did not complete.
func (c *Call[Resp]) failed(err error) error {
	c.ended.Store(true)
	if errors.Is(err, io.EOF) {
		return beside.Lost(errors.New("no ending: EOF"), "closed the stream without an ending")
	}
	return failure(err, c.said(), c.begun, c.method.Dialect)
}

// Stop implements beside.Call.
func (c *Call[Resp]) Stop() (confirmed bool) {
	c.stop.Do(func() {
		c.mu.Lock()
		c.stopped = true
		sent := c.cancel != nil
		c.mu.Unlock()
		switch {
		case !sent || c.ended.Load():
			c.confirmed = true // the call was never sent
		default:
			ctx, cancel := context.WithTimeout(context.Background(), c.grace())
			c.confirmed = c.method.Abort(ctx) == nil
			cancel()
		}
		c.reset()
	})
	return c.confirmed
}

// reset ends the call without an abort.
func (c *Call[Resp]) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}
