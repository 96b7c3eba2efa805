package choices

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A merge makes one stream of several choices. The stream's goroutine owns it, except the goroutines that begin
// starts.
type merge struct {
	each int           // choices of one prompt
	came chan item     // not buffered: a choice with an item waits for the reader
	left chan struct{} // closed when the reader has left

	controls []*stream.Control
	running  sync.WaitGroup

	started *llmv1.Started // of all that have started so far
	waiting int            // choices that have not
	open    int            // choices that have not ended
	told    bool           // Started was yielded
	usage   llmv1.Usage
	path    []string
	cause   error // why the choices that still run are stopped
	gone    bool  // the choices have been stopped and have ended
}

// An item is one message of a choice, or the error with which the choice failed.
type item struct {
	choice   int
	out      *chatv1.GenerateResponse
	err      error
	panicked any // the value of a panic in the choice, which the stream's goroutine repeats
}

func newMerge(n, each int) *merge {
	return &merge{
		each: each, came: make(chan item), left: make(chan struct{}), waiting: n, open: n, started: &llmv1.Started{},
		cause: streamerr.New(streamerr.Internal, "the reader panicked"), // unless run says otherwise
	}
}

// begin runs a choice of the stream of ctx. A stop of the whole stream reaches the choice with its cause.
func (m *merge) begin(ctx context.Context, choice int, source Source) {
	own, ctl := stream.WithControl(ctx, rpc.DefaultGrace)
	undo := stream.AfterStop(ctx, ctl.Stop)
	m.controls = append(m.controls, ctl)
	m.running.Go(func() {
		defer ctl.Release()
		defer undo()
		defer func() {
			if v := recover(); v != nil {
				m.put(item{choice: choice, panicked: fmt.Sprintf("%v\n%s", v, debug.Stack())})
			}
		}()
		ended := false
		for out, err := range source(own, choice) {
			ended = ended || err != nil || out.GetEnd() != nil
			if !m.put(item{choice: choice, out: out, err: err}) {
				return
			}
		}
		if !ended { // run would wait for the ending for ever
			m.put(item{choice: choice, err: streamerr.New(streamerr.Internal, "choice %d stopped without an ending; this is a defect of chat-service", choice)})
		}
	})
}

// put hands an item to the reader, and reports false if the reader has left.
func (m *merge) put(it item) bool {
	select {
	case m.came <- it:
		return true
	case <-m.left:
		return false
	}
}

// leave stops the choices that still run, and waits until all have ended.
func (m *merge) leave() {
	if m.gone {
		return
	}
	m.gone = true
	if m.open > 0 {
		for _, ctl := range m.controls {
			ctl.Stop(m.cause)
		}
	}
	close(m.left)
	m.running.Wait()
}

// run yields the items of all choices until every choice has ended, or one has failed.
func (m *merge) run(ctx context.Context, yield func(*chatv1.GenerateResponse, error) bool) {
	for m.open > 0 {
		it := <-m.came
		switch {
		case it.panicked != nil:
			m.cause = streamerr.New(streamerr.Internal, "another choice panicked")
			panic(it.panicked)
		case it.err != nil:
			m.cause = m.why(ctx, it)
			m.leave() // before the reader learns of the failure
			yield(nil, m.cause)
			return
		case !m.pass(ctx, it, yield):
			m.cause = streamerr.New(streamerr.Completed, "the reader has what it needs")
			if cause := stream.Cause(ctx); cause != nil {
				m.cause = cause // the stop is why the reader has left
			}
			return
		}
	}
	m.leave()
	yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{
		Reason: streamv1.Reason_REASON_COMPLETED, Path: m.path, Usage: &m.usage,
	}}}, nil)
}

// why returns the ending of the stream after a choice has failed.
func (m *merge) why(ctx context.Context, it item) error {
	if cause := stream.Cause(ctx); cause != nil {
		return cause
	}
	if len(m.controls) > m.each { // there are several prompts
		return OfPrompt(it.err, it.choice/m.each)
	}
	return it.err
}

// pass yields an item of a choice as one of the whole. It reports false when the reader has left.
func (m *merge) pass(ctx context.Context, it item, yield func(*chatv1.GenerateResponse, error) bool) bool {
	choice := uint32(it.choice)
	switch message := it.out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		m.waiting--
		m.starts(ctx, message.Started, it.choice%m.each == 0)
		return m.waiting > 0 || m.tell(yield)
	case *chatv1.GenerateResponse_Delta:
		message.Delta.Choice = choice
	case *chatv1.GenerateResponse_Restarted:
		message.Restarted.Choice = choice
	case *chatv1.GenerateResponse_End:
		m.open--
		end := message.End
		m.path = end.GetPath()
		m.usage.CompletionTokens += end.GetUsage().GetCompletionTokens()
		if usage := end.GetUsage(); usage != nil && usage.ReasoningTokens != nil {
			m.usage.ReasoningTokens = new(m.usage.GetReasoningTokens() + *usage.ReasoningTokens)
		}
		if it.choice%m.each == 0 {
			m.usage.PromptTokens += end.GetUsage().GetPromptTokens()
			m.usage.CachedTokens += end.GetUsage().GetCachedTokens()
		}
		it.out = &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_ChoiceEnd{ChoiceEnd: &chatv1.ChoiceEnd{
			Choice: choice, Finish: end.GetFinish(), MatchedStop: end.GetMatchedStop(), MatchedToken: end.MatchedToken, Usage: end.GetUsage(), Tokens: end.GetTokens(),
		}}}
	}
	// Started waits for all choices, so that a request of which one is refused is refused as a whole; but not longer than it
	// takes until one of them speaks, because others may be waiting for its place.
	return m.tell(yield) && yield(it.out, nil)
}

// starts records that a choice has started.
func (m *merge) starts(ctx context.Context, s *llmv1.Started, first bool) {
	m.started.StreamId, m.started.Model = stream.ID(ctx), s.GetModel()
	m.started.QueuedBehind = max(m.started.QueuedBehind, s.GetQueuedBehind())
	if first {
		m.started.PromptTokens += s.GetPromptTokens()
	}
}

// tell yields Started, once.
func (m *merge) tell(yield func(*chatv1.GenerateResponse, error) bool) bool {
	if m.told {
		return true
	}
	m.told = true
	return yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: m.started}}, nil)
}
