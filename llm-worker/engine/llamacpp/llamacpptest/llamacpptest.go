// Package llamacpptest is a fake of llama.cpp's server: its own API, as the server's README has it. A
// script provides the answers.
package llamacpptest

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Dialect is the dialect of the server.
func Dialect() besidetest.Dialect { return new(Slots).Dialect() }

// Slots are the slots of a fake, as GET /slots shows them. A slot is busy for as long as its request.
type Slots struct {
	// Linger is the number of times that a slot is still shown as busy after its client has left.
	Linger atomic.Int32
	Queue  atomic.Bool  // requests wait, and have no slot
	Off    atomic.Bool  // the server was started with --no-slots
	Shown  atomic.Int32 // answers to GET /slots

	mu   sync.Mutex // guards the following field
	busy []*busySlot
}

// A busySlot works on a request, or seems to for a number of further looks.
type busySlot struct {
	seed    any
	left    bool
	lingers int32
}

// enter gives a request a slot, and returns a function that ends the request.
func (s *Slots) enter(r *http.Request, seed any, deaf *atomic.Bool) (leave func()) {
	if s.Queue.Load() {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := &busySlot{seed: seed}
	s.busy = append(s.busy, slot)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if slot.left = !deaf.Load(); r.Context().Err() != nil {
			slot.lingers = s.Linger.Load()
		}
		s.busy = slices.DeleteFunc(s.busy, (*busySlot).isFree)
	}
}

// isFree reports whether the slot is shown as busy no more.
func (s *busySlot) isFree() bool { return s.left && s.lingers == 0 }

// show returns all slots, with those of other clients.
func (s *Slots) show(others int) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Shown.Add(1)
	all := []map[string]any{{"id": 0, "n_ctx": besidetest.Context, "speculative": false, "is_processing": false}}
	show := func(seed any) {
		all = append(all, map[string]any{"id": len(all), "n_ctx": besidetest.Context, "is_processing": true, "params": map[string]any{"seed": seed, "temperature": 1.0}})
	}
	for range others {
		show(uint32(math.MaxUint32)) // a request without a seed
	}
	for _, slot := range s.busy {
		show(slot.seed)
		if slot.left {
			slot.lingers--
		}
	}
	s.busy = slices.DeleteFunc(s.busy, (*busySlot).isFree)
	return all
}

// Dialect is the dialect of a server with these slots.
func (s *Slots) Dialect() besidetest.Dialect {
	slots := s
	return besidetest.Dialect{
		HangsUp: true,
		Loads:   true,
		Chunk: func(r besidetest.Request, ids []uint32, sent int) besidetest.Message {
			e := partial(r, ids, sent)
			for i := range ids {
				if r.Logprobs < 0 {
					break
				}
				chosen, top := besidetest.Likeliest(ids[i], r.Logprobs)
				p := probability(chosen)
				for _, c := range top {
					p["top_logprobs"] = append(p["top_logprobs"].([]any), probability(c)) //nolint:forcetypeassert // probability's
				}
				e["completion_probabilities"] = append(e["completion_probabilities"].([]any), p) //nolint:forcetypeassert // as below
			}
			return Event(e)
		},
		Complete: func(r besidetest.Request, finish string, _ []uint32, sent int) besidetest.Message {
			e := partial(r, nil, sent)
			e["stop"], e["stop_type"], e["stopping_word"] = true, finish, ""
			for ours, theirs := range map[string]string{"stop": "eos", "length": "limit"} {
				if finish == ours {
					e["stop_type"] = theirs
				}
			}
			return Event(e)
		},
		AbortedFinish: "none",
		HTTP: func(s *besidetest.Server) http.Handler {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /props", func(rw http.ResponseWriter, _ *http.Request) {
				s.Looks.Add(1)
				if s.NoModel.Load() {
					refuse(rw, http.StatusServiceUnavailable, "Loading model", "unavailable_error")
					return
				}
				_, _ = fmt.Fprintf(rw, `{"default_generation_settings":{"id":0,"n_ctx":%d,"params":{"n_predict":-1}},"total_slots":4,"model_alias":"tiny",
					"model_path":"/models/tiny-q8.gguf","chat_template":"{{ x }}","build_info":"b1-x","is_sleeping":false}`, besidetest.Context)
			})
			mux.HandleFunc("GET /slots", func(rw http.ResponseWriter, _ *http.Request) {
				if slots.Off.Load() {
					refuse(rw, http.StatusNotImplemented, "This server does not support slots endpoint.", "not_supported_error")
					return
				}
				running, waiting := s.Others()
				_ = json.NewEncoder(rw).Encode(slots.show(running + waiting))
			})
			mux.HandleFunc("GET /v1/models", func(rw http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(rw, `{"object":"list","data":[{"id":"tiny","object":"model","owned_by":"llamacpp","meta":{"vocab_type":2,"n_vocab":%d,"n_ctx":%d,"n_ctx_train":%d}}]}`,
					s.Vocab.Load(), besidetest.Context, besidetest.Context)
			})
			mux.HandleFunc("POST /tokenize", besidetest.Tokenize)
			mux.HandleFunc("POST /apply-template", applyTemplate)
			mux.HandleFunc("POST /completion", func(rw http.ResponseWriter, r *http.Request) { complete(s, slots, rw, r) })
			return mux
		},
	}
}

