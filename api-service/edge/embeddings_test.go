package edge_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Embeddings answers by the first text: "wait" waits for a stop, "read 9" calls a worker with 9 tokens
// before that, "fail REASON" fails, and any other
// text gets a vector.
func (s *scriptedChat) Embeddings(ctx context.Context, req *chatv1.EmbeddingsRequest) (resp *chatv1.EmbeddingsResponse, err error) {
	engine := stream.Unary(func(ctx context.Context, req *chatv1.EmbeddingsRequest) (*chatv1.EmbeddingsResponse, error) {
		word, arg, _ := strings.Cut(req.GetInputs()[0].GetText(), " ")
		s.claim.Store(req.GetClaim())
		s.begun <- struct{}{}
		switch word {
		case "read":
			s.read(ctx, arg)
			fallthrough
		case "wait":
			<-stream.Stopping(ctx)
			s.causes <- stream.Cause(ctx)
			return nil, stream.Cause(ctx)
		case "fail":
			return nil, &streamerr.Error{Reason: streamerr.ParseReason(arg), Param: "inputs[0]", Message: "inputs[0] is as scripted"}
		}
		return &chatv1.EmbeddingsResponse{
			Model: "m", Embeddings: []*llmv1.Embedding{{Values: []float32{0.5}}},
			End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Usage: &llmv1.Usage{PromptTokens: 3}},
		}, nil
	})
	err = rpc.ServeUnary(ctx, &s.hop, methods.ChatEmbeddings, engine, req, func(out *chatv1.EmbeddingsResponse) { resp = out })
	return resp, err
}

// Score answers by the first query: "fail REASON" fails, and any other query gives each document its length.
func (s *scriptedChat) Score(ctx context.Context, req *chatv1.ScoreRequest) (resp *chatv1.ScoreResponse, err error) {
	engine := stream.Unary(func(_ context.Context, req *chatv1.ScoreRequest) (*chatv1.ScoreResponse, error) {
		if reason, fails := strings.CutPrefix(req.GetQueries()[0], "fail "); fails {
			return nil, &streamerr.Error{Reason: streamerr.ParseReason(reason), Param: "queries[0]", Message: "queries[0] is as scripted"}
		}
		out := &chatv1.ScoreResponse{Model: "m", End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Usage: &llmv1.Usage{PromptTokens: 3}}}
		for _, d := range req.GetDocuments() {
			out.Scores = append(out.Scores, float32(len(d)))
		}
		return out, nil
	})
	err = rpc.ServeUnary(ctx, &s.hop, methods.ChatScore, engine, req, func(out *chatv1.ScoreResponse) { resp = out })
	return resp, err
}

func embed(t *testing.T, ctx context.Context, url, body string, header ...string) (*http.Response, string, error) { //nolint:revive // t comes first in tests
	t.Helper()
	return postTo(t, ctx, url+"/v1/embeddings", body, header...)
}

