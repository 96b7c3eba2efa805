package sglangtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Generator is the dialect of the HTTP API. seeded makes the server honour seeds
// (--enable-deterministic-inference). With incremental, an event does not repeat the answer so far.
func Generator(seeded, incremental bool) besidetest.Dialect {
	w := &web{incremental: incremental, soFar: make(map[string][]uint32)}
	return besidetest.Dialect{
		Chunk: w.chunk,
		Complete: func(r besidetest.Request, finish string, _ []uint32, sent int) besidetest.Message {
			var ids []uint32
			if !incremental {
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
			mux.HandleFunc("GET /get_server_info", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"model_path":"org/tiny","enable_deterministic_inference":%t,"version":"0.5"}`, seeded)
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
		"\"completion_tokens\":%d,\"cached_tokens\":2,\"weight_version\":\"default\",\"e2e_latency\":0.1}}\n\n", b, r.ID, finish, len(r.Prompt), sent)
}

// generate answers a request. An error is an HTTP status, or an event if the answer has begun.
func (w *web) generate(s *besidetest.Server, rw http.ResponseWriter, r *http.Request) {
	var asked struct {
		RID      string
		InputIDs []uint32 `json:"input_ids"`
		Adapter  string   `json:"lora_path"`
		Stream   bool
		Params   map[string]any `json:"sampling_params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	req := besidetest.Request{ID: asked.RID, Prompt: asked.InputIDs, Adapter: asked.Adapter, Stream: asked.Stream, Sampling: asked.Params, Metadata: metadata.MD{}}
	req.Metadata.Set("traceparent", r.Header.Values("traceparent")...)
	for ours, theirs := range map[string]string{"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"} {
		n, _ := asked.Params[theirs].(float64)
		delete(asked.Params, theirs)
		asked.Params[ours] = uint64(n)
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
