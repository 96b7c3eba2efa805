package chat

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/postprocess"
	"github.com/whence-dev/whence/chat-service/toolcall"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// replayStep is the number of tokens per step when an answer from another chat-service is replayed.
// A long answer must neither delay a stop nor become one delta.
const replayStep = 256

// answer requests one answer to the prompt from the worker, and passes it on as deltas. reuse allows a
// delta to be reused once the reader has taken it.
func (p *tokenPrompt) answer(ctx context.Context, worker TokenEngine, req *workerv1.TokenRequest, reuse bool, to stream.Reader[*chatv1.GenerateResponse]) {
	opts := p.postprocess()
	opts.Reuse = reuse
	a := &answerRun{tokenPrompt: p, Relay: stream.RelayTo(to), post: postprocess.New(opts), answered: req.GetPrompt()[len(p.ids):]}
	if len(a.answered) >= p.room && !a.awaitsScores() {
		worker = complete(len(p.ids), p.room)
	}
	ctx = ledger.WithPrompt(ctx, &p.record)
	a.ctx = prefetch.With(prefetch.WithTouched(ctx, a.post), prefetch.Of(a))
	worker(a.ctx, req, a)
}

// An answerRun is the Reader of one running answer.
type answerRun struct {
	stream.Relay[*chatv1.GenerateResponse]
	*tokenPrompt

	ctx      context.Context //nolint:containedctx // of the stream
	post     *postprocess.Processor
	on       *stream.Loop // carries the message in hand; may be nil
	answered []uint32     // token ids that another chat-service has delivered
	begun    bool         // the worker has started the stream
	echoed   bool         // the prompt was sent, if the answer begins with it
}

// Item implements stream.Reader.
func (a *answerRun) Item(on *stream.Loop, out *workerv1.GenerateResponse) (more bool) {
	a.on = on
	more = a.carry(out)
	a.on = nil
	return more
}

// End implements stream.Reader. What the processor still holds comes before an error.
func (a *answerRun) End(err error) {
	a.on = nil
	a.Close(err, func(err error) error {
		if err != nil && stream.FailureOf(err) == nil {
			a.send(a.post.Abort(), nil)
		}
		return err
	})
}

// carry takes a message of the worker through the stages to the reader. It returns false when the
// answer is over, or its reader has left.
func (a *answerRun) carry(out *workerv1.GenerateResponse) bool {
	if !a.begun && (out.GetTokens() != nil || out.GetEnd() != nil) {
		return a.Finish(streamerr.New(streamerr.Internal, "the worker has answered before it has started the stream"))
	}
	if a.begun && !a.echoed && !a.sendPrompt(out.GetPrompt()) {
		return false
	}
	if a.begun && a.room == 0 {
		return a.over(nil, a.post.Whole())
	}
	switch m := out.GetMessage().(type) {
	case *workerv1.GenerateResponse_Started:
		if a.begun {
			return true // a worker that repeats it
		}
		a.begun = true
		return a.begin(m.Started)
	case *workerv1.GenerateResponse_Tokens:
		delta, end := a.post.Tokens(m.Tokens)
		if end == nil {
			if delta != nil && a.post.Generated() >= a.room {
				delta.GetDelta().Last = true
			}
			return a.send(delta, nil)
		}
		a.tellUnread()
		return a.over(delta, end)
	case *workerv1.GenerateResponse_End:
		delta, end := a.post.End(m.End)
		a.tellUnread()
		return a.send(delta, end)
	default:
		return true // a message of a newer version
	}
}

// over ends the answer before the worker has ended it. If the worker was told to stop, no hop may report the
// answer as complete.
func (a *answerRun) over(delta, end *chatv1.GenerateResponse) bool {
	cause := stream.Cause(a.ctx)
	if cause == nil {
		return a.send(delta, end)
	}
	return a.send(delta, nil) && a.Finish(cause)
}

// tellUnread records what looks like a call in the text of an answer that might have calls.
func (a *answerRun) tellUnread() {
	if len(a.tools) == 0 {
		return
	}
	for _, text := range a.post.Unread() {
		ledger.Of(a.ctx).Unread(text, toolcall.Label(text))
	}
}

// adapter returns the name of a request's model if it is an adapter of m, otherwise "".
func (m *Model) adapter(name string) string {
	if slices.Contains(m.Adapters, name) {
		return name
	}
	return ""
}

// begin passes on Started, the text of the prompt if requested, and the part that another chat-service
// has delivered.
func (a *answerRun) begin(started *llmv1.Started) bool {
	started.Model = cmp.Or(a.model.adapter(a.req.GetModel()), started.GetModel())
	if !a.send(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: started}}, nil) {
		return false
	}
	a.post.Started(started.GetPromptTokens())
	if !a.awaitsScores() && !a.sendPrompt(nil) {
		return false
	}
	for ids := range slices.Chunk(a.answered, replayStep) {
		if !a.send(a.post.Replay(ids)) {
			return false
		}
	}
	return true
}

// awaitsScores reports whether the prompt is sent only with the log-probabilities of its tokens. A part
// that another chat-service has delivered follows the prompt, which it has delivered, too.
func (a *answerRun) awaitsScores() bool { return a.scored && len(a.answered) == 0 }