func postTo(t *testing.T, ctx context.Context, url, body string, header ...string) (*http.Response, string, error) { //nolint:revive // likewise
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

func TestEmbeddingsAreAnsweredOrRefusedInTheClientsWords(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.Strict = true })
	for body, want := range map[string]struct {
		status int
		words  string
	}{
		`{"model":"m","input":"x"}`:                   {200, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3}}`},
		`{"model":"m","input":["fail invalid"]}`:      {400, `{"message":"input[0] is as scripted","type":"invalid_request_error","param":"input[0]","code":"invalid_value","whence":{"reason":"invalid","origin":"chat-service","path":["chat-service","api-service"]}}`},
		`{"model":"m","input":"fail unavailable"}`:    {503, `"reason":"unavailable"`},
		`{"model":"m","input":"x","frequency":"low"}`: {400, `"param":"frequency"`},
	} {
		resp, got, err := embed(t, t.Context(), url, body)
		if err != nil || resp.StatusCode != want.status || !strings.Contains(got, want.words) || resp.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %v, %s, %v", body, resp, got, err)
		}
	}
}

func TestScoresAreAnsweredOrRefusedInTheClientsWords(t *testing.T) {
	url, _ := start(t, nil)
	for path, bodies := range map[string]map[string]string{
		"/v1/rerank": {
			`{"model":"m","query":"q","documents":["a","bcd"],"top_n":1}`: `"usage":{"prompt_tokens":3,"total_tokens":3},"results":[{"index":1,"document":{"text":"bcd"},"relevance_score":3}]}`,
			`{"model":"m","query":"fail invalid","documents":["a"]}`:      `{"message":"query is as scripted","type":"invalid_request_error","param":"query","code":"invalid_value","whence":{"reason":"invalid","origin":"chat-service","path":["chat-service","api-service"]}}`,
		},
		"/rerank": {
			`{"model":"m","query":"q","documents":["a"]}`:                    `"results":[{"index":0,`,
			`{"query":"q","texts":["a","bcd"],"truncate":true}`:              `[{"index":1,"score":3},{"index":0,"score":1}]`, // text-embeddings-inference's form
			`{"query":"q","texts":["a","bcd"],"return_text":true,"top_n":1}`: `[{"index":1,"score":3,"text":"bcd"}]`,
			`{"query":"q","texts":["a"],"documents":["b"],"model":"m"}`:      `are two names of one field`,
			`{"query":"fail invalid","texts":["a"],"raw_scores":true}`:       `"param":"query"`,
			`{"query":"q","texts":[]}`:                                       `"param":"texts"`,
		},
		"/v2/rerank": {`{"model":"m","query":"q","documents":["a"]}`: `"results":[{"index":0,`},
		"/score":     {`{"model":"m","text_1":"q","text_2":["a","bc"]}`: `"data":[{"index":0,"object":"score","score":1},{"index":1,"object":"score","score":2}]`},
		"/v1/score":  {`{"model":"m","text_1":["fail unavailable"],"text_2":["a"]}`: `"reason":"unavailable"`},
	} {
		for body, want := range bodies {
			resp, got, err := postTo(t, t.Context(), url+path, body)
			if err != nil || !strings.Contains(got, want) || resp.Header.Get("X-Request-Id") == "" {
				t.Errorf("%s %s: %v, %s, %v", path, body, resp, got, err)
			}
		}
	}
}

// TestEmbeddingsWithoutAClientAreStoppedWithTheCause: a unary call cannot carry the cause of
// its end, but the chat-service still receives the cause.
func TestEmbeddingsWithoutAClientAreStoppedWithTheCause(t *testing.T) {
	t.Parallel()
	url, chat := start(t, nil)
	const wait = `{"model":"m","input":"wait"}`
	heard := func(reason streamerr.Reason, path string) {
		t.Helper()
		if e := streamerr.As(polltest.Receive(t, "the chat-service gets a stop", chat.causes)); e.Reason != reason || e.Path.String() != path {
			t.Errorf("%v, want %v [%s]", e, reason, path)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		polltest.Receive(t, "the beginning of a stream", chat.begun)
		leave()
	}()
	if _, _, err := embed(t, ctx, url, wait); err == nil {
		t.Error("the request was answered")
	}
	heard(streamerr.ClientGone, "client > api-service")

	resp, body, err := embed(t, t.Context(), url, wait, "X-Request-Timeout", "2")
	if err != nil || resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(body, `"path":["api-service"]`) {
		t.Error(resp, body, err)
	}
	heard(streamerr.Deadline, "api-service")
	polltest.Receive(t, "the beginning of a stream", chat.begun)

	go func() {
		polltest.Receive(t, "the beginning of a stream", chat.begun)
		req, _ := http.NewRequest(http.MethodDelete, url+"/v1/streams/embed-1", http.NoBody)
		if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusAccepted {
			t.Error(resp, err)
		} else {
			_ = resp.Body.Close()
		}
	}()
	resp, body, err = embed(t, t.Context(), url, wait, "X-Request-Id", "embed-1")
	if err != nil || resp.StatusCode != http.StatusConflict || !strings.Contains(body, `"reason":"user_stop"`) {
		t.Error(resp, body, err)
	}
	heard(streamerr.UserStop, "client > api-service")
}
