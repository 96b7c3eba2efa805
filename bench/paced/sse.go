package paced

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// maxBody bounds a request's body, in bytes.
const maxBody = 4 << 20

// flushAt is the number of bytes of an unpaced stream that are written at once, like a server with
// a buffer.
const flushAt = 4 << 10

// request is the part of a request that the engine reads.
type request struct {
	Seed      uint64 `json:"seed"`
	MaxTokens int    `json:"max_tokens"`
	Prompt    prompt `json:"prompt"` // of a completion
}

// A prompt is the number of its token ids, or 0 for a text.
type prompt struct{ tokens int }

// UnmarshalJSON implements json.Unmarshaler.
func (p *prompt) UnmarshalJSON(b []byte) error {
	if len(b) > 2 && b[0] == '[' {
		p.tokens = 1 + bytes.Count(b, []byte(","))
	}
	return nil
}

// Handler returns the interface for clients of OpenAI's API, with chats and, as vLLM has them, completions
// with token ids; and the engine's controls: PUT /pace sets the pace, and GET /endings returns and clears
// the ended streams.
func (e *Engine) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", e.serve(chatForm))
	mux.HandleFunc("POST /v1/completions", e.serve(completionForm))
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":"vllm","max_model_len":%d}]}`, Model, ContextLength)
	})
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {}) // routers of vLLM servers probe it
	mux.HandleFunc("PUT /pace", func(w http.ResponseWriter, r *http.Request) {
		var p Pace
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e.Set(p)
	})
	mux.HandleFunc("GET /endings", func(w http.ResponseWriter, _ *http.Request) {
		var s Status
		s.Ended, s.Running = e.Endings()
		_ = json.NewEncoder(w).Encode(s) // a client that has left needs no answer
	})
	return mux
}

// Status is the answer of GET /endings.
type Status struct {
	Ended   []Ending `json:"ended"`   // since the last call
	Running int      `json:"running"` // streams
}

// A form is how an interface writes an answer: what precedes the tokens, each token, and what follows.
type form struct {
	first string
	token func(event []byte, at int64) []byte
	last  string
}

// chatForm is the form of a chat completion.
func chatForm(req *request) form {
	head := fmt.Sprintf(`data: {"id":"chatcmpl-%d","object":"chat.completion.chunk","created":1700000000,"model":"%s","choices":[{"index":0,`, req.Seed, Model)
	return form{
		first: head + "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
		token: func(event []byte, at int64) []byte {
			event = appendText(append(append(event, head...), `"delta":{"content":"`...), at)
			return append(event, "\"},\"finish_reason\":null}]}\n\n"...)
		},
		last: head + `"delta":{},"finish_reason":"length"}],"usage":{"completion_tokens":` + strconv.Itoa(req.MaxTokens) + "}}\n\ndata: [DONE]\n\n",
	}
}

// completionForm is the form of a completion with token ids, as vLLM writes it.
func completionForm(req *request) form {
	head := fmt.Sprintf(`data: {"id":"cmpl-%d","object":"text_completion","created":1700000000,"model":"%s","choices":`, req.Seed, Model)
	const tail = "\"stop_reason\":null,\"prompt_token_ids\":null}],\"usage\":null}\n\n"
	return form{
		token: func(event []byte, at int64) []byte {
			event = appendText(append(append(event, head...), `[{"index":0,"text":"`...), at)
			event = append(event, `","logprobs":null,"token_ids":[`...)
			event = strconv.AppendInt(event, firstClock+at%Ticks, 10)
			return append(event, `],"finish_reason":null,`+tail...)
		},
		last: head + `[{"index":0,"text":"","logprobs":null,"token_ids":[],"finish_reason":"length",` + tail +
			head + `[],"usage":{"prompt_tokens":` + strconv.Itoa(req.Prompt.tokens) + `,"completion_tokens":` + strconv.Itoa(req.MaxTokens) + "}}\n\ndata: [DONE]\n\n",
	}
}

// serve returns the handler of an interface, which streams an answer, one event for each token.
func (e *Engine) serve(as func(*request) form) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req request
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-cache")
		e.stream(w, r, &req, as(&req))
	}
}

func (e *Engine) stream(w http.ResponseWriter, r *http.Request, req *request, f form) {
	flusher := http.NewResponseController(w)
	out := bufio.NewWriterSize(w, flushAt)
	flush := func() bool { return out.Flush() == nil && flusher.Flush() == nil }
	_, _ = out.WriteString(f.first)
	paced := e.paced()
	first := true
	var event []byte
	e.run(req.Seed, req.MaxTokens, r.Context().Done(), func(at int64) bool {
		event = f.token(event[:0], at)
		if _, err := out.Write(event); err != nil {
			return false
		}
		if paced || first {
			first = false
			return flush()
		}
		return true
	})
	if r.Context().Err() != nil {
		return
	}
	_, _ = out.WriteString(f.last)
	flush()
}

// paced reports whether new streams wait between their tokens.
func (e *Engine) paced() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pace.Period > 0
}
