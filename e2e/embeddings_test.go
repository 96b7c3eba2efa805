package e2e

import (
	"context"
	"encoding/base64"
	bits "encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"

	streamstory "github.com/whence-dev/whence/api-service/story"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// embedding returns a request for embeddings.
func embedding(input any, more ...any) ask {
	a := ask{"model": model, "input": input}
	for i := 0; i < len(more); i += 2 {
		a[more[i].(string)] = more[i+1]
	}
	return a
}

// manyTexts returns a request for embeddings of n long texts.
func manyTexts(n int) ask {
	return embedding(slices.Repeat([]string{strings.Repeat("The fox sleeps. ", 150)}, n))
}

// seconds is a number of texts that keeps the embedded engine busy for seconds.
const seconds = 500

func TestOpenAIGoGetsEmbeddings(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		c := w.sdk()
		p := openai.EmbeddingNewParams{
			Model: model, User: param.NewOpt("u"),
			Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"The fox sleeps.", "A harbor at night", "The fox sleeps."}},
		}
		got, err := c.Embeddings.New(t.Context(), p)
		if err != nil || len(got.Data) != 3 || got.Model != model || got.Usage.PromptTokens < 9 || got.Usage.TotalTokens != got.Usage.PromptTokens {
			t.Fatal(err, got)
		}
		for i, v := range got.Data {
			length := 0.0
			for _, x := range v.Embedding {
				length += x * x
			}
			if v.Index != int64(i) || math.Abs(length-1) > 1e-5 {
				t.Errorf("vector %d, at position %d, has the norm %v", v.Index, i, math.Sqrt(length))
			}
		}
		if !slices.Equal(got.Data[0].Embedding, got.Data[2].Embedding) || slices.Equal(got.Data[0].Embedding, got.Data[1].Embedding) {
			t.Error("equal texts must have equal vectors, and different texts different vectors")
		}
		// The same text alone, and as ids.
		var ids struct{ Tokens []int64 }
		if err := json.Unmarshal(w.postTo(t, "/tokenize", ask{"model": model, "prompt": "The fox sleeps."}).body, &ids); err != nil || len(ids.Tokens) == 0 {
			t.Fatal(ids, err)
		}
		for _, input := range []openai.EmbeddingNewParamsInputUnion{
			{OfString: param.NewOpt("The fox sleeps.")}, {OfArrayOfTokens: ids.Tokens}, {OfArrayOfTokenArrays: [][]int64{ids.Tokens}},
		} {
			p.Input = input
			alone, err := c.Embeddings.New(t.Context(), p)
			if err != nil || len(alone.Data) != 1 || !slices.Equal(alone.Data[0].Embedding, got.Data[0].Embedding) || alone.Usage.PromptTokens != int64(len(ids.Tokens)) {
				t.Error(err, input, alone)
			}
		}
		p.Dimensions = param.NewOpt[int64](8)
		_, err = c.Embeddings.New(t.Context(), p)
		wantAPIError(t, err, http.StatusBadRequest, "invalid_request_error", "unsupported_parameter", "dimensions")
		p.Dimensions, p.Model = param.Opt[int64]{}, "gpt-none"
		_, err = c.Embeddings.New(t.Context(), p)
		wantAPIError(t, err, http.StatusNotFound, "invalid_request_error", "model_not_found", "model")
	})
}

