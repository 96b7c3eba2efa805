// Package postprocess turns the token ids of one answer into the deltas that a client reads.
//
// A Processor is a state machine without goroutines, clocks or I/O. The caller feeds it the
// worker's messages in order and sends the results. Each token passes the stages as plain function
// calls:
//
//	detokenise ─> stop strings ─> reasoning ─> tool calls ─> delta
//
// A stage holds text back while later tokens may change its meaning: a partial character, or the
// beginning of a stop string or of a tag. All text that one message makes final leaves as one
// delta. With only the first stage, a token costs one allocation, for its delta, or none with Reuse.
package postprocess

import (
	"slices"

	"github.com/whence-dev/whence/chat-service/reasoning"
	"github.com/whence-dev/whence/chat-service/toolcall"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// Options configure how the tokens of an answer become text.
type Options struct {
	Tokenizer *tokenizer.Tokenizer // nil if all tokens come as Written pieces
	// KeepSpecial puts all special tokens into the text. Otherwise only the tokens in Shown are.
	KeepSpecial bool
	Shown       []uint32

	// Stop lists the stop strings. IncludeStop puts the matching stop string into the text.
	Stop        []string
	IncludeStop bool
	// MinTokens is the number of tokens before which stop strings are ignored.
	MinTokens uint32

	// Form separates reasoning in this form from text; nil leaves it in the text.
	Form      *reasoning.Form
	Reasoning reasoning.Options
	// CountReasoning reports the number of reasoning tokens in the usage.
	CountReasoning bool

	// Calls enables the parsing of tool calls; nil leaves calls in the text.
	Calls *Calls

	// TellIDs puts the token ids into each delta.
	TellIDs bool

	// OneCall ends an answer of Written pieces before its second call.
	OneCall bool

	// Reuse makes a delta valid only until the next one, or until Sent.
	Reuse bool
}

// Calls configures the parsing of tool calls.
type Calls struct {
	Format *toolcall.Format
	// Known reports whether a tool exists, and Takes returns the type of a parameter, or of a member of
	// it; toolcall.Item stands for the items of a list.
	Known func(tool string) bool
	Takes func(tool string, path ...string) toolcall.Value
	// Hidden lists the texts of special tokens that only the parser needs.
	Hidden []string
	// Single ends the answer when the arguments of its first call are complete.
	Single bool
	// SeparateReasoning keeps reasoning that the parser finds out of the text.
	SeparateReasoning bool
}

// A Processor turns the tokens of one answer into deltas. It is not safe for concurrent use.
type Processor struct {
	// Static.
	opts   Options
	singly bool // tokens pass the stages one at a time, because any of them may end the answer

	// The stages.
	decoder  *tokenizer.Decoder
	speller  speller
	stop     *StopMatcher        // nil without stop strings
	aligner  aligner             // aligns log-probabilities with text, if there are stop strings
	reason   *reasoning.Splitter // nil if reasoning stays in the text
	calls    *toolcall.Parser    // nil if calls stay in the text
	scout    *toolcall.Parser    // looks for calls in the reasoning; nil outside of it
	called   int                 // number of calls so far
	special  uint32              // the last token, if it is special and unknown; otherwise 0
	unread   []string            // special tokens that the parser of calls does not know
	id       string              // the id that the model gives to the next call, or ""
	replayed bool                // the current tokens were delivered before
	scouting bool                // the events are the scout's, and no call has begun

	// The answer so far.
	usage   llmv1.Usage
	thought uint32     // reasoning tokens
	unshown uint32     // tokens since the decoder last released text
	finish  *llmv1.End // the end of the answer, once a stage has ended it
	closed  bool       // the only call is complete, and the rest of the text is dropped
	delta   delta
}

// New returns a Processor at the beginning of an answer.
func New(opts Options) *Processor {
	p := &Processor{opts: opts}
	if opts.Tokenizer != nil {
		p.decoder = opts.Tokenizer.NewDecoder(!opts.KeepSpecial, opts.Shown...)
	}
	p.speller = speller{tokenizer: opts.Tokenizer, keep: opts.KeepSpecial, shown: opts.Shown}
	if len(opts.Stop) > 0 {
		p.stop = NewStopMatcher(opts.Stop)
	}
	if opts.Form != nil {
		p.reason = reasoning.New(opts.Form, opts.Reasoning, p.think)
	}
	p.calls = p.parser()
	p.delta.reuse = opts.Reuse
	p.singly = p.reason != nil || p.stops()
	return p
}

// stops reports whether a stage may end the answer.
func (p *Processor) stops() bool { return p.stop != nil || p.opts.Calls != nil && p.opts.Calls.Single }

// Started sets the number of prompt tokens that the worker reported.
func (p *Processor) Started(promptTokens uint32) { p.usage.PromptTokens = promptTokens }

// Whole returns the ending of an answer without tokens of its own.
func (p *Processor) Whole() *chatv1.GenerateResponse {
	return endMessage(&llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_LENGTH, Usage: &p.usage})
}

