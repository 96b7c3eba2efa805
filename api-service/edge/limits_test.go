package edge_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
)

// TestKeysHaveLimits checks that a request over a limit gets 429 with the time to wait, and that
// other requests learn the rest of the limit.
func TestKeysHaveLimits(t *testing.T) {
	keyed := keyFile(t, `
tenants:
  shared: {requests_per_minute: 3}
keys:
  - {key: requests, tenant: a, requests_per_minute: 2}
  - {key: tokens, tenant: b, tokens_per_minute: 2}
  - {key: streams, tenant: c, streams: 1}
  - {key: one, tenant: shared}
  - {key: two, tenant: shared}
  - {key: free, tenant: d}`)
	url, chat := start(t, keyed)
	say := asking("start m say x say y end x")
	limited := func(key, why string, resp *http.Response) {
		t.Helper()
		body := whole(t, resp)
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, why) ||
			!strings.Contains(body, "rate_limit_e") || !strings.Contains(body, `"path":["api-service"]`) { // OpenAI's code, or Anthropic's type
			t.Errorf("%s: status %d, %v: %s", key, resp.StatusCode, resp.Header, body)
		}
	}
	served := func(key string, resp *http.Response) {
		t.Helper()
		if body := whole(t, resp); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d: %s", key, resp.StatusCode, body)
		}
	}
	chats := func(key string) *http.Response {
		return ask(t, "POST", url+"/v1/chat/completions", say, bearer(key)...)
	}
	first := chats("requests")
	served("requests", first)
	if h := first.Header; h.Get("x-ratelimit-limit-requests") != "2" || h.Get("x-ratelimit-remaining-requests") != "1" || h.Get("x-ratelimit-reset-requests") == "" {
		t.Error(h)
	}
	whole(t, ask(t, "POST", url+"/tokenize", `{"prompt":"x"}`, bearer("requests")...)) // counts as well
	limited("requests", "2 requests per minute", chats("requests"))
	limited("requests of other kinds", "2 requests per minute", ask(t, "POST", url+"/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, bearer("requests")...))
	served("tokens", chats("tokens"))
	limited("tokens", "2 tokens per minute", chats("tokens"))
	served("one key of a tenant", chats("one"))
	served("another key of the tenant", chats("two"))
	served("another key of the tenant", chats("two"))
	limited("one", "this tenant may make 3 requests per minute", chats("one"))
	for range 5 {
		served("free", chats("free"))
	}
	running := ask(t, "POST", url+"/v1/chat/completions", strings.TrimSuffix(asking("start m say x hold x end x"), "}")+`,"stream":true}`, bearer("streams")...)
	limited("streams", "1 streams at a time", chats("streams"))
	close(chat.release)
	served("streams", running)
	for { // the place is free once the stream's handler has returned
		resp := chats("streams")
		if resp.StatusCode == http.StatusOK {
			served("streams", resp)
			break
		}
		whole(t, resp)
	}
}

// TestLimitsAreCheckedFirst checks that a request over a limit does not reach the stored
// conversations, and that a request that is refused after the check gives its place back.
func TestLimitsAreCheckedFirst(t *testing.T) {
	keyed := keyFile(t, `keys: [{key: requests, tenant: a, requests_per_minute: 1}, {key: streams, tenant: b, streams: 1}]`)
	url, chat := start(t, keyed)
	continues := response("start m end x", `,"previous_response_id":"resp_none"`)
	for i, want := range []int{http.StatusBadRequest, http.StatusTooManyRequests} {
		resp := ask(t, "POST", url+"/v1/responses", continues, bearer("requests")...)
		if body := whole(t, resp); resp.StatusCode != want {
			t.Errorf("request %d: status %d: %s", i, resp.StatusCode, body)
		}
	}
	for range 3 {
		resp := ask(t, "POST", url+"/v1/responses", continues, bearer("streams")...)
		if body := whole(t, resp); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("status %d: %s", resp.StatusCode, body)
		}
	}
	const running = "start m say x hold x end x"
	made := makeStream(t, url, running, append(bearer("streams"), "Idempotency-Key", "k")...)
	again := ask(t, "POST", url+"/v1/streams", asking(running), append(bearer("streams"), "Idempotency-Key", "k")...)
	if body := whole(t, again); again.StatusCode != http.StatusOK || again.Header.Get("X-Request-Id") != made.ID {
		t.Errorf("the same request again: status %d: %s", again.StatusCode, body)
	}
	for range 2 { // the refused request kept no stream that the next request would find
		other := ask(t, "POST", url+"/v1/streams", asking(running), append(bearer("streams"), "Idempotency-Key", "other")...)
		if body := whole(t, other); other.StatusCode != http.StatusTooManyRequests {
			t.Errorf("another request: status %d: %s", other.StatusCode, body)
		}
	}
	close(chat.release)
}

