package beside_test

import (
	"strings"
	"testing"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestRefusalOfALongPromptHasItsSizes: clients read them, whatever server has refused the prompt.
func TestRefusalOfALongPromptHasItsSizes(t *testing.T) {
	for said, want := range map[string]streamerr.Overflow{
		"This model's maximum context length is 1024 tokens. However, your prompt contains at least 1025 input tokens, which is more.":                                             {Tokens: 1025, Limit: 1024},
		"This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens. Please reduce the length of the input messages.":                         {Tokens: 5000, Limit: 4096},
		"This model's maximum context length is 4096 tokens. However, you requested 5012 tokens (5000 in the messages, 12 in the completion).":                                     {Tokens: 5000, Limit: 4096},
		"This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens.":                                                                      {Tokens: 5000, Limit: 4096},
		"You passed 5000 input tokens and requested 1 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 4095 tokens.": {Tokens: 5000, Limit: 4096},
		"The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.":           {Tokens: 5000, Limit: 4096},
		"The input (5000 tokens) is longer than the model's context length (4096 tokens).":                                                                                         {Tokens: 5000, Limit: 4096},
		"Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens). Use a shorter input or enable --allow-auto-truncate.":                                        {Tokens: 5000, Limit: 4096},
		"request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it":                                                                                {Tokens: 5000, Limit: 4096},
		streamerr.TooLong("messages", 5000, 4096).Message: {Tokens: 5000, Limit: 4096},
		"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (3000 in the messages, 2000 in the completion).":                                  {},
		"'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request has 10 input tokens (5000 > 4096 - 10).": {},
		"the context length is what it is, and the messages are too long":                                                                                                         {},
	} {
		e := (&beside.Complaint{Message: said, Status: 400, Code: streamerr.CodeContextLength}).Ending("failed")
		got, ok := e.Overflow()
		if strings.Contains(said, "in the completion") && want.Limit == 0 && e.Code != "" {
			t.Errorf("%.60s…: a prompt that fits has the code %s", said, e.Code)
		}
		if ok != (want.Limit > 0) || got != want || ok && e.Message != streamerr.TooLong("", want.Tokens, want.Limit).Message {
			t.Errorf("%.60s…: %v, %t: %v", said, got, ok, e)
		}
	}
}