// Generated returns the number of tokens of the answer so far.
func (p *Processor) Generated() int { return int(p.usage.GetCompletionTokens()) }

// Sent reports that the last delta has been sent. With Reuse, its memory then serves other answers:
// an answer that waits for its next token holds no delta.
func (p *Processor) Sent() { p.delta.recycle() }

// Replay takes tokens that another chat-service has delivered. Its deltas repeat their text but do
// not count the tokens.
func (p *Processor) Replay(ids []uint32) (out, end *chatv1.GenerateResponse) {
	p.replayed = true
	defer func() { p.replayed = false }()
	p.speller.skip(ids)
	return p.Tokens(&workerv1.Tokens{Ids: ids})
}

// Tokens takes tokens from the worker. It returns a delta if some text is final, and an end if the
// answer is over, in which case the caller must stop the worker. Either may be nil.
func (p *Processor) Tokens(t *workerv1.Tokens) (out, end *chatv1.GenerateResponse) {
	if t.CachedTokens != nil {
		p.usage.CachedTokens, p.delta.cached = t.CachedTokens, t.CachedTokens
	}
	if p.decoder == nil {
		return p.written(uint32(len(t.GetIds())), t.GetWritten())
	}
	ids, logprobs := t.GetIds(), p.speller.spell(t)
	if !p.singly {
		p.push(ids, logprobs)
		return p.take(), nil
	}
	for i := range ids {
		var one []*chatv1.TokenLogprob
		if logprobs != nil {
			one = logprobs[i : i+1]
		}
		if p.push(ids[i:i+1], one); p.finish != nil {
			return p.over()
		}
	}
	return p.take(), nil
}

// End takes the worker's ending. It returns a delta with the held-back text, or nil, and the ending
// of the answer.
func (p *Processor) End(end *llmv1.End) (out, last *chatv1.GenerateResponse) {
	if p.decoder != nil {
		if text := p.decoder.Flush(); text != "" {
			if p.show(text); p.finish != nil {
				return p.over()
			}
		}
	}
	p.release()
	p.flush()
	if p.parses() {
		p.adjust(end)
	}
	if len(p.delta.logprobs) > 0 {
		return p.delta.message(), endMessage(end)
	}
	out = p.take()
	end.Tokens += p.delta.counted() // tokens that are in no delta
	return out, endMessage(end)
}

// Abort returns the held-back text of a failed answer, or nil. A partial character is dropped.
func (p *Processor) Abort() *chatv1.GenerateResponse {
	p.release()
	p.flush()
	p.delta.remainder = p.opts.TellIDs
	return p.take()
}

// push passes tokens through the stages.
func (p *Processor) push(ids []uint32, logprobs []*chatv1.TokenLogprob) {
	n := uint32(len(ids))
	p.usage.CompletionTokens += n
	p.unshown += n
	switch {
	case logprobs != nil && p.opts.TellIDs: // with log-probabilities, their delta counts the tokens and has their ids
		p.delta.byLogprobs = true
	default:
		if !p.replayed {
			p.delta.tokens += n
		}
		if p.opts.TellIDs {
			p.delta.ids = append(p.delta.ids, ids...)
		}
	}
	if logprobs != nil {
		p.aligner.add(logprobs)
	}
	if p.opts.Calls != nil {
		p.notice(ids)
	}
	if text := p.decoder.Next(ids...); text != "" {
		p.show(text)
	}
}

// notice notes special tokens that neither the text nor the parsers have. The token that ends the
// answer is not one: nothing follows it.
func (p *Processor) notice(ids []uint32) {
	for _, id := range ids {
		if p.special != 0 {
			if text := p.opts.Tokenizer.Decode([]uint32{p.special}, false); len(p.unread) < maxUnread && !slices.Contains(p.unread, text) {
				p.unread = append(p.unread, text)
			}
			p.special = 0
		}
		if p.opts.Tokenizer.IsSpecial(id) && !p.opts.KeepSpecial && !slices.Contains(p.opts.Shown, id) {
			p.special = id
		}
	}
}

// maxUnread bounds the special tokens that Unread returns.
const maxUnread = 8

// Unread returns texts of the answer to a request with tools that look like calls and are none, and
// special tokens that no parser knows, each once.
func (p *Processor) Unread() []string {
	if p.calls == nil {
		return p.unread
	}
	return slices.Concat(p.calls.Unread(), p.unread)
}

// show passes text that the decoder has released to the next stages.
func (p *Processor) show(text string) {
	if p.stop == nil {
		p.delta.logprobs = p.aligner.take(p.delta.logprobs)
		p.separate(text)
		return
	}
	p.aligner.place(text)
	if p.usage.CompletionTokens >= p.opts.MinTokens {
		certain, matched, done := p.stop.Next(text)
		if text = certain; done {
			p.finish = &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_STOP, MatchedStop: matched}
			if p.opts.IncludeStop {
				text += matched
			}
		}
	}
	if text != "" {
		p.delta.logprobs = p.aligner.shown(p.delta.logprobs, text)
		p.separate(text)
	}
}

