package openai

import (
	"encoding/json"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// ParseFinish is the inverse of Finish.
func ParseFinish(word string) llmv1.Finish {
	for finish, known := range finishes {
		if known == word {
			return finish
		}
	}
	return llmv1.Finish_FINISH_UNSPECIFIED
}

// ParseUsage is the inverse of Usage.
func ParseUsage(object []byte) (*llmv1.Usage, error) {
	var u usage
	if err := json.Unmarshal(object, &u); err != nil {
		return nil, err
	}
	all := &llmv1.Usage{PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, Estimated: u.Estimated}
	if u.PromptDetails != nil {
		all.CachedTokens = &u.PromptDetails.CachedTokens
	}
	if u.Details != nil {
		all.ReasoningTokens = &u.Details.ReasoningTokens
	}
	return all, nil
}

// ParseLogprobs is the inverse of NewLogprobs, without the ids of tokens.
func ParseLogprobs(tokens []TokenLogprob) []*chatv1.TokenLogprob {
	var all []*chatv1.TokenLogprob
	for i := range tokens {
		t := tokens[i].token()
		for j := range tokens[i].Top {
			t.Top = append(t.Top, tokens[i].Top[j].token())
		}
		all = append(all, t)
	}
	return all
}

func (l *logprob) token() *chatv1.TokenLogprob {
	t := &chatv1.TokenLogprob{Token: l.Token, Logprob: l.Logprob}
	for _, b := range l.Bytes {
		t.Bytes = append(t.Bytes, byte(b))
	}
	return t
}
