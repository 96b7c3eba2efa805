package chat_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestTextsAreTokenisedForEmbedding(t *testing.T) {
	m := model(t)
	var asked *workerv1.EmbedRequest
	e := chat.Embed(m, stream.Unary(func(_ context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
		asked = req
		return &workerv1.EmbedResponse{Embeddings: []*llmv1.Embedding{{}, {}}, End: &llmv1.End{}}, nil
	}))
	word := func(s string) *chatv1.Prompt {
		return &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: s}}
	}
	ids := &chatv1.Prompt{Content: &chatv1.Prompt_Ids{Ids: &chatv1.TokenIDs{Ids: []uint32{7, 8}}}}
	for out, err := range e.Range(t.Context(), &chatv1.EmbeddingsRequest{StreamId: "id", Model: m.Name, Inputs: []*chatv1.Prompt{word("hel\x00lo"), ids}, Dimensions: proto.Uint32(5)}) {
		if err != nil || len(out.GetEmbeddings()) != 2 || out.GetModel() != m.Name {
			t.Error(out, err)
		}
	}
	if asked.GetStreamId() != "id" || asked.GetDimensions() != 5 || !slices.Equal(asked.GetInputs()[0].GetIds(), m.Tokenizer.Encode("hel\uFFFDlo", true)) ||
		!slices.Equal(asked.GetInputs()[1].GetIds(), []uint32{7, 8}) {
		t.Error(asked)
	}
	for param, inputs := range map[string][]*chatv1.Prompt{
		"inputs":    {},
		"inputs[0]": {word("")},
		"inputs[1]": {word("x"), word(strings.Repeat("word ", 2000))},
		"inputs[2]": {word("x"), ids, {}},
		"inputs[3]": {word("x"), ids, ids, word("a\xff")},
	} {
		asked = nil
		for _, err := range e.Range(t.Context(), &chatv1.EmbeddingsRequest{Model: m.Name, Inputs: inputs}) {
			if got := streamerr.As(err); err == nil || got.Reason != streamerr.Invalid || got.Param != param || asked != nil {
				t.Errorf("%s: %v", param, err)
			}
		}
	}
}

// TestWrongVectorsAreAFailureOfTheEngine: JSON has no NaN, and a client counts on one vector per text.
func TestWrongVectorsAreAFailureOfTheEngine(t *testing.T) {
	m := model(t)
	for name, sent := range map[string][]*llmv1.Embedding{
		"NaN":      {{Values: []float32{1, float32(math.NaN())}}},
		"infinite": {{Values: []float32{float32(math.Inf(-1))}}},
		"two":      {{Values: []float32{1}}, {Values: []float32{1}}},
		"none":     nil,
	} {
		e := chat.Embed(m, stream.Unary(func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
			return &workerv1.EmbedResponse{Embeddings: sent, End: &llmv1.End{}}, nil
		}))
		for out, err := range e.Range(t.Context(), &chatv1.EmbeddingsRequest{Model: m.Name, Inputs: []*chatv1.Prompt{{Content: &chatv1.Prompt_Text{Text: "hello"}}}}) {
			if got := streamerr.As(err); err == nil || got.Reason != streamerr.EngineFailed {
				t.Errorf("%s: %v %v", name, out, err)
			}
		}
	}
}

// TestTextsPassWithoutFiles: only the server knows the tokens of texts.
func TestTextsPassWithoutFiles(t *testing.T) {
	m := chat.TextOnly("m", "")
	var asked *workerv1.EmbedRequest
	e := chat.Embed(m, stream.Unary(func(_ context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
		asked = req
		return &workerv1.EmbedResponse{Embeddings: []*llmv1.Embedding{{}, {}}, End: &llmv1.End{}}, nil
	}))
	word := func(s string) *chatv1.Prompt {
		return &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: s}}
	}
	for _, err := range e.Range(t.Context(), &chatv1.EmbeddingsRequest{Model: "m", Inputs: []*chatv1.Prompt{word("hello"), word("a\x00b")}}) {
		if err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(asked.GetTexts(), []string{"hello", "a\uFFFDb"}) || len(asked.GetInputs()) > 0 {
		t.Error(asked)
	}
	ids := &chatv1.Prompt{Content: &chatv1.Prompt_Ids{Ids: &chatv1.TokenIDs{Ids: []uint32{7, 8}}}}
	for _, err := range e.Range(t.Context(), &chatv1.EmbeddingsRequest{Model: "m", Inputs: []*chatv1.Prompt{word("x"), ids}}) {
		if got := streamerr.As(err); err == nil || got.Param != "inputs[1]" || got.Code != streamerr.CodeUnsupportedField {
			t.Error(err)
		}
	}
}

func TestScoresAreCheckedBothWays(t *testing.T) {
	m := model(t)
	m.Adapters = []string{"tuned"}
	sent := []float32{0.5, -1}
	var asked *workerv1.ScoreRequest
	e := chat.Score(m, stream.Unary(func(_ context.Context, req *workerv1.ScoreRequest) (*workerv1.ScoreResponse, error) {
		asked = req
		return &workerv1.ScoreResponse{Scores: sent, End: &llmv1.End{}}, nil
	}))
	score := func(req *chatv1.ScoreRequest) (resp *chatv1.ScoreResponse, err error) {
		for resp, err = range e.Range(t.Context(), req) {
		}
		return resp, err
	}
	req := &chatv1.ScoreRequest{StreamId: "id", Model: m.Name, Queries: []string{"q\x00"}, Documents: []string{"a", "b"}}
	if resp, err := score(req); err != nil || !slices.Equal(resp.GetScores(), sent) || resp.GetModel() != m.Name || asked.GetQueries()[0] != "q\uFFFD" || asked.GetStreamId() != "id" {
		t.Error(resp, err, asked)
	}
	for name, wrong := range map[string][]float32{"few": {1}, "many": {1, 2, 3}, "NaN": {1, float32(math.NaN())}, "infinite": {float32(math.Inf(1)), 1}} {
		sent = wrong
		if _, err := score(req); streamerr.As(err).Reason != streamerr.EngineFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
	for param, bad := range map[string]*chatv1.ScoreRequest{
		"documents":    {Model: m.Name, Queries: []string{"q"}},
		"queries":      {Model: m.Name, Queries: []string{"q", "r", "s"}, Documents: []string{"a", "b"}},
		"queries[0]":   {Model: m.Name, Queries: []string{""}, Documents: []string{"a"}},
		"documents[1]": {Model: m.Name, Queries: []string{"q"}, Documents: []string{"a", "b\xff"}},
		"model":        {Model: "tuned", Queries: []string{"q"}, Documents: []string{"a"}},
	} {
		asked = nil
		if _, err := score(bad); streamerr.As(err).Param != param || asked != nil {
			t.Errorf("%s: %v", param, err)
		}
	}
}
