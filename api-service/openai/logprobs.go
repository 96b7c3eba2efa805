package openai

import (
	"unicode/utf8"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// Logprobs are the log-probabilities of a chat's choice, or of a piece of a choice.
type Logprobs struct {
	Content []TokenLogprob `json:"content"`
	Refusal *struct{}      `json:"refusal"`
}

// A TokenLogprob is a token with its log-probability and the top alternatives.
type TokenLogprob struct {
	logprob
	Top []logprob `json:"top_logprobs"`
}

// A logprob is a token, its log-probability, and its bytes.
type logprob struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"` // null for a token that adds no text
}

// NewLogprobs returns the log-probabilities of tokens, or nil if there are none.
func NewLogprobs(tokens []*chatv1.TokenLogprob) *Logprobs {
	if len(tokens) == 0 {
		return nil
	}
	p := &Logprobs{Content: make([]TokenLogprob, len(tokens))}
	for i, t := range tokens {
		one := TokenLogprob{logprob: likelyOf(t), Top: make([]logprob, len(t.GetTop()))}
		for j, top := range t.GetTop() {
			one.Top[j] = likelyOf(top)
		}
		p.Content[i] = one
	}
	return p
}

func likelyOf(t *chatv1.TokenLogprob) logprob {
	l := logprob{Token: t.GetToken(), Logprob: t.GetLogprob()}
	for _, b := range t.GetBytes() {
		l.Bytes = append(l.Bytes, int(b))
	}
	return l
}

// textLogprobs are the log-probabilities of a text completion's choice, or of a piece of it: lists
// of the same length.
type textLogprobs struct {
	Tokens  []string             `json:"tokens"`
	Likely  []*float32           `json:"token_logprobs"` // null for the first token of an echoed prompt
	Top     []map[string]float32 `json:"top_logprobs"`   // the token itself is always in it
	Offsets []int                `json:"text_offset"`    // in characters, from the beginning of the choice
}

// An offset is the position of the next token in a choice's text.
type offset int

// take returns the log-probabilities of the next tokens, or nil if there are none. With idNames,
// tokens are named by their ids, as vLLM names them on request.
func (o *offset) take(tokens []*chatv1.TokenLogprob, top, idNames bool) *textLogprobs {
	if len(tokens) == 0 {
		return nil
	}
	p := &textLogprobs{Top: []map[string]float32{}}
	for _, t := range tokens {
		name := nameOf(t, idNames)
		likely := &t.Logprob
		if t.GetUnscored() {
			likely = nil
		}
		p.Tokens, p.Likely = append(p.Tokens, name), append(p.Likely, likely)
		switch {
		case top && likely == nil:
			p.Top = append(p.Top, nil)
		case top:
			likeliest := map[string]float32{name: t.GetLogprob()}
			for _, l := range t.GetTop() {
				name := nameOf(l, idNames)
				if known, ok := likeliest[name]; !ok || l.GetLogprob() > known {
					// Parts of different characters may have the same string.
					likeliest[name] = l.GetLogprob()
				}
			}
			p.Top = append(p.Top, likeliest)
		}
		at := int(*o)
		if b := t.GetBytes(); len(b) > 0 && !utf8.RuneStart(b[0]) && at > 0 {
			at-- // inside the character that the previous token has begun
		}
		p.Offsets = append(p.Offsets, at)
		for _, b := range t.GetBytes() {
			if utf8.RuneStart(b) {
				*o++
			}
		}
	}
	return p
}