func TestKeysBoundRequests(t *testing.T) {
	keyed := keyFile(t, `keys: [{key: one, tenant: a, models: [m, m2], max_tokens: 100, deadline: 50ms, expires: 2999-01-01T00:00:00Z}, {key: old, tenant: a, expires: 2001-01-01T00:00:00Z}]`)
	url, _ := start(t, keyed)
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{"model":"m2","messages":[{"role":"user","content":"start m say x end x"}]}`:                 {200, "x"},
		`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"start m say x end x"}]}`: {200, "x"},
		`{"model":"m","max_tokens":101,"messages":[{"role":"user","content":"start m say x end x"}]}`: {400, `max_tokens is 101; the API key allows at most 100`},
		`{"model":"m3","messages":[{"role":"user","content":"start m say x end x"}]}`:                 {403, `"code":"model_not_found"`},
		`{"model":"m","messages":[{"role":"user","content":"start m hold x end x"}]}`:                 {504, `"reason":"deadline"`},
		`{"model":"m","timeout":600,"messages":[{"role":"user","content":"start m hold x end x"}]}`:   {504, `"reason":"deadline"`},
	} {
		resp := ask(t, "POST", url+"/v1/chat/completions", body, bearer("one")...)
		if text := whole(t, resp); resp.StatusCode != want.status || !strings.Contains(text, want.text) {
			t.Errorf("%s: status %d: %s", body, resp.StatusCode, text)
		}
	}
	// The default of /generate is 128.
	if resp := ask(t, "POST", url+"/generate", `{"model":"m","text":"start m say x end x"}`, bearer("one")...); resp.StatusCode != http.StatusOK {
		t.Error("a request that names no max_tokens is refused:", whole(t, resp))
	}
	if resp := ask(t, "POST", url+"/generate", `{"text":"x"}`, bearer("one")...); resp.StatusCode != http.StatusForbidden || !strings.Contains(whole(t, resp), `"param":"model"`) {
		t.Error("a request without a model is served:", resp.StatusCode)
	}
	for path, body := range map[string]string{
		"/tokenize":                 `{"model":%q,"prompt":"x"}`,
		"/detokenize":               `{"model":%q,"tokens":[1]}`,
		"/v1/messages/count_tokens": `{"model":%q,"messages":[{"role":"user","content":"x"}]}`,
	} {
		if resp := ask(t, "POST", url+path, fmt.Sprintf(body, "m3"), bearer("one")...); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s with a model of others: status %d: %s", path, resp.StatusCode, whole(t, resp))
		}
		if resp := ask(t, "POST", url+path, fmt.Sprintf(body, "m"), bearer("one")...); resp.StatusCode == http.StatusForbidden {
			t.Errorf("%s with the key's model: %s", path, whole(t, resp))
		}
	}
	if resp := ask(t, "GET", url+"/v1/models", "", bearer("old")...); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(whole(t, resp), "has expired") {
		t.Error("an expired key is accepted:", resp.StatusCode)
	}
}

// TestKeysAreReloaded checks that a new key is valid without a restart, and that an invalid file
// changes nothing.
func TestKeysAreReloaded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("keys: [{key: one, tenant: a}]")
	logs := new(logtest.Log)
	url, _ := startLogging(t, logs, func(c *edge.Config) { c.Keys = path })
	status := func(key string) int {
		resp := ask(t, "GET", url+"/v1/models", "", bearer(key)...)
		whole(t, resp)
		return resp.StatusCode
	}
	if status("one") != 200 || status("two") != 401 {
		t.Fatal("the keys are not those of the file")
	}
	write("keys: [{key: two, tenant: a}]")
	polltest.Eventually(t, "the new key is valid", func() bool { return status("two") == 200 })
	if status("one") != 401 {
		t.Error("a removed key is still valid")
	}
	write("keys: [")
	polltest.Eventually(t, "the file is refused", func() bool { return len(logs.Lines("the key file is refused")) > 0 })
	if status("two") != 200 {
		t.Error("the key is not valid any more")
	}
}
