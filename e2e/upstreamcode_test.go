package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// scripted starts a bad engine that selects a script by a request's max_tokens.
func scripted(t *testing.T, scripts map[int]http.HandlerFunc) (url string) {
	t.Helper()
	return badEngine(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var asked struct {
			MaxTokens int `json:"max_tokens"`
		}
		if err := json.Unmarshal(body, &asked); err != nil || scripts[asked.MaxTokens] == nil {
			t.Errorf("%v: no script for max_tokens %d: %s", err, asked.MaxTokens, body)
			return
		}
		scripts[asked.MaxTokens](w, r)
	})
}

// refuses answers with a status and an error object of OpenAI's form.
func refuses(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":"no, says the engine","type":"invalid_request_error","param":null,"code":%q}}`, code)
	}
}

// TestCodeOfTheEngineReachesTheClient checks that a provider's own code travels through three
// services, in streams too, because clients look for it.
func TestCodeOfTheEngineReachesTheClient(t *testing.T) {
	t.Parallel()
	inStream := `data: {"error":{"message":"no, says the engine","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}` + "\n\n"
	w := run(t, separate, flags{worker: onServer("openai", scripted(t, map[int]http.HandlerFunc{
		20: refuses(http.StatusBadRequest, "context_length_exceeded"),
		21: refuses(http.StatusBadRequest, "no word, and <b>no code</b>"),
		22: breaksOff(inStream),
	}))})
	for n, code := range map[int]string{20: "context_length_exceeded", 21: ""} {
		r := w.post(t, greedy(short, "max_tokens", n))
		e := r.completion(t).Error
		if r.status != http.StatusBadRequest || e.code() != code || e.Reason != "invalid" || e.Type != "invalid_request_error" || !strings.Contains(e.Message, "no, says the engine") {
			t.Errorf("status %d: %+v", r.status, e)
		}
	}
	e := w.open(t, greedy(short, "max_tokens", 22)).failed(t)
	if e.code() != "context_length_exceeded" || e.Reason != "invalid" || strings.Join(e.Path, " > ") != "engine > llm-worker/0 > chat-service > api-service" {
		t.Errorf("%+v", e)
	}
}
