package paced

import (
	"bufio"
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

// request is the part of a chat completion that the engine reads.
type request struct {
	Seed      uint64 `json:"seed"`
	MaxTokens int    `json:"max_tokens"`
}

// Handler returns the interface for clients of OpenAI's API, and the engine's controls: PUT /pace
// sets the pace, and GET /endings returns and clears the ended streams.
func (e *Engine) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", e.complete)
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
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

// complete streams an answer, one event for each token.
func (e *Engine) complete(w http.ResponseWriter, r *http.Request) {
	var req request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	flusher := http.NewResponseController(w)
	out := bufio.NewWriterSize(w, flushAt)
	flush := func() bool { return out.Flush() == nil && flusher.Flush() == nil }

	head := fmt.Sprintf(`{"id":"chatcmpl-%d","object":"chat.completion.chunk","created":1700000000,"model":"%s","choices":[{"index":0,`, req.Seed, Model)
	_, _ = fmt.Fprintf(out, "data: %s\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n", head)
	paced := e.paced()
	first := true
	var event []byte
	e.run(req.Seed, req.MaxTokens, r.Context().Done(), func(at int64) bool {
		event = append(append(event[:0], "data: "...), head...)
		event = appendText(append(event, `"delta":{"content":"`...), at)
		event = append(event, "\"},\"finish_reason\":null}]}\n\n"...)
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
	_, _ = out.WriteString("data: " + head + `"delta":{},"finish_reason":"length"}],"usage":{"completion_tokens":` + strconv.Itoa(req.MaxTokens) + "}}\n\ndata: [DONE]\n\n")
	flush()
}

// paced reports whether new streams wait between their tokens.
func (e *Engine) paced() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pace.Period > 0
}
