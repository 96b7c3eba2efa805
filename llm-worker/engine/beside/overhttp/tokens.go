package overhttp

import (
	"context"
	"errors"
	"time"

	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// tokenizeTimeout bounds the tokenizing of a short text, which waits for nothing but the server's own
// process.
const tokenizeTimeout = 5 * time.Second

// Tokenize asks POST /tokenize for the token ids of a text, which is in the body in the server's own words.
func (c *Client) Tokenize(ctx context.Context, body map[string]any) ([]uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenizeTimeout)
	defer cancel()
	var said struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := c.Ask(ctx, "/tokenize", body, &said); err != nil {
		return nil, err
	}
	if len(said.Tokens) == 0 {
		return nil, beside.Broken(errors.New("/tokenize: a text without tokens"))
	}
	return said.Tokens, nil
}

// maxRendered bounds a rendered greeting, in bytes or tokens: templates write default prompts of some kilobytes.
const maxRendered = 64 << 10

// greeting returns the messages of a conversation that consists of capability.Greeting.
func greeting() []map[string]string {
	return []map[string]string{{"role": "user", "content": capability.Greeting}}
}

// Rendered asks llama.cpp's POST /apply-template for the prompt of capability.Greeting. It returns "" if the
// server does not answer.
func (c *Client) Rendered(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, tokenizeTimeout)
	defer cancel()
	var said struct {
		Prompt string `json:"prompt"`
	}
	if c.Ask(ctx, "/apply-template", map[string]any{"messages": greeting()}, &said) != nil || len(said.Prompt) > maxRendered {
		return ""
	}
	return said.Prompt
}

// RenderedIDs asks POST /tokenize, in the form of vLLM and Whence, for the tokens of the prompt of
// capability.Greeting. It returns nil if the server does not answer.
func (c *Client) RenderedIDs(ctx context.Context, model string) []uint32 {
	ids, err := c.Tokenize(ctx, map[string]any{"model": model, "messages": greeting(), "add_generation_prompt": true})
	if err != nil || len(ids) > maxRendered {
		return nil
	}
	return ids
}
