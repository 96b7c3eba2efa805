package vllm

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	vllmengine "github.com/whence-dev/whence/idl/gen/vllm/engine"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// agree compares the worker's model files with the server's model: the size of the vocabulary, and the tokens
// of texts by the server's own tokenizer file or, from a server that does not send it, their number.
func (e *Engine) agree(ctx context.Context, up *beside.Upstream, vocab int) (notes []string, err error) {
	if e.files == nil {
		return nil, nil
	}
	a := lexicon.Agreement{Model: e.files, Server: up.Name}
	if err := a.FitsInto(vocab); err != nil {
		return nil, err
	}
	var note string
	if theirs, got := e.tokenizer(ctx); got == nil {
		note, err = a.Prove(ctx, func(_ context.Context, text string, special bool) (said lexicon.Spelling, err error) {
			said.IDs, err = theirs.EncodeText(text, special)
			return said, err
		})
	} else {
		note, err = a.Count(ctx, e.count)
	}
	if note != "" {
		notes = []string{note}
	}
	return notes, err
}

// tokenizer returns the tokenizer of the server's files.
func (e *Engine) tokenizer(ctx context.Context) (*tokenizer.Tokenizer, error) {
	archive, _, err := archive(ctx, e.client)
	if err != nil {
		return nil, err
	}
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	source, err := tokenizer.Open(files)
	if err != nil {
		return nil, err
	}
	return source.Tokenizer()
}

// count is a lexicon.TokenSource: the server reads a text, and answers with one token.
func (e *Engine) count(ctx context.Context, text string, _ bool) (lexicon.Spelling, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := e.client.Generate(ctx, &vllmengine.GenerateRequest{
		RequestId: beside.NewID(ctx), Input: &vllmengine.GenerateRequest_Text{Text: text}, Stream: true,
		SamplingParams: &vllmengine.SamplingParams{MaxTokens: proto.Uint32(1), Temperature: new(float32), N: 1},
	})
	if err != nil {
		return lexicon.Spelling{}, err
	}
	m, err := answer.Recv()
	if err != nil {
		return lexicon.Spelling{}, err
	}
	n := max(m.GetChunk().GetPromptTokens(), m.GetComplete().GetPromptTokens())
	if n == 0 {
		return lexicon.Spelling{}, errors.New("the server does not count the tokens of its prompt")
	}
	return lexicon.Spelling{Count: int(n)}, nil
}
