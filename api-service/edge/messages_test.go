package edge_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
)

// messages returns a request of Anthropic's API for a script.
func messages(script string, more string) string {
	return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"` + script + `"}]` + more + `}`
}

// An apiError is an error in Anthropic's form.
type apiError struct {
	Type      string
	Error     struct{ Type, Message string }
	RequestID string `json:"request_id"`
	Whence    struct {
		Reason, Origin, Param string
		Path                  []string
	}
}

// wantError checks that body is an error in Anthropic's form.
func wantError(t *testing.T, body, kind, reason, path string) {
	t.Helper()
	var got apiError
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if got.Type != "error" || got.Error.Type != kind || got.Error.Message == "" || got.RequestID == "" ||
		got.Whence.Reason != reason || strings.Join(got.Whence.Path, " > ") != path || got.Whence.Origin != got.Whence.Path[0] {
		t.Errorf("%s, want %s, %s from %s", body, kind, reason, path)
	}
}

// eventNames returns the names of a body's events, in order.
func eventNames(body string) (all []string) {
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			all = append(all, strings.TrimSpace(name))
		}
	}
	return all
}

func TestMessagesAreStreamedToTheirEnd(t *testing.T) {
	url, _ := start(t, nil)
	resp := ask(t, http.MethodPost, url+"/v1/messages", messages("start m say hello end x", `,"stream":true`), "X-Request-Id", "mine", "anthropic-version", "2023-06-01", "anthropic-beta", "any")
	body := whole(t, resp)
	want := []string{"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}
	if got := eventNames(body); resp.StatusCode != http.StatusOK || resp.Header.Get("request-id") != "mine" || !slices.Equal(got, want) || !strings.Contains(body, `"id":"msg_mine"`) {
		t.Errorf("%d %v: %s", resp.StatusCode, resp.Header, body)
	}
	resp = ask(t, http.MethodPost, url+"/v1/messages", messages("start m say hello end x", ""))
	if body := whole(t, resp); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"content":[{"type":"text","text":"hello"}]`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestMessagesThatFailEndWithOneErrorEvent(t *testing.T) {
	url, _ := start(t, nil)
	for how, reason := range map[string]string{"fail peer_lost": "peer_lost", "fail draining": "draining", "panic oops": "internal", "": "internal"} {
		kind := "api_error"
		if reason == "draining" {
			kind = "overloaded_error"
		}
		body := whole(t, ask(t, http.MethodPost, url+"/v1/messages", messages("start m say hello "+how, `,"stream":true`)))
		names := eventNames(body)
		if last := len(names) - 1; slices.Contains(names, "message_stop") || slices.Index(names, "error") != last {
			t.Errorf("%s: %v", how, names)
		}
		_, last, _ := strings.Cut(body, "event: error\ndata: ")
		last, cut := strings.CutSuffix(last, "CUT")
		if !cut {
			t.Errorf("%s: the body ends cleanly", how)
		}
		wantError(t, strings.TrimSpace(last), kind, reason, "chat-service > api-service")
	}
}

