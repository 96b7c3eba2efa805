package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A pooler is a server whose model embeds or rates documents. It answers other requests with 404,
// as vLLM does with the routes of other models.
type pooler struct {
	*httptest.Server
	answers map[string]http.HandlerFunc // by method and path

	mu    sync.Mutex
	asked map[string][]map[string]any // the bodies, by path
}

// newPooler returns a server with answers, or one that is still to be started with its answers if answers is nil.
func newPooler(t *testing.T, answers map[string]http.HandlerFunc) *pooler {
	t.Helper()
	p := &pooler{answers: answers, asked: map[string][]map[string]any{}}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := p.answers[r.Method+" "+r.URL.Path]
		if answer == nil {
			refuse(http.StatusNotFound, `{"detail":"Not Found"}`)(w, r)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(p.Close)
	if answers != nil {
		p.Start()
	}
	return p
}

// read returns the body of a request.
func (p *pooler) read(r *http.Request) map[string]any {
	var asked map[string]any
	_ = json.NewDecoder(r.Body).Decode(&asked)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[r.URL.Path] = append(p.asked[r.URL.Path], asked)
	return asked
}

// last returns the last body for a path.
func (p *pooler) last(path string) map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	if all := p.asked[path]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

func refuse(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// list answers GET /v1/models.
func list(owner string) http.HandlerFunc {
	return refuse(http.StatusOK, fmt.Sprintf(`{"object":"list","data":[{"id":"served","object":"model","owned_by":%q,"max_model_len":512}]}`, owner))
}

// points are the scores of documents by their length, the most relevant first, as llama.cpp and Jina send
// them.
func points(p *pooler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked := p.read(r)
		documents, _ := asked["documents"].([]any)
		if _, ok := asked["query"].(string); !ok || len(documents) == 0 {
			refuse(http.StatusBadRequest, `{"error":{"code":400,"message":"\"query\" must be provided","type":"invalid_request_error"}}`)(w, r)
			return
		}
		var results []string
		for i := range documents {
			results = append(results, fmt.Sprintf(`{"index":%d,"relevance_score":%d}`, len(documents)-1-i, len(documents[len(documents)-1-i].(string))))
		}
		fmt.Fprintf(w, `{"model":"m","object":"list","usage":{"prompt_tokens":%d,"total_tokens":%d},"results":[%s]}`, 5*len(documents), 5*len(documents), strings.Join(results, ","))
	}
}

// pairs are the scores of pairs of texts by the lengths of both, as vLLM sends them.
func pairs(p *pooler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked := p.read(r)
		queries, documents := asked["text_1"].([]any), asked["text_2"].([]any)
		var data []string
		for i, d := range documents {
			query := queries[min(i, len(queries)-1)]
			data = append(data, fmt.Sprintf(`{"index":%d,"object":"score","score":%d}`, i, 100*len(query.(string))+len(d.(string))))
		}
		fmt.Fprintf(w, `{"id":"score-1","object":"list","data":[%s],"usage":{"prompt_tokens":%d,"total_tokens":%d}}`, strings.Join(data, ","), 7*len(data), 7*len(data))
	}
}

// texts answers requests for vectors of texts.
func texts(p *pooler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked := p.read(r)
		inputs, _ := asked["input"].([]any)
		var data []string
		for i, in := range inputs {
			text, ok := in.(string)
			if !ok {
				refuse(http.StatusBadRequest, `{"error":{"message":"only texts","type":"BadRequestError","code":400}}`)(w, r)
				return
			}
			data = append(data, fmt.Sprintf(`{"index":%d,"embedding":[%d,1]}`, i, len(text)))
		}
		fmt.Fprintf(w, `{"object":"list","data":[%s],"usage":{"prompt_tokens":3,"total_tokens":3}}`, strings.Join(data, ","))
	}
}

// rate returns a request for scores.
func rate(query string, documents ...string) *workerv1.ScoreRequest {
	return &workerv1.ScoreRequest{Queries: []string{query}, Documents: documents}
}

func noFiles() *lexicon.Model { return &lexicon.Model{VocabSize: textonly.VocabSize} }

