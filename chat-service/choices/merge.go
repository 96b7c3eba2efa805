package choices

import (
	"context"
	"sync"
	"sync/atomic"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/bigstack"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A merge makes one stream of several choices. The goroutine that carries a message of a choice carries
// it to the reader. The choice that ends last ends the stream.
type merge struct {
	// Static.
	ctx     context.Context //nolint:containedctx // of the stream, which the merge is
	n, each int             // the number of choices, and of choices per prompt
	running atomic.Int64    // choices that have not ended

	baton baton // held while the reader has a message; guards the following fields
	to    stream.Relay[*chatv1.GenerateResponse]

	started     *llmv1.Started // merged from all choices that have started
	waiting     int            // choices that have not started
	startedSent bool           // Started was passed on
	usage       llmv1.Usage
	path        []string

	mu       sync.Mutex // guards the following fields
	controls []*stream.Control
	cause    error           // why the choices were stopped; nil while they run
	failure  *stream.Failure // a panic or an exit of a choice or of the reader
}

var errPanicked = streamerr.New(streamerr.Internal, "another choice, or the reader, panicked")

func newMerge(ctx context.Context, n, each int, to Reader) *merge {
	m := &merge{ctx: ctx, n: n, each: each, to: stream.RelayTo(to), waiting: n, started: &llmv1.Started{}}
	m.running.Store(int64(n))
	return m
}

// begin starts a choice of the stream of ctx. A stop of the whole stream stops the choice with the
// same cause.
func (m *merge) begin(ctx context.Context, choice int, source Source) {
	own, ctl := stream.WithControl(ctx, rpc.DefaultGrace)
	m.mu.Lock()
	m.controls = append(m.controls, ctl)
	cause := m.cause
	m.mu.Unlock()
	if cause != nil { // an earlier choice has failed
		ctl.Stop(cause)
	}
	p := &part{merge: m, choice: choice, control: ctl, ready: make(signal, 1)}
	ctl.OnBreak(p.End)
	bigstack.Go(func() { stream.Start(own, source, choice, p) })
}

// A part is the Reader of one choice.
type part struct {
	merge   *merge
	choice  int
	control *stream.Control
	ready   signal // on which the choice waits for the baton
	over    bool   // the choice has its End, or the stream takes no more messages
	ended   atomic.Bool
}

// Item implements stream.Reader: it passes a message of a choice to the reader of the stream.
func (p *part) Item(on *stream.Loop, out *chatv1.GenerateResponse) (more bool) {
	if p.over {
		return false
	}
	m := p.merge
	m.baton.take(p.ready, on)
	p.over = true // also if the reader panics
	returned := false
	defer func() {
		if !returned { // the reader must not get other choices' messages
			m.stop(errPanicked)
		}
		m.baton.give()
	}()
	more = !m.stopped() && m.deliver(p.choice, on, out)
	p.over = !more || out.GetEnd() != nil
	returned = true
	return more
}

// End implements stream.Reader.
func (p *part) End(err error) {
	if p.ended.Swap(true) { // a choice that breaks may end twice
		return
	}
	m := p.merge
	failure := stream.FailureOf(err)
	switch {
	case failure != nil:
		m.crashed(failure)
	case p.over: // err comes from the stop of the choices
	case err != nil:
		m.stop(m.why(p.choice, err))
	default:
		m.stop(streamerr.New(streamerr.Internal, "choice %d ended without an ending; this is a bug in chat-service", p.choice))
	}
	p.control.Release()
	if m.running.Add(-1) == 0 {
		m.end()
	}
}

// deliver passes a message of a choice to the reader, and stops all choices if the reader has left.
func (m *merge) deliver(choice int, on *stream.Loop, out *chatv1.GenerateResponse) bool {
	if m.pass(choice, on, out) {
		return true
	}
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
	first := m.cause == nil
	if first {
		m.cause = cause
	}
	controls := m.controls // begin stops a choice that it adds later
	m.mu.Unlock()
	if !first {
		return
	}
	for _, ctl := range controls {
		ctl.Stop(cause)
	}
}

func (m *merge) stopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cause != nil
}

// crashed ends the stream after a panic or an exit of a choice or of the reader.
func (m *merge) crashed(failure *stream.Failure) {
	m.mu.Lock()
	if m.failure == nil {
		m.failure = failure
	}
	m.mu.Unlock()
	m.stop(errPanicked)
}

// end ends the stream, after all choices have ended.
func (m *merge) end() {
	m.to.Close(nil, func(error) error {
		switch {
		case m.failure != nil:
			return m.failure
		case m.to.Left(): // a choice may have failed meanwhile
			return stream.Cause(m.ctx)
		case m.cause != nil: // a choice has failed
			return m.cause
		}
		m.to.Pass(nil, &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Path: m.path, Usage: &m.usage,
		}}})
		return nil
	})
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

// pass converts a message of a choice to a message of the stream and passes it on. It returns false
// when the reader has left.
func (m *merge) pass(index int, on *stream.Loop, out *chatv1.GenerateResponse) bool {
	choice := uint32(index)
	switch message := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		m.waiting--
		m.starts(message.Started, index%m.each == 0)
		return m.waiting > 0 || m.passStarted(on)
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
	return m.passStarted(on) && m.to.Pass(on, out)
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

// passStarted passes on Started, once.
func (m *merge) passStarted(on *stream.Loop) bool {
	if m.startedSent {
		return true
	}
	m.startedSent = true
	return m.to.Pass(on, &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: m.started}})
}