func TestMessagesThatAreRefusedHaveAStatus(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.Strict = true })
	for reason, want := range map[string]struct {
		status int
		kind   string
	}{
		"invalid": {400, "invalid_request_error"}, "not_found": {404, "not_found_error"}, "overloaded": {529, "overloaded_error"},
		"deadline": {504, "timeout_error"}, "draining": {503, "overloaded_error"}, "peer_lost": {502, "api_error"}, "user_stop": {409, "api_error"},
	} {
		for _, more := range []string{"", `,"stream":true`} {
			resp := ask(t, http.MethodPost, url+"/v1/messages", messages("fail "+reason, more))
			if resp.StatusCode != want.status || resp.Header.Get("Retry-After") != "2" || resp.Header.Get("request-id") == "" {
				t.Errorf("%s: %d %v", reason, resp.StatusCode, resp.Header)
			}
			wantError(t, whole(t, resp), want.kind, reason, "chat-service > api-service")
		}
	}
	for name, request := range map[string]struct {
		method, path, body, header, value string
		status                            int
		kind, reason                      string
	}{
		"a field":      {"POST", "/v1/messages", messages("x", `,"n":2`), "", "", 400, "invalid_request_error", "invalid"},
		"a version":    {"POST", "/v1/messages", messages("x", ""), "anthropic-version", "newest", 400, "invalid_request_error", "invalid"},
		"a thread":     {"POST", "/v1/messages?beta=true", messages("x", `,"thread":{"type":"create"}`), "whence-strict", "0", 400, "invalid_request_error", "invalid"},
		"a long body":  {"POST", "/v1/messages", messages(strings.Repeat("x", 20000), ""), "", "", 413, "request_too_large", "invalid"},
		"a method":     {"GET", "/v1/messages", "", "", "", 405, "invalid_request_error", "invalid"},
		"a count":      {"POST", "/v1/messages/count_tokens", messages("x", `,"novelty":1`), "", "", 400, "invalid_request_error", "invalid"},
		"its version":  {"POST", "/v1/messages/count_tokens", "{}", "anthropic-version", "newest", 400, "invalid_request_error", "invalid"},
		"a lower path": {"POST", "/v1/messages/batches", "{}", "", "", 404, "not_found_error", "not_found"},
		"a model":      {"GET", "/v1/models/none", "", "anthropic-version", "2023-06-01", 404, "not_found_error", "not_found"},
	} {
		var headers []string
		if request.header != "" {
			headers = []string{request.header, request.value}
		}
		resp := ask(t, request.method, url+request.path, request.body, headers...)
		if resp.StatusCode != request.status || resp.Header.Get("request-id") == "" {
			t.Errorf("%s: %d %v", name, resp.StatusCode, resp.Header)
		}
		wantError(t, whole(t, resp), request.kind, request.reason, "api-service")
	}
}

func TestModelsHaveTheFormOfTheClientsAPI(t *testing.T) {
	url, _ := start(t, nil)
	for path, want := range map[string]string{
		"/v1/models":       `^{"data":\[({"type":"model","id":"[^"]+","display_name":"[^"]+","created_at":"[0-9-]+T[0-9:]+Z","max_input_tokens":\d+,"max_tokens":\d+},?)+\],"has_more":false,"first_id":"[^"]+","last_id":"[^"]+"}$`,
		"/v1/models/org/m": `^{"type":"model","id":"org/m","display_name":"org/m",`,
	} {
		resp := ask(t, http.MethodGet, url+path, "", "anthropic-version", "2023-06-01", "x-api-key", "k")
		if body := whole(t, resp); !regexp.MustCompile(want).MatchString(body) || resp.Header.Get("request-id") == "" {
			t.Errorf("%s: %s", path, body)
		}
		if body := whole(t, ask(t, http.MethodGet, url+path, "")); !strings.Contains(body, `"object":"model"`) {
			t.Errorf("%s of OpenAI's API: %s", path, body)
		}
	}
}