// TestServersThatOnlyPoolAreHealthy: each make says in its own way that its model does not generate, and is
// used for what the model does.
func TestServersThatOnlyPoolAreHealthy(t *testing.T) {
	llamaRefusal := refuse(http.StatusNotImplemented, "{\"error\":{\"code\":501,\"message\":\"This server does not support completions. Start it without `--embeddings`\",\"type\":\"not_supported_error\"}}")
	ollamaRefusal := refuse(http.StatusBadRequest, `{"error":{"message":"\"served\" does not support generate","type":"invalid_request_error","param":null,"code":null}}`)
	for name, test := range map[string]struct {
		answers        func(p *pooler) map[string]http.HandlerFunc
		embeds, scores bool
		upstream       string
	}{
		"vLLM, embeddings": {func(p *pooler) map[string]http.HandlerFunc {
			return map[string]http.HandlerFunc{"GET /v1/models": list("vllm"), "POST /v1/embeddings": texts(p), "POST /score": pairs(p)}
		}, true, true, "vllm"},
		"vLLM, cross-encoder": {func(p *pooler) map[string]http.HandlerFunc {
			return map[string]http.HandlerFunc{"GET /v1/models": list("vllm"), "POST /score": pairs(p)}
		}, false, true, "vllm"},
		"llama.cpp, reranker": {func(p *pooler) map[string]http.HandlerFunc {
			return map[string]http.HandlerFunc{
				"GET /v1/models": list("llamacpp"), "POST /v1/completions": llamaRefusal, "POST /v1/chat/completions": llamaRefusal, "POST /v1/rerank": points(p),
				"POST /v1/embeddings": refuse(http.StatusOK, `{"data":[{"index":0,"embedding":[0.5]}]}`), // the score of one text: no vector
			}
		}, false, true, "llama.cpp"},
		"Ollama": {func(p *pooler) map[string]http.HandlerFunc {
			return map[string]http.HandlerFunc{
				"GET /v1/models": list("library"), "POST /v1/completions": ollamaRefusal, "POST /v1/chat/completions": ollamaRefusal, "POST /v1/embeddings": texts(p),
			}
		}, true, false, "ollama"},
		"text-embeddings-inference": {func(p *pooler) map[string]http.HandlerFunc {
			return map[string]http.HandlerFunc{"GET /info": teiInfo, "POST /v1/embeddings": texts(p)}
		}, true, false, "tei"},
		"another Whence": {func(p *pooler) map[string]http.HandlerFunc {
			return map[string]http.HandlerFunc{
				"GET /v1/models":      refuse(http.StatusOK, `{"data":[{"id":"served","owned_by":"x","context_length":512,"generates":false,"workers":{"healthy":1,"known":1}}]}`),
				"POST /v1/embeddings": texts(p),
			}
		}, true, false, "whence"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPooler(t, nil)
			p.answers = test.answers(p)
			p.Start()
			for _, model := range []*lexicon.Model{noFiles(), tinyModel(t)} {
				e := engineOf(t, model, p.URL)
				up := e.Upstream()
				if up.Ask != nil || (up.AskEmbed != nil) != test.embeds || (up.AskScore != nil) != test.scores || up.Capabilities.GetUpstream() != test.upstream || up.Context != 512 {
					t.Errorf("%+v", up)
				}
				if facts := fmt.Sprint(up.Facts); !strings.Contains(facts, "does not generate") || strings.Contains(facts, "/v1/embeddings") != test.embeds || strings.Contains(facts, "/v1/rerank") != test.scores {
					t.Error(facts)
				}
				for _, err := range e.Generate(t.Context(), request(1)) {
					if got := streamerr.As(err); got.Reason != streamerr.Invalid || got.Param != "model" {
						t.Errorf("a completion: %v", err)
					}
				}
				if resp, err := e.Embed(t.Context(), &workerv1.EmbedRequest{Texts: []string{"four", "three"}}); test.embeds && (err != nil || len(resp.GetEmbeddings()) != 2 || resp.GetEnd().GetUsage().GetPromptTokens() != 3) {
					t.Error(resp, err)
				} else if !test.embeds && streamerr.As(err).Param != "model" {
					t.Error(err)
				}
				if resp, err := e.Score(t.Context(), rate("q", "a", "bcd")); test.scores && (err != nil || len(resp.GetScores()) != 2 || !(resp.GetScores()[0] < resp.GetScores()[1])) {
					t.Error(resp, err)
				} else if !test.scores && streamerr.As(err).Param != "model" {
					t.Error(err)
				}
			}
		})
	}
}

// teiInfo answers GET /info as text-embeddings-inference does.
func teiInfo(w http.ResponseWriter, r *http.Request) {
	refuse(http.StatusOK, `{"model_id":"BAAI/bge-reranker-base","model_sha":null,"model_dtype":"float16","model_type":{"reranker":{"id2label":{"0":"LABEL_0"}}},"max_concurrent_requests":512,
		"max_input_length":512,"max_batch_tokens":16384,"max_client_batch_size":2,"auto_truncate":false,"version":"1.8.2"}`)(w, r)
}

