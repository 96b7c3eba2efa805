package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
)

// bytesOf joins the bytes of the tokens of logprobs.
func bytesOf(tokens []openai.ChatCompletionTokenLogprob) string {
	var b []byte
	for _, token := range tokens {
		for _, n := range token.Bytes {
			b = append(b, byte(n))
		}
	}
	return string(b)
}

func TestOpenAIGoGetsSeveralChoicesAndTheirLogprobs(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		c := w.sdk()
		p := asked(long, 1)
		p.N, p.Seed, p.MaxTokens, p.Logprobs, p.TopLogprobs = param.NewOpt[int64](3), param.NewOpt[int64](5), param.NewOpt[int64](20), param.NewOpt(true), param.NewOpt[int64](2)
		want := whole(t, &c, p)
		if len(want.Choices) != 3 || want.Choices[0].Message.Content == want.Choices[1].Message.Content || want.Usage.CompletionTokens != 60 {
			t.Fatal(want.RawJSON())
		}
		p.StreamOptions.IncludeUsage = param.NewOpt(true)
		got := streamed(t, &c, p)
		for i, choice := range want.Choices {
			if text := bytesOf(choice.Logprobs.Content); text != choice.Message.Content || len(choice.Logprobs.Content) != 20 {
				t.Errorf("choice %d: %q, of tokens %q", i, choice.Message.Content, text)
			}
			if got.Choices[i].Message.Content != choice.Message.Content || got.Choices[i].FinishReason != "length" || len(got.Choices[i].Logprobs.Content) != 20 {
				t.Errorf("choice %d: streamed %q, unstreamed %q", i, got.Choices[i].Message.Content, choice.Message.Content)
			}
			for j, token := range choice.Logprobs.Content {
				if streamed := got.Choices[i].Logprobs.Content[j]; token.Logprob != streamed.Logprob || len(token.TopLogprobs) != 2 || token.TopLogprobs[0].Logprob < token.Logprob {
					t.Errorf("token %d of choice %d: %s, streamed %s", j, i, token.RawJSON(), streamed.RawJSON())
				}
			}
		}
		if got.Usage.CompletionTokens != want.Usage.CompletionTokens || got.Usage.PromptTokens != want.Usage.PromptTokens {
			t.Errorf("usage streamed %+v, unstreamed %+v", got.Usage, want.Usage)
		}
		// A seed gives the same answer in a request of its own.
		p.N, p.Seed, p.StreamOptions = param.NewOpt[int64](1), param.NewOpt[int64](6), openai.ChatCompletionStreamOptionsParam{}
		if alone := whole(t, &c, p); alone.Choices[0].Message.Content != want.Choices[1].Message.Content {
			t.Errorf("%q, as the second choice %q", alone.Choices[0].Message.Content, want.Choices[1].Message.Content)
		}
		w.idle(t)
	})
}

func TestOpenAIGoContinuesPromptsWithoutATemplate(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		c := w.sdk()
		p := openai.CompletionNewParams{
			Model: model, Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"The fox", "Once upon"}},
			N: param.NewOpt[int64](2), Seed: param.NewOpt[int64](7), Logprobs: param.NewOpt[int64](1), User: param.NewOpt("u"),
		}
		want, err := c.Completions.New(t.Context(), p)
		if err != nil || len(want.Choices) != 4 || want.Usage.CompletionTokens < 30 || !strings.HasPrefix(want.ID, "cmpl-") {
			t.Fatal(err, want)
		}
		texts, finishes := make([]string, 4), make([]string, 4)
		stream := c.Completions.NewStreaming(t.Context(), p)
		for stream.Next() {
			for _, choice := range stream.Current().Choices {
				texts[choice.Index] += choice.Text
				finishes[choice.Index] += string(choice.FinishReason)
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		for i, choice := range want.Choices {
			if texts[i] != choice.Text || finishes[i] != string(choice.FinishReason) || len(choice.Logprobs.Tokens) < 5 || strings.Join(choice.Logprobs.Tokens, "") != choice.Text && !strings.Contains(strings.Join(choice.Logprobs.Tokens, ""), "\uFFFD") {
				t.Errorf("choice %d: streamed %q (%s), unstreamed %s", i, texts[i], finishes[i], choice.RawJSON())
			}
		}
		// The same prompts as ids from /tokenize.
		var ids [][]int64
		for _, prompt := range p.Prompt.OfArrayOfStrings {
			var r struct{ Tokens []int64 }
			if err := json.Unmarshal(w.postTo(t, "/tokenize", ask{"model": model, "prompt": prompt}).body, &r); err != nil || len(r.Tokens) == 0 {
				t.Fatal(r, err)
			}
			ids = append(ids, r.Tokens)
		}
		p.Prompt = openai.CompletionNewParamsPromptUnion{OfArrayOfTokenArrays: ids}
		same, err := c.Completions.New(t.Context(), p)
		if err != nil || !slices.EqualFunc(same.Choices, want.Choices, func(a, b openai.CompletionChoice) bool { return a.Text == b.Text }) {
			t.Error(err, same.RawJSON())
		}
		p.Suffix = param.NewOpt("end")
		_, err = c.Completions.New(t.Context(), p)
		wantAPIError(t, err, http.StatusBadRequest, "invalid_request_error", "unsupported_value", "suffix")
	})
}
