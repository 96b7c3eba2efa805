package choices

import (
	"context"
	"sync"

	"github.com/whence-dev/whence/chat-service/crash"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A merge makes one stream of several choices. Each choice has a goroutine, which ranges over the
// choice. That goroutine, or the Loop that reads the worker's link, carries the choice's messages
// to the reader. The goroutine that ranges over the merged stream sleeps until all choices have
// ended.
type merge struct {
	// Static.
	ctx     context.Context //nolint:containedctx // of the stream, which the merge is
	n, each int             // the number of choices, and of choices per prompt
	running sync.WaitGroup

	baton baton // held while the reader has a message; guards the following fields
	yield func(*chatv1.GenerateResponse, error) bool

	started     *llmv1.Started // merged from all choices that have started
	waiting     int            // choices that have not started
	startedSent bool           // Started was yielded
	usage       llmv1.Usage
	path        []string
	left        bool // the reader has left

	mu       sync.Mutex // guards the following fields
	controls []*stream.Control
	cause    error        // why the choices were stopped; nil while they run
	failed   error        // the ending for the reader, if a choice has failed
	crash    *crash.Crash // of a choice's goroutine
}

var errPanicked = streamerr.New(streamerr.Internal, "another choice, or the reader, panicked")

func newMerge(ctx context.Context, n, each int, yield func(*chatv1.GenerateResponse, error) bool) *merge {
	return &merge{ctx: ctx, n: n, each: each, yield: yield, waiting: n, started: &llmv1.Started{}}
}

// begin runs a choice of the stream of ctx. A stop of the whole stream stops the choice with the
// same cause.
func (m *merge) begin(ctx context.Context, choice int, source Source) {
	own, ctl := stream.WithControl(ctx, rpc.DefaultGrace)
	whole := loop.Of(ctx)
	var part *loop.Carrier // choices arrive on several connections
	if whole != nil {
		part = &loop.Carrier{}
		own = loop.With(own, part)
	}
	m.mu.Lock()
	m.controls = append(m.controls, ctl)
	cause := m.cause
	m.mu.Unlock()
	if cause != nil { // an earlier choice has failed
		ctl.Stop(cause)
	}
	m.running.Go(func() {
		defer ctl.Release()
		c := &carriage{ready: make(signal, 1), whole: whole, part: part}
		crash.Watch(func() { m.run(own, c, choice, source) }, m.crashed)
	})
}

// A carriage holds the Carriers of one choice, and the signal on which the choice waits for the
// baton.
type carriage struct {
	ready       signal
	whole, part *loop.Carrier // of the stream, and of the choice; nil if no Loop carries the stream
}

// run carries the messages of a choice to the reader until the choice or the stream ends.
func (m *merge) run(ctx context.Context, c *carriage, choice int, source Source) {
	ended := false
	for out, err := range source(ctx, choice) {
		switch {
		case ended:
			return // a message after the ending
		case err != nil:
			m.fail(m.why(choice, err))
			ended = true
		case !m.carry(c, choice, out):
			return
		default:
			ended = out.GetEnd() != nil
		}
	}
	if ended {
		return
	}
	m.fail(streamerr.New(streamerr.Internal, "choice %d ended without an ending; this is a bug in chat-service", choice))
}

// carry passes a message of a choice to the reader. It returns false when the stream has ended or
// the reader has left.
func (m *merge) carry(c *carriage, choice int, out *chatv1.GenerateResponse) bool {
	m.baton.take(c.ready, c.part)
	lent := c.part.Lend(c.whole)
	returned := false
	defer func() {
		if !returned { // the reader has panicked, and must not get other choices' messages
			m.stop(errPanicked)
		}
		c.whole.Return(lent)
		m.baton.give()
	}()
	more := !m.stopped() && m.deliver(choice, out)
	returned = true
	return more
}

// deliver passes a message of a choice to the reader, and stops all choices if the reader has left.
func (m *merge) deliver(choice int, out *chatv1.GenerateResponse) bool {
	if m.pass(choice, out) {
		return true
	}
	m.left = true
	left := error(streamerr.New(streamerr.Completed, "the reader has what it needs"))
	if cause := stream.Cause(m.ctx); cause != nil {
		left = cause // the stop made the reader leave
	}
	m.stop(left)
	return false
}

// stop stops all choices with the first cause.
func (m *merge) stop(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cause != nil {
		return
	}
	m.cause = cause
	for _, ctl := range m.controls {
		ctl.Stop(cause)
	}
}

func (m *merge) stopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cause != nil
}

