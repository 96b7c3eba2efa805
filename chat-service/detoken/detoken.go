// Package detoken turns an engine that yields token ids into one that yields text, never half a character.
package detoken

import (
	"context"
	"iter"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// Special says which special tokens are part of an answer's text.
type Special struct {
	Keep  bool     // all of them
	Shown []uint32 // these
}

// New returns an engine over next whose deltas, joined, are the tokens of next decoded at once, special tokens left out, but for
// those that of names for the request.
// A delta counts all tokens since the one before: those whose text was held back because a character was incomplete, and
// those that have no text; the End counts what no delta has counted. What is held back when the answer completes is delivered before its End; when it fails, half a
// character is dropped. Log-probabilities go with their tokens.
func New[Req any](tok *tokenizer.Tokenizer, of func(Req) Special, next stream.Engine[Req, *workerv1.GenerateResponse]) stream.Engine[Req, *chatv1.GenerateResponse] {
	return func(ctx context.Context, req Req) iter.Seq2[*chatv1.GenerateResponse, error] {
		return func(yield func(*chatv1.GenerateResponse, error) bool) {
			special := of(req)
			dec := tok.NewDecoder(!special.Keep, special.Shown...)
			told := teller{tok: tok, special: special}
			var held uint32 // tokens since the last delta
			for out, err := range next(ctx, req) {
				if err != nil {
					yield(nil, err)
					return
				}
				switch m := out.GetMessage().(type) {
				case *workerv1.GenerateResponse_Started:
					if !yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: m.Started}}, nil) {
						return
					}
				case *workerv1.GenerateResponse_Tokens:
					held += uint32(len(m.Tokens.GetIds()))
					told.add(m.Tokens)
					text := dec.Next(m.Tokens.GetIds()...)
					if text == "" {
						continue
					}
					if !yield(Delta(text, held, told.take()...), nil) {
						return
					}
					held = 0
				case *workerv1.GenerateResponse_End:
					if text, likely := dec.Flush(), told.take(); text != "" || len(likely) > 0 {
						if !yield(Delta(text, held, likely...), nil) {
							return
						}
						held = 0
					}
					m.End.Tokens += held
					yield(End(m.End), nil)
					return
				}
			}
		}
	}
}

// Delta makes a message, in one allocation: this runs once per token.
func Delta(text string, tokens uint32, likely ...*chatv1.TokenLogprob) *chatv1.GenerateResponse {
	m := new(struct {
		resp  chatv1.GenerateResponse
		oneof chatv1.GenerateResponse_Delta
		delta chatv1.Delta
	})
	m.delta.Text, m.delta.Tokens, m.delta.Logprobs = text, tokens, likely
	m.oneof.Delta = &m.delta
	m.resp.Message = &m.oneof
	return &m.resp
}

// End makes the last message of a stream.
func End(end *streamv1.End) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: end}}
}
