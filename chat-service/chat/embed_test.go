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
	for out, err := range e(t.Context(), &chatv1.EmbeddingsRequest{StreamId: "id", Model: m.Name, Inputs: []*chatv1.Prompt{word("hel\x00lo"), ids}, Dimensions: proto.Uint32(5)}) {
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
		for _, err := range e(t.Context(), &chatv1.EmbeddingsRequest{Model: m.Name, Inputs: inputs}) {
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
		for out, err := range e(t.Context(), &chatv1.EmbeddingsRequest{Model: m.Name, Inputs: []*chatv1.Prompt{{Content: &chatv1.Prompt_Text{Text: "hello"}}}}) {
			if got := streamerr.As(err); err == nil || got.Reason != streamerr.EngineFailed {
				t.Errorf("%s: %v %v", name, out, err)
			}
		}
	}
}
