package chat

import (
	"context"
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/detoken"
	"github.com/whence-dev/whence/chat-service/reasoning"
	"github.com/whence-dev/whence/chat-service/toolcall"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/stream"
)

// answer parts what the model writes into what it thinks, what it says, and what it calls.
func answer(m *Model, next stream.Engine[rendered, *chatv1.GenerateResponse]) stream.Engine[rendered, *chatv1.GenerateResponse] {
	return func(ctx context.Context, r rendered) iter.Seq2[*chatv1.GenerateResponse, error] {
		if !m.reads(r) && !r.thinks {
			return next(ctx, r)
		}
		return func(yield func(*chatv1.GenerateResponse, error) bool) {
			a := newReader(m, r)
			for out, err := range next(ctx, r) {
				if err != nil {
					if a.end(); !a.flush(yield) {
						return
					}
					yield(nil, err)
					return
				}
				if !a.pass(out, yield) {
					return
				}
			}
		}
	}
}

// A reader reads one answer.
type reader struct {
	format *toolcall.Format
	single bool                // the answer ends where its first call is complete
	think  *reasoning.Splitter // nil where nothing is parted
	calls  *toolcall.Parser    // nil where nothing is called
	apart  bool                // reasoning that calls finds is no text
	counts bool                // tokens of reasoning

	usage   streamv1.Usage
	cached  *uint32 // the worker says it in the meantime
	thought uint32  // tokens
	called  int
	done    bool // the answer has ended with its first call

	delta chatv1.Delta // what is to be sent
}

func newReader(m *Model, r rendered) *reader {
	a := &reader{cached: r.cached, format: m.Written.Calls, single: oneCall(r.req), apart: separates(r.req)}
	if r.thinks {
		a.think = reasoning.New(r.opened)
		a.counts = m.Written.Counts && len(r.req.GetStop()) == 0 // which hold text of several tokens back
	}
	if m.reads(r) {
		known := func(name string) bool {
			return slices.ContainsFunc(r.tools, func(t *chatv1.Tool) bool { return t.GetName() == name })
		}
		a.calls = toolcall.New(m.Written.Calls, known, (&parameters{tools: r.tools}).takes, m.Written.hidden, a.event)
	}
	return a
}

// oneCall reports whether a request asks for one call at most. The answer then ends where the arguments of its first call are complete:
// leaving the loop tells the worker to stop, and all that it has generated behind the call is on its way already.
func oneCall(req *chatv1.ChatRequest) bool {
	return req.ParallelToolCalls != nil && !req.GetParallelToolCalls()
}

// pass yields what out makes certain. It reports false when the loop is to be left.
func (a *reader) pass(out *chatv1.GenerateResponse, yield func(*chatv1.GenerateResponse, error) bool) bool {
	switch m := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		a.usage.PromptTokens = m.Started.GetPromptTokens()
	case *chatv1.GenerateResponse_Delta:
		a.usage.CompletionTokens += m.Delta.GetTokens()
		a.delta.Tokens += m.Delta.GetTokens()
		a.delta.Logprobs = append(a.delta.Logprobs, m.Delta.GetLogprobs()...)
		a.take(m.Delta.GetText(), m.Delta.GetTokens())
		if !a.flush(yield) {
			return false
		}
		if a.done {
			a.usage.ReasoningTokens, a.usage.CachedTokens = a.reasoned(), *a.cached
			yield(detoken.End(&streamv1.End{
				Reason: streamv1.Reason_REASON_COMPLETED, Finish: streamv1.Finish_FINISH_TOOL_CALLS, Usage: &a.usage, Tokens: a.delta.GetTokens(),
			}), nil)
		}
		return !a.done
	case *chatv1.GenerateResponse_End:
		if a.end(); len(a.delta.GetLogprobs()) > 0 && !a.send(yield) || !a.flush(yield) {
			return false
		}
		if a.called > 0 && m.End.GetFinish() == streamv1.Finish_FINISH_STOP {
			m.End.Finish = streamv1.Finish_FINISH_TOOL_CALLS
		}
		if m.End.GetUsage() != nil {
			m.End.Usage.ReasoningTokens = a.reasoned()
		}
		m.End.Tokens += a.delta.GetTokens()
	}
	return yield(out, nil)
}

// reasoned is how many tokens were reasoning, if they were counted.
func (a *reader) reasoned() *uint32 {
	if !a.counts {
		return nil
	}
	return proto.Uint32(a.thought)
}

// take takes a piece of the text.
func (a *reader) take(text string, tokens uint32) {
	if a.think != nil {
		thinking := a.think.Thinking()
		var thought string
		thought, text = a.think.Next(text)
		if thinking || a.think.Thinking() {
			a.thought += tokens // the tags' own are some of them
		}
		a.delta.Reasoning += thought
	}
	a.say(text)
}

// end takes what was held back.
func (a *reader) end() {
	if a.think != nil {
		thought, text := a.think.End()
		a.delta.Reasoning += thought
		a.say(text)
	}
	if a.calls != nil {
		a.calls.End()
	}
}

func (a *reader) say(text string) {
	switch {
	case a.calls == nil:
		a.delta.Text += text
	case text != "":
		a.calls.Next(text)
	}
}

// event takes what calls has found.
func (a *reader) event(e toolcall.Event) {
	if a.done {
		return
	}
	switch e.Kind {
	case toolcall.Text:
		a.delta.Text += e.Text
	case toolcall.Reasoning:
		if a.apart {
			a.delta.Reasoning += e.Text
		} else {
			a.delta.Text += e.Text
		}
	case toolcall.Begin:
		a.delta.ToolCalls = append(a.delta.ToolCalls, &chatv1.ToolCallDelta{Index: uint32(a.called), Id: a.format.NewID(), Name: e.Text})
		a.called++
	case toolcall.Arguments:
		index := uint32(a.called - 1)
		if n := len(a.delta.ToolCalls); n > 0 && a.delta.ToolCalls[n-1].GetIndex() == index {
			a.delta.ToolCalls[n-1].Arguments += e.Text
			return
		}
		a.delta.ToolCalls = append(a.delta.ToolCalls, &chatv1.ToolCallDelta{Index: index, Arguments: e.Text})
	case toolcall.Complete:
		a.done = a.single
	}
}

// flush yields what there is to be sent. Tokens without it wait for the next time.
func (a *reader) flush(yield func(*chatv1.GenerateResponse, error) bool) bool {
	d := &a.delta
	if d.GetText() == "" && d.GetReasoning() == "" && len(d.GetToolCalls()) == 0 {
		return true
	}
	return a.send(yield)
}

// send yields what there is.
func (a *reader) send(yield func(*chatv1.GenerateResponse, error) bool) bool {
	d := &a.delta
	out := detoken.Delta(d.GetText(), d.GetTokens(), d.GetLogprobs()...)
	out.GetDelta().Reasoning, out.GetDelta().ToolCalls = d.GetReasoning(), d.GetToolCalls()
	d.Text, d.Tokens, d.Reasoning, d.ToolCalls, d.Logprobs = "", 0, "", nil, nil
	return yield(out, nil)
}
