package chat

import (
	"context"
	"iter"

	"github.com/whence-dev/whence/chat-service/detoken"
	"github.com/whence-dev/whence/chat-service/stopstring"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
)

// stopStrings ends the answer where a stop string of the request begins. Leaving the loop below is what tells the worker.
func stopStrings(next stream.Engine[rendered, *chatv1.GenerateResponse]) stream.Engine[rendered, *chatv1.GenerateResponse] {
	return func(ctx context.Context, r rendered) iter.Seq2[*chatv1.GenerateResponse, error] {
		req := r.req
		if len(req.GetStop()) == 0 {
			return next(ctx, r)
		}
		return func(yield func(*chatv1.GenerateResponse, error) bool) {
			s := stopper{cached: r.cached, match: stopstring.New(req.GetStop()), include: req.GetIncludeStop(), minTokens: req.GetSampling().GetMinTokens()}
			for out, err := range next(ctx, r) {
				if err != nil {
					if !s.flush(yield) {
						return
					}
					yield(nil, err)
					return
				}
				if !s.pass(out, yield) {
					return
				}
			}
		}
	}
}

// A stopper looks for stop strings in one stream.
type stopper struct {
	match     *stopstring.Matcher
	include   bool // the stop string is part of the answer
	minTokens uint32
	usage     streamv1.Usage
	cached    *uint32 // the worker says it in the meantime
	held      uint32  // tokens since the last delta
	likely    likely
}

// pass yields what out makes certain. It reports false when the loop is to be left.
func (s *stopper) pass(out *chatv1.GenerateResponse, yield func(*chatv1.GenerateResponse, error) bool) bool {
	switch m := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		s.usage.PromptTokens = m.Started.GetPromptTokens()
	case *chatv1.GenerateResponse_Delta:
		s.usage.CompletionTokens += m.Delta.GetTokens()
		s.held += m.Delta.GetTokens()
		s.likely.read(m.Delta)
		if s.usage.CompletionTokens < s.minTokens {
			return s.show(m.Delta.GetText(), yield) // too early to stop: this text is not looked at
		}
		text, matched, done := s.match.Next(m.Delta.GetText())
		if done && s.include {
			text += matched
		}
		if !s.show(text, yield) {
			return false
		}
		if done {
			s.usage.CachedTokens = *s.cached
			yield(detoken.End(&streamv1.End{
				Reason: streamv1.Reason_REASON_COMPLETED, Finish: streamv1.Finish_FINISH_STOP, MatchedStop: matched, Usage: &s.usage, Tokens: s.held,
			}), nil)
		}
		return !done
	case *chatv1.GenerateResponse_End:
		if !s.flush(yield) {
			return false
		}
		m.End.Tokens += s.held
	}
	return yield(out, nil)
}

// show yields text that is certain, with the tokens that begin in it.
func (s *stopper) show(text string, yield func(*chatv1.GenerateResponse, error) bool) bool {
	if text == "" {
		return true
	}
	tokens := s.held
	s.held = 0
	return yield(detoken.Delta(text, tokens, s.likely.shown(text)...), nil)
}

// flush yields what was held back: there will be no stop string.
func (s *stopper) flush(yield func(*chatv1.GenerateResponse, error) bool) bool {
	rest := s.match.Flush()
	if rest == "" && len(s.likely.waiting) == 0 {
		return true
	}
	tokens := s.held
	s.held = 0
	return yield(detoken.Delta(rest, tokens, s.likely.rest()...), nil)
}

// found notes what the worker says it found in its cache, for endings that are not the worker's.
func found(next stream.Engine[rendered, *workerv1.GenerateResponse]) stream.Engine[rendered, *workerv1.GenerateResponse] {
	return func(ctx context.Context, r rendered) iter.Seq2[*workerv1.GenerateResponse, error] {
		if len(r.req.GetStop()) == 0 && r.tools == nil {
			return next(ctx, r)
		}
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for out, err := range next(ctx, r) {
				if t := out.GetTokens(); t != nil && t.CachedTokens != nil {
					*r.cached = t.GetCachedTokens()
				}
				if !yield(out, err) {
					return
				}
			}
		}
	}
}

// oneByOne splits tokens that were merged, for requests whose answer the pipeline may end: the usage ends with the token that completes
// a stop string or the only call, not with tokens that came with it. It does so as well where tokens of reasoning are counted.
func oneByOne(next stream.Engine[rendered, *workerv1.GenerateResponse]) stream.Engine[rendered, *workerv1.GenerateResponse] {
	return func(ctx context.Context, r rendered) iter.Seq2[*workerv1.GenerateResponse, error] {
		if len(r.req.GetStop()) == 0 && !r.thinks && (r.tools == nil || !oneCall(r.req)) {
			return next(ctx, r)
		}
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for out, err := range next(ctx, r) {
				merged := out.GetTokens()
				for len(merged.GetIds()) > 1 {
					one := split(merged)
					if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: one}}, nil) {
						return
					}
				}
				if !yield(out, err) {
					return
				}
			}
		}
	}
}

// split takes the first of several tokens, with what is told of it.
func split(merged *workerv1.Tokens) *workerv1.Tokens {
	one := &workerv1.Tokens{Ids: merged.Ids[:1]}
	if n := len(merged.Ids); len(merged.Logprobs) == n {
		each := len(merged.TopIds) / n
		one.Logprobs, merged.Logprobs = merged.Logprobs[:1], merged.Logprobs[1:]
		one.TopIds, merged.TopIds = merged.TopIds[:each], merged.TopIds[each:]
		one.TopLogprobs, merged.TopLogprobs = merged.TopLogprobs[:each], merged.TopLogprobs[each:]
	}
	merged.Ids = merged.Ids[1:]
	return one
}