// sendPrompt passes on the prompt, if the answer begins with it, with the log-probabilities of its tokens if
// they are known.
func (a *answerRun) sendPrompt(known *workerv1.PromptLogprobs) bool {
	a.echoed = true
	if a.echo == "" {
		return true
	}
	if len(known.GetLogprobs()) != len(a.ids)-1 {
		return a.send(postprocess.Delta(a.echo), nil)
	}
	for delta := range a.post.Echo(a.ids, known) {
		if !a.send(delta, nil) {
			return false
		}
	}
	return true
}

// send passes on a delta and an end, either of which may be nil. It returns false after an end, or if
// the reader has left.
func (a *answerRun) send(delta, end *chatv1.GenerateResponse) bool {
	if delta != nil {
		if end != nil {
			delta.GetDelta().Last = true
		}
		more := a.Pass(a.on, delta)
		a.post.Sent()
		if !more {
			return false
		}
	}
	if end != nil {
		a.Pass(a.on, end)
	}
	return end == nil
}

// ended passes on Started and End for a choice that another chat-service has completed.
func (p *tokenPrompt) ended(ctx context.Context, id string, end *chatv1.ChoiceEnd, to stream.Reader[*chatv1.GenerateResponse]) {
	pass(ctx, to, &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{
		StreamId: id, Model: cmp.Or(p.model.adapter(p.req.GetModel()), p.model.Name), PromptTokens: end.GetUsage().GetPromptTokens(),
	}}}, &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{
		Reason: streamv1.Reason_REASON_COMPLETED, Finish: end.GetFinish(), MatchedStop: end.GetMatchedStop(), MatchedToken: end.MatchedToken, Usage: end.GetUsage(),
	}}})
}

// pass passes items to a reader, and ends the stream.
func pass[Item any](ctx context.Context, to stream.Reader[Item], items ...Item) {
	var e stream.Entry[Item]
	e.Init(ctx, to)
	e.Run(func() error {
		for _, item := range items {
			if !e.Item(nil, item) {
				return stream.Cause(ctx)
			}
		}
		return nil
	})
}

// request returns the worker's request for one choice. Its prompt includes the tokens answered
// before.
func (p *tokenPrompt) request(id string, choice int, answered []uint32) *workerv1.TokenRequest {
	sampling := p.sampling
	if choice > 0 && sampling != nil && sampling.Seed != nil { // as if each prompt were sent on its own
		sampling = proto.CloneOf(sampling)
		*sampling.Seed += uint64(choice)
	}
	ids := p.ids
	if len(answered) > 0 {
		ids = slices.Concat(ids, answered)
	}
	return &workerv1.TokenRequest{
		StreamId: id, Model: p.model.Name, Prompt: ids, Generated: uint32(len(answered)),
		Sampling: sampling, Adapter: p.model.adapter(p.req.GetModel()), Claim: p.claim(id), Session: p.req.GetSession(),
		Images: p.images, Conversation: p.conversation, BeforeImages: p.beforeImages(),
	}
}

// postprocess returns the options for turning the answer's tokens into deltas.
func (p *tokenPrompt) postprocess() postprocess.Options {
	m, req := p.model, p.req
	opts := postprocess.Options{
		Tokenizer: m.Tokenizer, KeepSpecial: req.GetKeepSpecial(), Stop: req.GetStop(), IncludeStop: req.GetIncludeStop(),
		MinTokens: req.GetSampling().GetMinTokens(), TellIDs: req.GetTellIds(),
	}
	if m.TextOnly {
		opts.TellIDs = false // the ids are unknown
		opts.OneCall = req.ParallelToolCalls != nil && !req.GetParallelToolCalls()
		return opts
	}
	if p.form != nil {
		opts.Shown = m.Markup.tags
	}
	if p.thinks {
		opts.Form, opts.Reasoning = p.form, m.Markup.reasoning(p.form, m.Tokenizer, p.opened)
		// stop strings hold back the text of several tokens
		opts.CountReasoning = m.Markup.Counts && len(req.GetStop()) == 0
	}
	if p.calls() {
		opts.Shown = slices.Concat(opts.Shown, m.Markup.special)
		opts.Calls = &postprocess.Calls{
			Format: m.Markup.Calls, Known: p.known, Takes: (&parameters{tools: p.tools}).takes, Hidden: m.Markup.hidden,
			Single: req.ParallelToolCalls != nil && !req.GetParallelToolCalls(), SeparateReasoning: separates(req),
		}
	}
	return opts
}

// complete replaces the worker when the answer so far fills the available room and only its End is
// missing. prompt and answered are numbers of tokens.
func complete(prompt, answered int) TokenEngine {
	return func(ctx context.Context, req *workerv1.TokenRequest, to stream.Reader[*workerv1.GenerateResponse]) {
		pass(ctx, to, &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{
			StreamId: req.GetStreamId(), Model: req.GetModel(), PromptTokens: uint32(prompt),
		}}}, &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_LENGTH,
			Usage: &llmv1.Usage{PromptTokens: uint32(prompt), CompletionTokens: uint32(answered)},
		}}})
	}
}

// claim returns the claim of a stream on the worker. The claim of one of several choices names the
// whole stream.
func (p *tokenPrompt) claim(id string) *llmv1.Claim {
	claim, whole := p.req.GetClaim(), p.req.GetStreamId()
	if id == whole {
		return claim
	}
	part := &llmv1.Claim{}
	if claim != nil {
		part = proto.CloneOf(claim)
	}
	part.Whole = whole
	return part
}
