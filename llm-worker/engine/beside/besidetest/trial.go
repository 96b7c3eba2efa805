package besidetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// IsTrial reports whether the id of a request is that of an engine's trial.
func IsTrial(id string) bool { return strings.HasPrefix(id, "trial-") }

// try answers the request of a trial: with one token, or with the text that its guide allows.
func (s *Server) try(r Request, send func(Message)) error {
	if unknown := s.Unknown.Load(); unknown != nil {
		for _, field := range *unknown {
			if _, set := r.Sampling[field]; set || field == "logprobs" && r.Logprobs >= 0 {
				return status.Errorf(codes.InvalidArgument, "%s is not supported", field)
			}
		}
	}
	a := &Answer{Request: r, Server: s, Send: send}
	ids := []uint32{7}
	if text := Guided(r.Sampling); text != "" && !s.Void.Load() {
		ids = Tiny().Encode(text, false)
	}
	a.Chunk(ids...)
	a.Complete("length")
	return nil
}

// Guided returns the text that the constraint of a trial allows; "" without one.
func Guided(fields map[string]any) string {
	for _, name := range []string{"json_schema", "structural_tag", "grammar", "format", "response_format"} {
		constraint, ok := fields[name]
		switch text := fmt.Sprint(constraint); {
		case !ok || constraint == nil:
		case strings.Contains(text, `"b`), strings.Contains(text, "value:b"):
			return `b"a"`
		default:
			return `"a"`
		}
	}
	return ""
}

// Complete answers the request of a trial to POST /v1/completions, as vLLM does: with one token, or with the
// text that its guide allows. inIDs makes it return the token ids, and void ignore the guide.
func Complete(w http.ResponseWriter, asked map[string]any, inIDs, void bool) {
	answer := []uint32{10}
	if text := Guided(asked); text != "" && !void {
		answer = Tiny().Encode(text, false)
	}
	choice := map[string]any{"index": 0, "text": Tiny().Decode(answer, true), "finish_reason": "length"}
	if inIDs {
		choice["token_ids"] = answer
	}
	if asked["logprobs"] != nil {
		prompt, _ := asked["prompt"].([]any)
		if asked["echo"] != true {
			prompt = nil
		}
		var tokens []string
		var likely, top []any
		for i, id := range append(prompt, 10) {
			name := fmt.Sprintf("token_id:%v", id)
			tokens, likely, top = append(tokens, name), append(likely, -1), append(top, map[string]float32{name: -1})
			if i == 0 && len(prompt) > 0 {
				likely[0], top[0] = nil, nil
			}
		}
		choice["logprobs"] = map[string]any{"tokens": tokens, "token_logprobs": likely, "top_logprobs": top}
	}
	event, _ := json.Marshal(map[string]any{"choices": []any{choice}}) // text and numbers, which JSON can encode
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	_, _ = fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", event)
}
