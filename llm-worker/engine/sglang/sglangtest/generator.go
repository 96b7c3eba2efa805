package sglangtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Generator is the dialect of the HTTP API. seeded makes the server honour seeds
// (--enable-deterministic-inference). With incremental, an event does not repeat the answer so far.
func Generator(seeded, incremental bool) besidetest.Dialect {
	return generator(&web{incremental: incremental, soFar: make(map[string][]uint32)}, seeded)
}

// Seeing is the dialect of the HTTP API of a server whose model sees images. The prompt must have a
// placeholder for each image, and an image takes ImageTokens tokens of the context.
func Seeing(placeholder uint32) besidetest.Dialect {
	return generator(&web{placeholder: placeholder, soFar: make(map[string][]uint32)}, false)
}

const (
	// ImageTokens is the number of tokens that an image takes.
	ImageTokens = 64
	// Unlimited is the number of tokens of an answer whose length is not limited.
	Unlimited = 7
)

func generator(w *web, seeded bool) besidetest.Dialect {
	return besidetest.Dialect{
		Loads: true,
		Chunk: w.chunk,
		Complete: func(r besidetest.Request, finish string, _ []uint32, sent int) besidetest.Message {
			var ids []uint32
			if !w.incremental {
				ids = w.so(r.ID)
			}
			said, _ := json.Marshal(map[string]any{"type": finish}) // text, which JSON can encode
			return slices.Concat(w.event(r, ids, sent, string(said)), besidetest.Message("data: [DONE]\n\n"))
		},
		AbortedFinish: "abort",
		HTTP: func(s *besidetest.Server) http.Handler {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
				s.Looks.Add(1)
				if s.NoModel.Load() {
					_, _ = fmt.Fprint(w, `{"object":"list","data":[]}`)
					return
				}
				_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":"org/tiny","object":"model","owned_by":"sglang","max_model_len":%d},
					{"id":"legal","object":"model","owned_by":"sglang","root":"/adapters/legal","parent":"org/tiny","max_model_len":null}]}`, besidetest.Context)
			})
			mux.HandleFunc("GET /metrics", func(rw http.ResponseWriter, _ *http.Request) {
				running, waiting := s.Requests()
				_, _ = fmt.Fprintf(rw, "# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{model_name=\"tiny\"} %d.0\nsglang:num_queue_reqs{model_name=\"tiny\"} %d.0\n"+
					"sglang:num_used_tokens %d.0\nsglang:max_total_num_tokens 9000.0\n", running, waiting, 100*running)
			})
			mux.HandleFunc("GET /get_server_info", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"model_path":"org/tiny","enable_deterministic_inference":%t,"version":"0.5"}`, seeded)
			})
			mux.HandleFunc("GET /get_model_info", func(rw http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(rw, `{"model_path":"org/tiny","is_generation":true,"has_image_understanding":%t,"has_audio_understanding":false}`, w.placeholder > 0)
			})
			mux.HandleFunc("POST /abort_request", func(_ http.ResponseWriter, r *http.Request) {
				var asked struct{ RID string }
				if err := json.NewDecoder(r.Body).Decode(&asked); s.Deaf.Load() {
					<-r.Context().Done()
				} else if err == nil {
					s.Abort([]string{asked.RID})
				}
			})
			mux.HandleFunc("POST /generate", func(rw http.ResponseWriter, r *http.Request) { w.generate(s, rw, r) })
			return mux
		},
	}
}

// A web is the state of the HTTP API.
type web struct {
	incremental bool
	placeholder uint32 // 0 for a model that sees no images

	mu    sync.Mutex // guards the following field
	soFar map[string][]uint32
}

func (w *web) so(id string) []uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.soFar[id])
}

func (w *web) chunk(r besidetest.Request, ids []uint32, sent int) besidetest.Message {
	w.mu.Lock()
	w.soFar[r.ID] = append(w.soFar[r.ID], ids...)
	w.mu.Unlock()
	if !w.incremental {
		ids = w.so(r.ID)
	}
	return w.event(r, ids, sent, "null")
}