// fail ends the stream with err, unless it has ended before.
func (m *merge) fail(err error) {
	m.mu.Lock()
	if m.cause == nil {
		m.failed = err
	}
	m.mu.Unlock()
	m.stop(err)
}

// crashed ends the stream after a panic or an exit of a choice or of the reader.
func (m *merge) crashed(c *crash.Crash) {
	m.mu.Lock()
	if m.crash == nil {
		m.crash = c
	}
	m.mu.Unlock()
	m.stop(errPanicked)
}

// end waits for all choices, and then yields the stream's ending unless the reader has left.
func (m *merge) end() {
	m.running.Wait()
	m.crash.Repeat()
	switch {
	case m.left: // a choice may have failed meanwhile
	case m.failed != nil:
		m.yield(nil, m.failed)
	case m.cause == nil:
		m.yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Path: m.path, Usage: &m.usage,
		}}}, nil)
	}
}

// why returns the ending of the stream after a choice has failed.
func (m *merge) why(choice int, err error) error {
	if cause := stream.Cause(m.ctx); cause != nil {
		return cause
	}
	if m.n > m.each { // there are several prompts
		return OfPrompt(err, choice/m.each)
	}
	return err
}

// pass converts a message of a choice to a message of the stream and yields it. It returns false
// when the reader has left.
func (m *merge) pass(index int, out *chatv1.GenerateResponse) bool {
	choice := uint32(index)
	switch message := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		m.waiting--
		m.starts(message.Started, index%m.each == 0)
		return m.waiting > 0 || m.yieldStarted()
	case *chatv1.GenerateResponse_Delta:
		message.Delta.Choice = choice
	case *chatv1.GenerateResponse_Restarted:
		message.Restarted.Choice = choice
	case *chatv1.GenerateResponse_End:
		out = m.ends(choice, message.End)
	}
	// Started waits until all choices have started, so that the refusal of one choice refuses the
	// whole request. It does not wait longer than until the first item of a choice, because other
	// choices may be waiting for that choice's place.
	return m.yieldStarted() && m.yield(out, nil)
}

// ends records the end of a choice, and returns the message for it.
func (m *merge) ends(choice uint32, end *llmv1.End) *chatv1.GenerateResponse {
	m.path = end.GetPath()
	m.usage.CompletionTokens += end.GetUsage().GetCompletionTokens()
	m.usage.Estimated = m.usage.GetEstimated() || end.GetUsage().GetEstimated()
	if usage := end.GetUsage(); usage != nil && usage.ReasoningTokens != nil {
		m.usage.ReasoningTokens = new(m.usage.GetReasoningTokens() + *usage.ReasoningTokens)
	}
	if int(choice)%m.each == 0 {
		m.usage.PromptTokens += end.GetUsage().GetPromptTokens()
		if usage := end.GetUsage(); usage != nil && usage.CachedTokens != nil {
			m.usage.CachedTokens = new(m.usage.GetCachedTokens() + *usage.CachedTokens)
		}
	}
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_ChoiceEnd{ChoiceEnd: &chatv1.ChoiceEnd{
		Choice: choice, Finish: end.GetFinish(), MatchedStop: end.GetMatchedStop(), MatchedToken: end.MatchedToken, Usage: end.GetUsage(), Tokens: end.GetTokens(),
	}}}
}

// starts records that a choice has started.
func (m *merge) starts(s *llmv1.Started, first bool) {
	m.started.StreamId, m.started.Model, m.started.Worker = stream.ID(m.ctx), s.GetModel(), s.GetWorker()
	m.started.Estimated = m.started.GetEstimated() || s.GetEstimated()
	m.started.QueuedBehind = max(m.started.QueuedBehind, s.GetQueuedBehind())
	if first {
		m.started.PromptTokens += s.GetPromptTokens()
	}
}

// yieldStarted yields Started, once.
func (m *merge) yieldStarted() bool {
	if m.startedSent {
		return true
	}
	m.startedSent = true
	return m.yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: m.started}}, nil)
}
