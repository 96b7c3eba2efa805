package fake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
)

// models serves the list of models.
func (s *server) models(mux *http.ServeMux, owner string) {
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		say(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": s.model, "object": "model", "owned_by": owner, "max_model_len": s.context}}})
	})
}

func say(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have left
}

// event sends the data of an event.
func event(w http.ResponseWriter, v any) {
	data, _ := json.Marshal(v) // cannot fail: maps of strings and numbers
	_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
	w.(http.Flusher).Flush() //nolint:forcetypeassert // a server's writer
}

func done(w http.ResponseWriter) { _, _ = fmt.Fprint(w, "data: [DONE]\n\n") }

// vllm serves the parts of vLLM's API.
func (s *server) vllm(mux *http.ServeMux) {
	s.models(mux, "vllm")
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} %d\n", s.count())
	})
	var number atomic.Int64
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Prompt    []uint32 `json:"prompt"`
			MaxTokens int      `json:"max_tokens"`
			ReturnIDs bool     `json:"return_token_ids"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Prompt) == 0 || len(asked.Prompt)+asked.MaxTokens > s.context || !asked.ReturnIDs {
			w.WriteHeader(http.StatusBadRequest)
			say(w, map[string]any{"error": map[string]any{"message": "the fake takes token ids that fit, and returns token ids", "type": "BadRequestError", "code": http.StatusBadRequest}})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		found := 0
		choice := func(ids []uint32, finish any) map[string]any {
			return map[string]any{"id": "cmpl", "object": "text_completion", "choices": []any{map[string]any{"index": 0, "text": "", "token_ids": ids, "finish_reason": finish}}}
		}
		err := s.answer(r.Context(), request{strconv.FormatInt(number.Add(1), 10), asked.Prompt, asked.MaxTokens}, func(id uint32, cached int) {
			found = cached
			event(w, choice([]uint32{id}, nil))
		})
		if err != nil {
			return
		}
		event(w, choice(nil, "length"))
		event(w, map[string]any{"choices": []any{}, "usage": map[string]any{
			"prompt_tokens": len(asked.Prompt), "completion_tokens": asked.MaxTokens, "prompt_tokens_details": map[string]any{"cached_tokens": found},
		}})
		done(w)
	})
}

// sglang serves the parts of SGLang's API.
func (s *server) sglang(mux *http.ServeMux) {
	s.models(mux, "sglang")
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{model_name=\"m\"} %d\n", s.count())
	})
	mux.HandleFunc("GET /get_server_info", func(w http.ResponseWriter, _ *http.Request) {
		say(w, map[string]any{"model_path": s.model, "enable_deterministic_inference": s.invariant})
	})
	mux.HandleFunc("POST /abort_request", func(_ http.ResponseWriter, r *http.Request) {
		var asked struct {
			ID string `json:"rid"`
		}
		if json.NewDecoder(r.Body).Decode(&asked) == nil && asked.ID != "" {
			s.abort(asked.ID)
		}
	})
	mux.HandleFunc("POST /generate", func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			ID       string   `json:"rid"`
			Prompt   []uint32 `json:"input_ids"`
			Sampling struct {
				MaxTokens int `json:"max_new_tokens"`
			} `json:"sampling_params"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Prompt) == 0 || len(asked.Prompt)+asked.Sampling.MaxTokens > s.context {
			w.WriteHeader(http.StatusBadRequest)
			say(w, map[string]any{"error": map[string]any{"message": "the fake takes token ids that fit"}})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		var soFar []uint32
		found := 0
		piece := func(finish any) map[string]any {
			return map[string]any{"text": "", "output_ids": soFar, "meta_info": map[string]any{
				"id": asked.ID, "finish_reason": finish, "prompt_tokens": len(asked.Prompt), "completion_tokens": len(soFar), "cached_tokens": found,
			}}
		}
		err := s.answer(r.Context(), request{asked.ID, asked.Prompt, asked.Sampling.MaxTokens}, func(id uint32, cached int) {
			soFar, found = append(soFar, id), cached
			event(w, piece(nil))
		})
		if err != nil {
			event(w, piece(map[string]any{"type": "abort", "message": "aborted"}))
			return
		}
		event(w, piece(map[string]any{"type": "length", "length": len(soFar)}))
		done(w)
	})
}