// applyTemplate answers with the prompt of one message of a user.
func applyTemplate(rw http.ResponseWriter, r *http.Request) {
	var asked struct {
		Messages []struct{ Role, Content string }
	}
	if json.NewDecoder(r.Body).Decode(&asked) != nil || len(asked.Messages) != 1 || asked.Messages[0].Role != "user" {
		refuse(rw, http.StatusBadRequest, "'messages' is required", "invalid_request_error")
		return
	}
	_ = json.NewEncoder(rw).Encode(map[string]string{"prompt": besidetest.Rendered(asked.Messages[0].Content)})
}

// Event is the bytes of an event.
func Event(data map[string]any) besidetest.Message {
	b, _ := json.Marshal(data) // text and numbers, which JSON can encode
	return fmt.Appendf(nil, "data: %s\n\n", b)
}

// partial is an event of an answer. Its tokens have no text, because their ids are made up.
func partial(r besidetest.Request, ids []uint32, sent int) map[string]any {
	if ids == nil {
		ids = []uint32{}
	}
	return map[string]any{
		"index": 0, "content": "", "tokens": ids, "stop": false, "id_slot": -1, "tokens_predicted": sent, "tokens_evaluated": len(r.Prompt),
		"timings": map[string]any{"cache_n": 2, "prompt_n": max(0, len(r.Prompt)-2), "prompt_ms": 0.1}, "completion_probabilities": []any{},
	}
}

func probability(c besidetest.Candidate) map[string]any {
	return map[string]any{"id": c.ID, "logprob": c.Logprob, "token": "x", "bytes": []int{120}, "top_logprobs": []any{}}
}

func refuse(rw http.ResponseWriter, status int, message, kind string) {
	rw.WriteHeader(status)
	_, _ = fmt.Fprintf(rw, `{"error":{"code":%d,"message":%q,"type":%q}}`, status, message, kind)
}

// Refusal returns the message with which the server, since its requests have a schema (b10434 and b11549
// were tried), refuses a field whose value is out of range; "" if it takes all fields. It clamps the other
// numbers in silence.
func Refusal(fields map[string]any) string {
	for _, limit := range []struct {
		field string
		least float64
	}{{"n_predict", -1}, {"repeat_last_n", 0}, {"dry_penalty_last_n", 0}, {"dry_allowed_length", 0}, {"min_keep", 0}} {
		if n, ok := fields[limit.field].(float64); ok && (n < limit.least || n > math.MaxInt32) {
			return fmt.Sprintf("Field '%s': Value must be between %.0f <= value <= %d, but got %.0f", limit.field, limit.least, math.MaxInt32, n)
		}
	}
	if penalty, ok := fields["repeat_penalty"].(float64); ok && penalty <= 0 {
		return "Failed to initialize samplers: penalty_repeat must be finite and greater than 0"
	}
	return ""
}

// complete answers a request. An error is an HTTP status, or an event if the answer has begun.
func complete(s *besidetest.Server, slots *Slots, rw http.ResponseWriter, r *http.Request) {
	var asked map[string]any
	var prompt struct{ Prompt []uint32 }
	var raw json.RawMessage
	if json.NewDecoder(r.Body).Decode(&raw) != nil || json.Unmarshal(raw, &asked) != nil || json.Unmarshal(raw, &prompt) != nil {
		refuse(rw, http.StatusBadRequest, "not JSON", "invalid_request_error")
		return
	}
	req := besidetest.Request{Prompt: prompt.Prompt, Stream: asked["stream"] == true, Sampling: asked, Metadata: metadata.MD{}, Logprobs: -1}
	req.Metadata.Set("traceparent", r.Header.Values("traceparent")...)
	if n, ok := asked["n_probs"].(float64); ok {
		req.Logprobs = int(n)
	}
	if message := Refusal(asked); message != "" {
		refuse(rw, http.StatusBadRequest, message, "invalid_request_error")
		return
	}
	if id := r.Header.Get("X-Request-Id"); besidetest.IsTrial(id) {
		req.ID = id
	}
	limit, _ := asked["n_predict"].(float64)
	asked["max_tokens"] = uint64(limit)
	for _, name := range []string{"prompt", "stream", "n_predict", "n_probs"} {
		delete(asked, name)
	}
	defer slots.enter(r, asked["seed"], &s.Deaf)()
	begun := false
	err := s.Play(req, func(m besidetest.Message) {
		if !begun {
			rw.Header().Set("Content-Type", "text/event-stream")
		}
		begun = true
		_, _ = rw.Write(m)
		rw.(http.Flusher).Flush() //nolint:forcetypeassert // net/http's
	}, r.Context().Done())
	if err == nil {
		return
	}
	why := streamerr.FromGRPC("llama.cpp", err).Reason.HTTPStatus()
	if !begun {
		refuse(rw, why, status.Convert(err).Message(), "server_error")
		return
	}
	_, _ = rw.Write(Event(map[string]any{"error": map[string]any{"code": why, "message": status.Convert(err).Message(), "type": "server_error"}}))
}
