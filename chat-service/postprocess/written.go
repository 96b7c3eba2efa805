package postprocess

import (
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// written takes a piece of an answer that the server has parsed into text, reasoning and tool calls. Only
// stop strings are left to look for, in the text alone. The server does not report the usage of an answer
// that they end, so its counts may be estimates.
func (p *Processor) written(tokens uint32, w *workerv1.Written) (out, end *chatv1.GenerateResponse) {
	p.usage.CompletionTokens += tokens
	p.delta.tokens += tokens
	if p.usage.Estimated = w.PromptTokens == nil; !p.usage.GetEstimated() {
		p.usage.PromptTokens = w.GetPromptTokens()
	}
	p.delta.reasoning += w.GetReasoning()
	if w.GetText() != "" {
		p.show(w.GetText())
	}
	for _, call := range w.GetCalls() {
		if p.finish != nil {
			break
		}
		p.piece(call)
	}
	if p.finish != nil {
		return p.over()
	}
	return p.take(), nil
}

// piece takes a piece of a tool call. A call ends the text before it, which may have ended like a stop
// string.
func (p *Processor) piece(call *workerv1.CallPiece) {
	if call.GetName() == "" {
		p.delta.arguments(call.GetIndex(), call.GetArguments())
		return
	}
	if p.opts.OneCall && p.called > 0 {
		p.finish = &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_TOOL_CALLS}
		return
	}
	p.release()
	p.called++
	p.delta.begin(call.GetIndex(), call.GetId(), call.GetName())
	p.delta.arguments(call.GetIndex(), call.GetArguments())
}
