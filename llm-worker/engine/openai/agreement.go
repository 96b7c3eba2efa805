package openai

import (
	"context"
	"encoding/json"
	"errors"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
)

// agree compares the worker's model files with the server's model, by the ids of POST /tokenize. told is
// false if the server does not tell them.
func (e *Engine) agree(ctx context.Context, up *upstream) (note string, told bool, err error) {
	note, err = e.agreement(up).Prove(ctx, func(ctx context.Context, text string, special bool) (said lexicon.Spelling, err error) {
		body := map[string]any{"model": up.model, "prompt": text, "add_special_tokens": special}
		if up.kind == llamacpp {
			body = map[string]any{"content": text, "add_special": special}
		}
		said.IDs, err = e.client.Tokenize(ctx, body)
		return said, err
	})
	if errors.Is(err, lexicon.ErrUntold) {
		return "", false, nil
	}
	return note, true, err
}

// agreeByCount is agree for a server that does not tell the tokens of texts: vLLM behind a proxy answers a
// prompt with its ids, and others count its tokens.
func (e *Engine) agreeByCount(ctx context.Context, up *upstream) (note string, err error) {
	return e.agreement(up).Count(ctx, func(ctx context.Context, text string, _ bool) (lexicon.Spelling, error) {
		body, err := json.Marshal(completion{Model: up.model, Prompt: text, MaxTokens: 1, Temperature: new(float32), ReturnTokenIDs: up.askIDs})
		if err != nil {
			return lexicon.Spelling{}, err
		}
		var said struct {
			Choices []struct {
				Prompt []uint32 `json:"prompt_token_ids"`
			} `json:"choices"`
			Usage usage `json:"usage"`
		}
		asked := e.client.Exchange("/v1/completions", body, maxRead)
		defer context.AfterFunc(ctx, asked.HangUp)()
		if err := asked.Do(ctx, &said); err != nil {
			return lexicon.Spelling{}, err
		}
		spelling := lexicon.Spelling{Count: int(said.Usage.Prompt)}
		if len(said.Choices) > 0 {
			spelling.IDs = said.Choices[0].Prompt
		}
		return spelling, nil
	})
}

func (e *Engine) agreement(up *upstream) *lexicon.Agreement {
	return &lexicon.Agreement{Model: e.model, Server: up.model, Loose: up.prompt == llmv1.Form_FORM_TEXT}
}

// rendered returns the prompt that the server's chat template makes of capability.Greeting, or "" if unknown.
func (e *Engine) rendered(ctx context.Context, up *upstream) string {
	switch up.kind {
	case llamacpp:
		return e.client.Rendered(ctx)
	case vllm, whence:
		return e.model.Text(e.client.RenderedIDs(ctx, up.model))
	default:
		return ""
	}
}
