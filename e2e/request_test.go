package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The model and the prompts of most tests.
const (
	model  = "whence-tiny"
	short  = "What happens when I close the tab?"              // the answer has about 50 tokens
	long   = "Tell me a long story about a fox in the harbor." // the answer has about 400 tokens
	idName = "X-Request-Id"
)

// An ask is a body of POST /v1/chat/completions.
type ask map[string]any

// greedy returns a request for the most likely answer. more has additional fields: names and
// values.
func greedy(prompt string, more ...any) ask {
	a := ask{"model": model, "temperature": 0, "messages": []any{map[string]any{"role": "user", "content": prompt}}}
	for i := 0; i < len(more); i += 2 {
		a[more[i].(string)] = more[i+1]
	}
	return a
}

// texted returns a request for the most likely continuation of a prompt, in a few tokens.
func texted(prompt any, more ...any) ask {
	a := ask{"model": model, "temperature": 0, "max_tokens": 8, "prompt": prompt}
	for i := 0; i < len(more); i += 2 {
		a[more[i].(string)] = more[i+1]
	}
	return a
}

// send sends a request. With an empty id the service generates one. The test closes the body.
func (w *whence) send(t *testing.T, a ask, id string) (*http.Response, error) {
	return w.sendTo(t, "/v1/chat/completions", a, id)
}

func (w *whence) sendTo(t *testing.T, path string, a ask, id string) (*http.Response, error) {
	return w.do(t.Context(), http.MethodPost, w.url(path), a, idName, id)
}

// do sends a request with JSON as its body, or with a text. headers are names and values; those without
// a value are left out.
func (w *whence) do(ctx context.Context, method, url string, body any, headers ...string) (*http.Response, error) {
	text, ok := body.(string)
	if !ok {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return w.http.Do(req)
}

// replyTo returns a function that reads the whole response to a request, which must be answered.
func replyTo(t *testing.T) func(resp *http.Response, err error) reply {
	t.Helper()
	return func(resp *http.Response, err error) reply {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return readAll(t, resp)
	}
}

// A reply is a whole response.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// post sends a request and reads the whole response.
func (w *whence) post(t *testing.T, a ask) reply {
	t.Helper()
	return replyTo(t)(w.send(t, a, ""))
}

func (w *whence) postTo(t *testing.T, path string, a ask) reply {
	t.Helper()
	return replyTo(t)(w.sendTo(t, path, a, ""))
}

func readAll(t *testing.T, resp *http.Response) reply {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("status %s, then %v after %q", resp.Status, err, body)
	}
	return reply{resp.StatusCode, resp.Header, body}
}

// A completion is the body of an unstreamed answer, or of a refusal.
type completion struct {
	ID      string
	Model   string
	Choices []struct {
		Message      struct{ Role, Content string }
		FinishReason string `json:"finish_reason"`
	}
	Usage *usage
	Error *refusal
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

// A refusal is an error object, in a body or in a stream.
type refusal struct {
	Message, Type string
	Param, Code   *string
	Reason        string
	Path          []string
}

// UnmarshalJSON reads the reason and the path from the member whence.
func (r *refusal) UnmarshalJSON(b []byte) error {
	type plain refusal
	object := struct {
		*plain
		Whence struct {
			Reason, Origin string
			Path           []string
		}
	}{plain: (*plain)(r)}
	err := json.Unmarshal(b, &object)
	r.Reason, r.Path = object.Whence.Reason, object.Whence.Path
	if err == nil && len(r.Path) > 0 && object.Whence.Origin != r.Path[0] {
		err = fmt.Errorf("the origin %q does not begin the path %v", object.Whence.Origin, r.Path)
	}
	return err
}

// reason returns the reason of a failed or refused stream, or "" without an error.
func (r *refusal) reason() string {
	if r == nil {
		return ""
	}
	return r.Reason
}

// code returns the error's code.
func (r *refusal) code() string {
	if r == nil || r.Code == nil {
		return ""
	}
	return *r.Code
}

func (r reply) completion(t *testing.T) completion {
	t.Helper()
	var c completion
	if err := json.Unmarshal(r.body, &c); err != nil {
		t.Fatalf("status %d with %q: %v", r.status, r.body, err)
	}
	return c
}

// answer requests an unstreamed answer, which must succeed.
func (w *whence) answer(t *testing.T, a ask) string {
	t.Helper()
	r := w.post(t, a)
	c := r.completion(t)
	if r.status != http.StatusOK || len(c.Choices) != 1 {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	return c.Choices[0].Message.Content
}

// works checks that the service answers a valid request.
func (w *whence) works(t *testing.T) {
	t.Helper()
	if text := w.answer(t, greedy("What is 2 + 3?")); text != "2 + 3 = 5." {
		t.Errorf("2 + 3 is answered with %q", text)
	}
}