// TestTokensOfTheNoteForAnImageAreCounted: a model that takes no images sees a note in the place of an
// image, and one that the answer needs is refused.
func TestTokensOfTheNoteForAnImageAreCounted(t *testing.T) {
	url, _ := start(t, nil)
	const shot = `[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QQ=="}}]`
	for content, want := range map[string]string{
		`[{"type":"tool_result","tool_use_id":"t","content":` + shot + `}]`: `{"input_tokens":7}`, shot: `"param":"messages[0].content[0].source.data"`,
	} {
		if got := whole(t, ask(t, http.MethodPost, url+"/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":`+content+`}]}`)); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", content, got, want)
		}
	}
}

func TestASilentMessageIsPinged(t *testing.T) {
	const soon = 20 * time.Millisecond
	for script, c := range map[string]struct {
		headersAfter time.Duration
		want         []string
	}{"wait 1h": {soon, []string{"ping", "ping"}}, "start m say x wait 1h": {time.Hour, []string{"message_start", "content_block_start", "content_block_delta", "ping"}}} {
		want := c.want
		url, _ := start(t, func(conf *edge.Config) { conf.HeadersAfter, conf.KeepAlive = c.headersAfter, soon })
		resp := ask(t, http.MethodPost, url+"/v1/messages", messages(script, `,"stream":true`))
		lines := bufio.NewScanner(resp.Body)
		var names []string
		for len(names) < len(want) && lines.Scan() {
			names = append(names, eventNames(lines.Text())...)
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s: %v, want %v: %v", script, names, want, lines.Err())
		}
		_ = resp.Body.Close()
	}
}

// TestFieldsThatCannotBeHonouredAreLeftOutAndTold: the header, the record and the counter name the
// fields, and never a value. A strict service, and a strict request, refuse them.
func TestFieldsThatCannotBeHonouredAreLeftOutAndTold(t *testing.T) {
	for path, c := range map[string]struct{ body, ignored string }{
		"/v1/messages?beta=true": {messages("start m end x", `,"tools":[{"type":"web_search_20250305","name":"web_search"}]`), "anthropic-version, tools[].web_search"},
		"/v1/messages":           {messages("start m end x", `,"container":"secret-7","novelty":"secret-7"`), "container, novelty"},
		"/v1/chat/completions":   {`{"model":"m","prediction":{"content":"secret-7"},"novelty":1,"messages":[{"role":"user","content":"start m end x"}]}`, "novelty, prediction"},
		"/generate":              {`{"model":"m","text":"x","novelty":1}`, "novelty"},
		"/api/chat":              {`{"model":"m","keep_alive":"5m","options":{"num_ctx":1,"novelty":"secret-7"},"messages":[{"role":"user","content":"start m end x"}]}`, "keep_alive, options.novelty, options.num_ctx"},
		"/v1/responses":          {`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"https://secret-7/"}]},{"role":"assistant","content":"x"},{"role":"user","content":"start m end x"}]}`, "input[].content[].image_url"},
		"/v1/streams":            {`{"model":"m","messages":[{"role":"user","novelty":{"novelty":"secret-7"},"content":"start m end x"}]}`, "messages[].novelty"},
	} {
		url, _ := start(t, func(*edge.Config) {})
		var version []string
		if strings.HasPrefix(c.ignored, "anthropic-version") {
			version = []string{"anthropic-version", "2024-02-29"}
		}
		resp := ask(t, http.MethodPost, url+path, c.body, version...)
		body := whole(t, resp)
		if got := resp.Header.Get("whence-ignored"); resp.StatusCode/100 != 2 || got != c.ignored {
			t.Errorf("%s: %d %s, and left out are %q", path, resp.StatusCode, body, got)
		}
		if story := whole(t, ask(t, http.MethodGet, url+"/v1/streams/"+resp.Header.Get("X-Request-Id"), "")); !strings.Contains(story, strings.Split(c.ignored, ", ")[0]) || strings.Contains(story, "secret-7") {
			t.Errorf("%s: the story is %s", path, story)
		}
		if resp := ask(t, http.MethodPost, url+path, c.body, "whence-strict", "1"); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: a strict request gets %d %s", path, resp.StatusCode, whole(t, resp))
		}
		refusing, _ := start(t, func(c *edge.Config) { c.Strict = true })
		if resp := ask(t, http.MethodPost, refusing+path, c.body); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: a strict service answers %d %s", path, resp.StatusCode, whole(t, resp))
		}
	}
}

func TestAKeyMayComeAsAnthropicsClientsSendIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(path, []byte("keys: [{key: one, tenant: a}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	url, chat := start(t, func(c *edge.Config) { c.Keys = path })
	for _, request := range []struct {
		headers []string
		status  int
	}{
		{nil, 401},
		{[]string{"x-api-key", "one"}, 200},
		{[]string{"x-api-key", "two"}, 401},
		{[]string{"Authorization", "Bearer one"}, 200},
		{[]string{"Authorization", "Bearer one", "x-api-key", "two"}, 200},
		{[]string{"Authorization", "Bearer two", "x-api-key", "one"}, 401},
	} {
		resp := ask(t, http.MethodPost, url+"/v1/messages", messages("start m end x", ""), request.headers...)
		body := whole(t, resp)
		if resp.StatusCode != request.status {
			t.Errorf("%v: %d %s", request.headers, resp.StatusCode, body)
		}
		if request.status == http.StatusUnauthorized {
			wantError(t, body, "authentication_error", "unauthenticated", "api-service")
		} else if owner := chat.claim.Load().GetTenant(); owner != "a" {
			t.Errorf("%v: the tenant is %q", request.headers, owner)
		}
	}
}
