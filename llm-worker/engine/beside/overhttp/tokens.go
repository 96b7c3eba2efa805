package overhttp

import (
	"context"
	"errors"
	"time"

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