// release passes on text that is no longer a possible stop string.
func (p *Processor) release() {
	if p.stop == nil {
		p.delta.logprobs = p.aligner.take(p.delta.logprobs)
		return
	}
	p.aligner.place("")
	p.delta.logprobs = p.aligner.rest(p.delta.logprobs)
	if rest := p.stop.Flush(); rest != "" {
		p.separate(rest)
	}
}

// separate splits text into reasoning and text.
func (p *Processor) separate(text string) {
	tokens := p.unshown
	p.unshown = 0
	if p.reason == nil {
		p.parse(text)
		return
	}
	thinking := p.reason.Thinking()
	text = p.reason.Next(text)
	if thinking || p.reason.Thinking() {
		p.thought += tokens // the tokens of the tags count as reasoning
	}
	p.parse(text)
	if p.reason.Done() {
		p.reason, p.singly = nil, p.stops()
	}
}

// think takes reasoning. It reports whether a tool call has begun in it, which ends the reasoning.
func (p *Processor) think(thought string, last bool) (called bool) {
	if p.opts.Calls == nil {
		p.delta.reasoning += thought
		return false
	}
	if p.scout == nil {
		p.scout = p.parser()
	}
	p.scouting = true
	p.scout.Next(thought)
	switch called = !p.scouting; {
	case called:
		p.calls, p.scout = p.scout, nil
	case last:
		p.scout.End()
		p.scout = nil
	}
	p.scouting = false
	return called
}

// parser returns a new parser of tool calls, or nil if calls stay in the text.
func (p *Processor) parser() *toolcall.Parser {
	c := p.opts.Calls
	if c == nil {
		return nil
	}
	return toolcall.New(c.Format, c.Known, c.Takes, c.Hidden, p.event)
}

// parse parses tool calls in text.
func (p *Processor) parse(text string) {
	switch {
	case p.calls == nil:
		p.say(text)
	case text != "":
		p.calls.Next(text)
	}
}

// say takes the text of the answer without tool calls.
func (p *Processor) say(text string) {
	if p.reason == nil {
		p.delta.text += text
		return
	}
	p.add(p.reason.Text(text))
}

func (p *Processor) add(thought, text string) {
	p.delta.reasoning += thought
	p.delta.text += text
}

// event handles an event of the tool call parser.
func (p *Processor) event(e toolcall.Event) {
	if p.closed {
		return
	}
	switch e.Kind {
	case toolcall.Text:
		if p.scouting {
			p.delta.reasoning += e.Text
		} else {
			p.say(e.Text)
		}
	case toolcall.Reasoning:
		if p.opts.Calls.SeparateReasoning {
			p.delta.reasoning += e.Text
		} else {
			p.delta.text += e.Text
		}
	case toolcall.ID:
		p.id = e.Text
	case toolcall.Begin:
		if p.reason != nil && !p.scouting {
			p.add(p.reason.EndText())
		}
		p.scouting = false
		if p.id == "" {
			p.id = p.opts.Calls.Format.NewID()
		}
		p.delta.begin(uint32(p.called), p.id, e.Text)
		p.called++
		p.id = ""
	case toolcall.Arguments:
		p.delta.arguments(uint32(p.called-1), e.Text)
	case toolcall.Complete:
		if p.opts.Calls.Single {
			p.closed, p.finish = true, &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_TOOL_CALLS}
		}
	}
}

// flush makes the stages after the stop strings release their held-back text.
func (p *Processor) flush() {
	if p.reason != nil {
		p.parse(p.reason.End())
	}
	if p.calls != nil {
		p.calls.End()
	}
	if p.reason != nil {
		p.add(p.reason.EndText())
	}
}

// over ends the answer after a stage has ended it.
func (p *Processor) over() (out, end *chatv1.GenerateResponse) {
	last := p.finish
	p.flush()
	last.Usage = &p.usage
	if p.parses() {
		p.adjust(last)
	}
	out = p.take()
	last.Tokens = p.delta.counted()
	if p.delta.byLogprobs {
		last.Tokens += p.aligner.held()
	}
	return out, endMessage(last)
}

// parses reports whether the answer is parsed for reasoning or tool calls.
func (p *Processor) parses() bool {
	reasons := p.opts.Form != nil && (p.opts.Form != reasoning.Guess || p.thought > 0)
	return reasons || p.calls != nil
}

// adjust adds the findings of the stages to an ending.
func (p *Processor) adjust(end *llmv1.End) {
	if p.called > 0 && end.GetFinish() == llmv1.Finish_FINISH_STOP {
		end.Finish = llmv1.Finish_FINISH_TOOL_CALLS
	}
	if end.GetUsage() == nil {
		return
	}
	if end.Usage.ReasoningTokens = nil; p.opts.CountReasoning {
		end.Usage.ReasoningTokens = new(p.thought)
	}
}

// take returns the current delta if it has content. Otherwise its tokens are counted in the next
// delta.
func (p *Processor) take() *chatv1.GenerateResponse {
	if d := &p.delta; d.text == "" && d.reasoning == "" && len(d.calls) == 0 {
		return nil
	}
	return p.delta.message()
}