// TestAServerThatFailsIsNoPooler: only a server that says so is taken for one that does not generate.
func TestAServerThatFailsIsNoPooler(t *testing.T) {
	for name, refusal := range map[string]http.HandlerFunc{
		"no such model": refuse(http.StatusNotFound, `{"error":{"message":"The model does not exist","type":"NotFoundError","code":404}}`),
		"refuses it":    refuse(http.StatusBadRequest, `{"error":{"message":"max_tokens is too small","type":"BadRequestError","code":400}}`),
		"fails":         refuse(http.StatusInternalServerError, `{"error":{"message":"out of memory","type":"InternalServerError","code":500}}`),
	} {
		t.Run(name, func(t *testing.T) {
			p := newPooler(t, nil)
			p.answers = map[string]http.HandlerFunc{"GET /v1/models": list("vllm"), "POST /v1/completions": refusal, "POST /v1/chat/completions": refusal, "POST /v1/embeddings": texts(p)}
			p.Start()
			e, _, _ := watchedModel(t, noFiles(), nil, p.URL, func(o *openai.Options) {
				if name == "no such model" {
					o.Model = "another"
				}
			})
			polltest.Eventually(t, "the problem is what the server has said", func() bool {
				return strings.Contains(e.Problem(), "answered with status") || strings.Contains(e.Problem(), "has no model")
			})
			if up := e.Upstream(); up != nil {
				t.Errorf("%+v", up)
			}
		})
	}
}

func TestScoresComeFromTheUpstream(t *testing.T) {
	for name, test := range map[string]struct {
		owner, path string
		scores      func(*pooler) http.HandlerFunc
		shares      int // requests for a query each
	}{
		"pairs":   {"vllm", "/score", pairs, 1},
		"reranks": {"llamacpp", "/v1/rerank", points, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPooler(t, nil)
			p.answers = map[string]http.HandlerFunc{"GET /v1/models": list(test.owner), "POST " + test.path: test.scores(p), "POST /v1/completions": refuse(http.StatusNotImplemented, `{}`), "POST /v1/chat/completions": refuse(http.StatusNotImplemented, `{}`)}
			p.Start()
			e := engineOf(t, noFiles(), p.URL)
			resp, err := e.Score(t.Context(), rate("query", "a", "bcd", "ef"))
			if err != nil || resp.GetModel() != "tiny" || resp.GetEnd().GetUsage().GetPromptTokens() == 0 {
				t.Fatal(resp, err)
			}
			if s := resp.GetScores(); !(s[0] < s[2] && s[2] < s[1]) {
				t.Error(s)
			}
			p.mu.Lock()
			before := len(p.asked[test.path])
			p.mu.Unlock()
			resp, err = e.Score(t.Context(), &workerv1.ScoreRequest{Queries: []string{"1", "22"}, Documents: []string{"abc", "a"}})
			if err != nil || len(resp.GetScores()) != 2 || test.shares == 1 && !slices.Equal(resp.GetScores(), []float32{103, 201}) || test.shares == 2 && !slices.Equal(resp.GetScores(), []float32{3, 1}) {
				t.Error(resp, err)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if n := len(p.asked[test.path]) - before; n != test.shares {
				t.Errorf("%d requests, not %d", n, test.shares)
			}
		})
	}
}

// TestRequestsAreAsLongAsTheServerTakes: text-embeddings-inference says how many texts it takes at once.
func TestRequestsAreAsLongAsTheServerTakes(t *testing.T) {
	p := newPooler(t, nil)
	p.answers = map[string]http.HandlerFunc{"GET /info": teiInfo, "POST /v1/embeddings": texts(p), "POST /rerank": func(w http.ResponseWriter, r *http.Request) {
		asked := p.read(r)
		var list []string
		for i, text := range asked["texts"].([]any) {
			list = append(list, fmt.Sprintf(`{"index":%d,"score":%d}`, i, len(text.(string))))
		}
		slices.Reverse(list) // the most relevant first
		fmt.Fprintf(w, "[%s]", strings.Join(list, ","))
	}}
	p.Start()
	e := engineOf(t, noFiles(), p.URL)
	resp, err := e.Score(t.Context(), rate("query", "a", "bb", "ccc", "dddd", "eeeee"))
	if err != nil || !slices.Equal(resp.GetScores(), []float32{1, 2, 3, 4, 5}) || resp.GetEnd().GetUsage().GetPromptTokens() == 0 {
		t.Error(resp, err)
	}
	if got := p.last("/rerank"); fmt.Sprint(got["texts"]) != "[eeeee]" || got["query"] != "query" {
		t.Error(got)
	}
	vectors, err := e.Embed(t.Context(), &workerv1.EmbedRequest{Texts: []string{"a", "bb", "ccc"}})
	if err != nil || len(vectors.GetEmbeddings()) != 3 || !(vectors.GetEmbeddings()[0].GetValues()[0] < vectors.GetEmbeddings()[2].GetValues()[0]) {
		t.Error(vectors, err)
	}
	if got := p.last("/v1/embeddings"); fmt.Sprint(got["input"]) != "[ccc]" {
		t.Error(got)
	}
}

func TestScoresOfAnUpstreamKeepTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.ScoreRequest, *workerv1.ScoreResponse] {
		p := newPooler(t, nil)
		p.answers = map[string]http.HandlerFunc{"GET /v1/models": list("vllm"), "POST /score": func(w http.ResponseWriter, r *http.Request) {
			if asked := p.read(r); asked["text_2"].([]any)[0] == "bad" {
				refuse(http.StatusBadRequest, `{"error":{"message":"bad","type":"BadRequestError","code":400}}`)(w, r)
				return
			}
			fmt.Fprint(w, `{"data":[{"index":0,"score":1}],"usage":{"prompt_tokens":2}}`)
		}}
		p.Start()
		e := engineOf(t, noFiles(), p.URL)
		return streamtest.Subject[*workerv1.ScoreRequest, *workerv1.ScoreResponse]{
			Engine: stream.Unary(e.Score),
			Short:  func() *workerv1.ScoreRequest { return rate("q", "a") },
			Bad:    func() *workerv1.ScoreRequest { return rate("q", "bad") },
			Live:   func() int { return int(e.Load().GetRunning()) },
		}
	})
}

func TestInvalidScoresAreFailuresOfTheEngine(t *testing.T) {
	p := newPooler(t, nil)
	answer := make(chan string, 1)
	p.answers = map[string]http.HandlerFunc{"GET /v1/models": list("vllm"), "POST /score": func(w http.ResponseWriter, r *http.Request) {
		select {
		case a := <-answer:
			fmt.Fprint(w, a)
		default:
			pairs(p)(w, r)
		}
	}}
	p.Start()
	e := engineOf(t, noFiles(), p.URL)
	for _, a := range []string{
		"", "{}", "[]", `{"data":[]}`, `{"data":[{"index":0,"score":1},{"index":0,"score":1}]}`, `{"data":[{"index":1,"score":1}]}`, `{"data":[{"index":-1,"score":1}]}`,
		`{"data":[{"index":0}]}`, `{"data":[{"index":0,"score":"high"}]}`, `{"data":[{"index":0,"score":1e40}]}`,
	} {
		answer <- a
		if resp, err := e.Score(t.Context(), rate("q", "a")); !errors.Is(err, streamerr.EngineFailed) || streamerr.As(err).Path.Origin() != "engine" {
			t.Errorf("%s: %v %v", a, resp, err)
		}
	}
}

func TestStopClosesTheConnectionOfScores(t *testing.T) {
	p := newPooler(t, nil)
	closed, asked := make(chan struct{}), make(chan struct{})
	var first sync.Once
	p.answers = map[string]http.HandlerFunc{"GET /v1/models": list("vllm"), "POST /score": func(w http.ResponseWriter, r *http.Request) {
		tried := true
		first.Do(func() { tried = false })
		if !tried {
			pairs(p)(w, r)
			return
		}
		p.read(r) // the server notices a closed connection only after it has read the body
		close(asked)
		<-r.Context().Done()
		close(closed)
	}}
	p.Start()
	e := engineOf(t, noFiles(), p.URL)
	ctx, ctl := stream.Detached(t.Context(), time.Second)
	defer ctl.Release()
	cause := errors.New("enough")
	go func() {
		<-asked
		ctl.Stop(cause)
	}()
	if _, err := e.Score(ctx, rate("q", "a")); !errors.Is(err, cause) {
		t.Error(err)
	}
	polltest.Receive(t, "the connection is closed", closed)
}

// TestTextOnlyEmbedsTexts: a server that generates may embed, too.
func TestTextOnlyEmbedsTexts(t *testing.T) {
	e, f := textOnly(t, counting, func(f *fake) { f.embed = vectors(true, nil) })
	if can := e.Upstream().Capabilities; can.GetPrompt() != llmv1.Form_FORM_CONVERSATION || e.Upstream().Ask == nil || f.URL == "" {
		t.Error(can)
	}
	resp, err := e.Embed(t.Context(), &workerv1.EmbedRequest{Texts: []string{"hello", "there"}})
	if err != nil || len(resp.GetEmbeddings()) != 2 {
		t.Error(resp, err)
	}
	for param, req := range map[string]*workerv1.EmbedRequest{"inputs[0]": inputs([]uint32{1}), "inputs": {Texts: []string{""}}} {
		if _, err := e.Embed(t.Context(), req); streamerr.As(err).Param != param || streamerr.As(err).Reason != streamerr.Invalid {
			t.Error(err)
		}
	}
}
