package edge_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
)

// ollamaTimes matches the parts of Ollama's answers that have times.
var ollamaTimes = regexp.MustCompile(`("created_at":"|_duration":)[^",}]+`)

// askOllama sends a request without a Content-Type of JSON, as curl sends the examples of Ollama's
// documents. It returns the status and the body, without times.
func askOllama(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	resp := ask(t, method, url, body, append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)...)
	return resp, ollamaTimes.ReplaceAllString(whole(t, resp), "${1}")
}

func TestOllamasAnswersAreLinesUntilTheirEnd(t *testing.T) {
	url, _ := start(t, nil)
	const (
		head = `{"model":"m:latest","created_at":"","message":{"role":"assistant","content":`
		done = `,"done":true,"done_reason":"stop","total_duration":,"load_duration":,"prompt_eval_count":9,"prompt_eval_duration":,"eval_count":0,"eval_duration":}`
	)
	chat := func(script, more string) string {
		return `{"model":"m:latest","messages":[{"role":"user","content":"` + script + `"}]` + more + `}`
	}
	for _, c := range []struct{ path, body, kind, want string }{
		{"/api/chat", chat("start m say one say two end 9/4", ""), "application/x-ndjson", head + `"one"},"done":false}` + "\n" + head + `"two"},"done":false}` + "\n" + head + `""}` + done + "\n"},
		{"/api/chat", chat("start m say one say two end 9/4", `,"stream":false`), "application/json", head + `"onetwo"}` + done},
		{"/api/chat", chat(`start m call {\"a\":1} end 9/4`, `,"stream":false`), "application/json", head + `"","tool_calls":[{"id":"c","function":{"index":0,"name":"f","arguments":{"a":1}}}]}` + done},
		{"/api/generate", `{"model":"m","prompt":"start m say one end 9/4","stream":false}`, "application/json", `{"model":"m","created_at":"","response":"one"` + done},
		{"/api/embed", `{"model":"m","input":["x"]}`, "application/json", `{"model":"m","embeddings":[[0.5]],"total_duration":,"load_duration":,"prompt_eval_count":3}`},
		{"/api/embeddings", `{"model":"m","prompt":"x"}`, "application/json", `{"embedding":[0.5]}`},
		{"/api/generate", `{"model":"org/m:latest","keep_alive":0}`, "application/json", `{"model":"org/m:latest","created_at":"","response":"","done":true,"done_reason":"unload"}`},
		{"/api/pull", `{"model":"org/m"}`, "application/json", `{"status":"success"}` + "\n"},
	} {
		resp, body := askOllama(t, http.MethodPost, url+c.path, c.body)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != c.kind || body != c.want {
			t.Errorf("%s: %d %v\n%s\nwant\n%s", c.body, resp.StatusCode, resp.Header, body, c.want)
		}
	}
}

// TestOllamasFailedStreamEndsWithALineAndWithoutAnEnd: the line has the ending, and a silent stream has
// headers and no comments.
func TestOllamasFailedStreamEndsWithALineAndWithoutAnEnd(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.HeadersAfter, c.KeepAlive = 1, 1 })
	const ending = `{"error":"as scripted","whence":{"reason":"peer_lost","origin":"chat-service","path":["chat-service","api-service"]}}` + "\nCUT"
	resp, body := askOllama(t, http.MethodPost, url+"/api/chat", `{"model":"m","messages":[{"role":"user","content":"start m wait 50ms say hello wait 50ms fail peer_lost"}]}`)
	lines := strings.SplitAfterN(body, "\n", 2)
	if resp.StatusCode != http.StatusOK || !strings.HasSuffix(lines[0], `"content":"hello"},"done":false}`+"\n") || lines[1] != ending {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestOllamasRefusalsHaveItsForm(t *testing.T) {
	url, _ := start(t, nil)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/api/chat", `{"model":"m","messages":[{"role":"user","content":"fail overloaded"}]}`, 429, `{"error":"as scripted","whence":{"reason":"overloaded",`},
		{"POST", "/api/chat", `{"messages":[]}`, 400, `{"error":"model is required",`},
		{"POST", "/api/chat", `{"model":"nope"}`, 404, `{"error":"model \"nope\" not found",`},
		{"POST", "/api/show", `{"model":"nope"}`, 404, `{"error":"model \"nope\" not found",`},
		{"POST", "/api/pull", `{"name":"nope"}`, 404, `{"error":"model \"nope\" not found, and is not pulled: the models`},
		{"POST", "/api/embed", `{"model":"m","input":["fail invalid"]}`, 400, `{"error":"input[0] is as scripted",`},
		{"POST", "/api/push", `{}`, 400, `{"error":"/api/push is not offered: `},
		{"DELETE", "/api/delete", `{"model":"m"}`, 400, `{"error":"/api/delete is not offered: `},
		{"GET", "/api/nope", "", 404, `{"error":"there is no /api/nope",`},
		{"GET", "/api/chat", "", 405, `{"error":"/api/chat does not take GET",`},
	} {
		if resp, body := askOllama(t, c.method, url+c.path, c.body); resp.StatusCode != c.status || !strings.HasPrefix(body, c.want) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, resp.StatusCode, body)
		}
	}
	// A page of another site can send this type without a question of its browser.
	if resp, body := askOllama(t, http.MethodPost, url+"/api/chat", `{"model":"m"}`, "Origin", "http://localhost:1"); resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("a page: %d %s", resp.StatusCode, body)
	}
}

func TestOllamasClientsFindTheServerAndItsModels(t *testing.T) {
	url, _ := start(t, nil)
	for path, want := range map[string]string{
		"/api/tags": `{"models":[{"name":"org/m:latest",`, "/api/ps": `{"models":[]}`, "/api/version": `{"version":"0.`,
	} {
		if status, body := get(t, url+path); status != http.StatusOK || !strings.HasPrefix(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
		wantStatus(t, http.MethodHead, url+path, "", "", http.StatusOK)
	}
	if resp, body := askOllama(t, http.MethodPost, url+"/api/show", `{"name":"org/m:latest"}`); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"capabilities":["completion","tools"]`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	bare, _ := startWithAdmin(t, "127.0.0.1:0", nil)
	for at, gets := range map[string]int{url: http.StatusOK, bare: http.StatusNotFound} {
		wantStatus(t, http.MethodHead, at+"/", "", "", http.StatusOK)
		wantStatus(t, http.MethodGet, at+"/", "", "", gets)
	}
}