func TestEmbeddingsHaveOpenAIsShape(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		var numbers struct {
			Data []struct{ Embedding []float32 }
		}
		var coded struct{ Data []struct{ Embedding string } }
		for format, into := range map[string]any{"float": &numbers, "base64": &coded} {
			r := w.postTo(t, "/v1/embeddings", embedding([]string{"hello"}, "encoding_format", format))
			shapeOf(t, "CreateEmbeddingResponse").want(t, format, r.body)
			if err := json.Unmarshal(r.body, into); err != nil || r.status != http.StatusOK || r.header.Get("Content-Type") != "application/json" {
				t.Fatal(r, err)
			}
		}
		b, err := base64.StdEncoding.DecodeString(coded.Data[0].Embedding)
		if err != nil || len(b) != 4*len(numbers.Data[0].Embedding) {
			t.Fatal(len(b), err)
		}
		for i, want := range numbers.Data[0].Embedding {
			if got := math.Float32frombits(bits.LittleEndian.Uint32(b[4*i:])); got != want {
				t.Fatalf("number %d is %v, as bytes %v", i, want, got)
			}
		}
		for at, a := range map[string]ask{
			"input": embedding(""), "input[1]": embedding([]string{"a", ""}), "input[0][1]": embedding([]any{[]any{1, "b"}}), "model": {"input": "a"},
			"encoding_format": embedding("a", "encoding_format", "int8"), "input[2]": embedding([]any{[]int{1}, []int{2}, []int{1 << 30}}),
		} {
			r := w.postTo(t, "/v1/embeddings", a)
			shapeOf(t, "ErrorResponse").want(t, at, r.body)
			var e struct {
				Error struct{ Param, Message string }
			}
			if err := json.Unmarshal(r.body, &e); err != nil || r.status != http.StatusBadRequest || e.Error.Param != at || strings.Contains(e.Error.Message, "inputs") {
				t.Errorf("%s: %d %s", at, r.status, r.body)
			}
		}
		if r := w.get(t, "/v1/models/"+model); !strings.Contains(string(r.body), `"embeddings":true`) {
			t.Errorf("the list of models does not say that the model makes embeddings: %s", r.body)
		}
	})
}

func TestClientLeavingDuringEmbeddingsIsGoneOnAllHops(t *testing.T) {
	asShipped(t) // a stop must be confirmed within the grace
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		// On a starved machine, the grace may be over before the worker has heard of the stop. Then
		// the calls are reset, without a reason, and another request is sent.
		reset := func(h streamstory.Hop) bool { return h.Reason == streamerr.PeerReset.String() }
		var s streamstory.Story
		var id string
		for attempt := 1; attempt == 1 || attempt <= 3 && slices.ContainsFunc(s.Hops, reset); attempt++ {
			id = fmt.Sprintf("vectors-%d", attempt)
			s = w.leaveEmbeddings(t, id)
		}
		w.clientGone(t, id)
		if len(s.Hops) != 3 {
			t.Errorf("%+v", s)
		}
		for _, h := range s.Hops {
			if h.StopConfirmedMS == nil {
				t.Errorf("%s has no confirmation of the stop: %+v", h.Hop, h)
			}
		}
		w.works(t)
	})
}

// leaveEmbeddings sends a request for embeddings, closes its connection while the worker computes, and
// returns the story of the stream when it is complete.
func (w *whence) leaveEmbeddings(t *testing.T, id string) (s streamstory.Story) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	over := make(chan error, 1)
	go func() {
		resp, err := w.do(ctx, http.MethodPost, w.url("/v1/embeddings"), manyTexts(seconds), idName, id)
		if err == nil {
			_ = resp.Body.Close()
		}
		over <- err
	}()
	w.busy(t, 1, 0)
	leave()
	if err := <-over; err == nil {
		t.Error("the request was answered")
	}
	w.free(t)
	polltest.Eventually(t, "every hop has ended it", func() bool { s = w.why(t, id); return s.State == "ended" })
	return s
}

func TestGRPCurlGetsEmbeddings(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{})
	out, ok := grpcurl(t, w.chat, "-d", `{"model":"`+model+`","inputs":[{"text":"hello"}]}`, "whence.chat.v1.Chat/Embeddings")
	got := messages(t, out)
	if !ok || len(got) != 1 || got[0]["end"].(map[string]any)["reason"] != "REASON_COMPLETED" {
		t.Fatal(out)
	}
	vector := got[0]["embeddings"]
	tokens, err := chatv1.NewChatClient(dialGRPC(t, w.chat)).Tokenize(t.Context(), &chatv1.TokenizeRequest{Model: model, Text: "hello", AddSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := json.Marshal(tokens.GetIds())
	out, ok = grpcurl(t, w.worker, "-d", `{"inputs":[{"ids":`+string(ids)+`}]}`, "whence.worker.v1.Worker/Embed")
	got = messages(t, out)
	if !ok || len(got) != 1 {
		t.Fatal(out)
	}
	a, _ := json.Marshal(vector)
	if b, _ := json.Marshal(got[0]["embeddings"]); string(a) != string(b) {
		t.Errorf("Chat/Embeddings returns %.100s, Worker/Embed %.100s", a, b)
	}
}