func (w *web) event(r besidetest.Request, ids []uint32, sent int, finish string) besidetest.Message {
	b, _ := json.Marshal(slices.Concat([]uint32{}, ids)) // numbers, which JSON can encode
	return fmt.Appendf(nil, "data: {\"text\":\"so far\",\"output_ids\":%s,\"meta_info\":{\"id\":%q,\"finish_reason\":%s,\"prompt_tokens\":%d,"+
		"\"completion_tokens\":%d,\"cached_tokens\":2,\"weight_version\":\"default\",\"e2e_latency\":0.1%s}}\n\n",
		b, r.ID, finish, len(r.Prompt)+(ImageTokens-1)*len(r.Images), sent, logprobs(r.Logprobs, ids))
}

// logprobs returns the log-probabilities of an event's ids, as members of its meta_info.
func logprobs(n int, ids []uint32) string {
	if n < 0 {
		return ""
	}
	output, top := [][]any{}, [][][]any{}
	for _, id := range ids {
		chosen, likeliest := besidetest.Likeliest(id, n)
		output = append(output, []any{chosen.Logprob, chosen.ID, nil})
		var list [][]any
		for _, c := range likeliest {
			list = append(list, []any{c.Logprob, c.ID, nil})
		}
		top = append(top, list)
	}
	b, _ := json.Marshal(map[string]any{"output_token_logprobs": output, "output_top_logprobs": top}) // numbers, which JSON can encode
	return "," + strings.Trim(string(b), "{}")
}

// generate answers a request. An error is an HTTP status, or an event if the answer has begun.
func (w *web) generate(s *besidetest.Server, rw http.ResponseWriter, r *http.Request) {
	var asked struct {
		RID      string
		InputIDs []uint32 `json:"input_ids"`
		Adapter  string   `json:"lora_path"`
		Images   []string `json:"image_data"`
		Stream   bool
		Params   map[string]any `json:"sampling_params"`
		Logprob  bool           `json:"return_logprob"`
		Start    int            `json:"logprob_start_len"`
		Top      int            `json:"top_logprobs_num"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	req := besidetest.Request{ID: asked.RID, Prompt: asked.InputIDs, Adapter: asked.Adapter, Images: asked.Images, Stream: asked.Stream, Sampling: asked.Params, Metadata: metadata.MD{}}
	if req.Logprobs = -1; asked.Logprob && asked.Start == -1 {
		req.Logprobs = asked.Top
	}
	req.Metadata.Set("traceparent", r.Header.Values("traceparent")...)
	for ours, theirs := range map[string]string{"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"} {
		n, limited := asked.Params[theirs].(float64)
		if !limited && theirs == "max_new_tokens" {
			n = Unlimited
		}
		delete(asked.Params, theirs)
		asked.Params[ours] = uint64(n)
	}
	if problem := w.refusal(req); problem != "" {
		rw.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(rw, `{"error":{"message":%q}}`, problem)
		return
	}
	begun := false
	err := s.Play(req, func(m besidetest.Message) {
		if !begun {
			rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		}
		begun = true
		_, _ = rw.Write(m)
		rw.(http.Flusher).Flush() //nolint:forcetypeassert // net/http's
	}, r.Context().Done())
	if err == nil {
		return
	}
	body, _ := json.Marshal(map[string]any{"error": map[string]any{"message": status.Convert(err).Message()}})
	if !begun {
		rw.WriteHeader(streamerr.FromGRPC("sglang", err).Reason.HTTPStatus())
		_, _ = rw.Write(body)
		return
	}
	_, _ = fmt.Fprintf(rw, "data: %s\n\ndata: [DONE]\n\n", body)
}

// refusal returns why a request is refused, or "". A server whose model sees no images ignores them.
func (w *web) refusal(r besidetest.Request) string {
	if w.placeholder == 0 {
		return ""
	}
	places := 0
	for _, id := range r.Prompt {
		if id == w.placeholder {
			places++
		}
	}
	limit, _ := r.Sampling["max_tokens"].(uint64)
	switch {
	case places != len(r.Images):
		return fmt.Sprintf("%d placeholders for %d images", places, len(r.Images))
	case len(r.Prompt)+(ImageTokens-1)*places+int(limit) > besidetest.Context: //nolint:gosec // a test's
		return "Requested token count exceeds the model's maximum context length"
	default:
		return ""
	}
}
