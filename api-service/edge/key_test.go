package edge_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

func TestKeysDecideWhatACallerMayDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(path, []byte(`
keys:
  - {key: one, tenant: a, weight: 3}
  - {key: two, tenant: b, tier: priority, leave: drain}
  - {key: three, tenant: c, tier: flex, leaves: ["linger:1m", drain]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	url, chat := start(t, func(c *edge.Config) { c.Keys, c.OperatorKey = path, "op" })

	for _, request := range []struct {
		method, path, key string
		want              int
	}{
		{"GET", "/", "", 200}, {"GET", "/healthz", "", 200}, {"GET", "/readyz", "", 503}, {"HEAD", "/healthz", "", 200}, {"HEAD", "/readyz", "", 503},
		{"GET", "/v1/models", "", 401}, {"GET", "/v1/models", "four", 401}, {"GET", "/v1/models", "one", 200},
		{"GET", "/v1/workers", "", 401}, {"GET", "/v1/streams", "", 401}, {"GET", "/v1/streams/x?token=x", "", 401},
		{"DELETE", "/v1/streams/x/events?token=x", "", 405}, {"POST", "/abort_request", "", 401}, {"GET", "/nowhere", "", 401},
		{"POST", "/v1/chat/completions", "", 401}, {"POST", "/v1/streams", "four", 401}, {"GET", "/favicon.ico", "", 200},
		{"GET", "/v1/streams/events?token=x", "", 401}, {"DELETE", "/v1/streams/seen?token=x", "", 401}, {"GET", "/v1/streams/x/events?token=x", "", 404},
		{"GET", "/v1/streams", "op", 200}, {"GET", "/v1/models", "op", 200}, {"DELETE", "/v1/streams/x", "op", 404}, // the operator lists and stops streams, but creates none
		{"POST", "/v1/chat/completions", "op", 403}, {"POST", "/v1/streams", "op", 403}, {"POST", "/generate", "op", 403},
	} {
		var headers []string
		if request.key != "" {
			headers = []string{"Authorization", "Bearer " + request.key}
		}
		resp := ask(t, request.method, url+request.path, asking("start m end x"), headers...)
		body := whole(t, resp)
		if resp.StatusCode != request.want {
			t.Errorf("%v: status %d: %.200s", request, resp.StatusCode, body)
		}
		if resp.StatusCode == http.StatusForbidden && (resp.Header.Get("WWW-Authenticate") != "" || !strings.Contains(body, `"reason":"forbidden"`)) {
			t.Errorf("%v: %v %s", request, resp.Header, body)
		}
		challenge := "Bearer"
		if request.key != "" {
			challenge = `Bearer error="invalid_token"`
		}
		if resp.StatusCode == http.StatusUnauthorized && (resp.Header.Get("WWW-Authenticate") != challenge || resp.Header.Get("X-Request-Id") == "" || !strings.Contains(body, `"reason":"unauthenticated"`)) {
			t.Errorf("%v: %v %s", request, resp.Header, body)
		}
	}

	for _, stream := range []struct {
		key, tier string
		status    int
		claim     *llmv1.Claim
	}{
		{"one", "", 200, &llmv1.Claim{Tenant: "a", Weight: 3, Tier: llmv1.Tier_TIER_DEFAULT}},
		{"one", "auto", 200, &llmv1.Claim{Tenant: "a", Weight: 3, Tier: llmv1.Tier_TIER_DEFAULT}},
		{"one", "priority", 403, nil},
		{"two", "priority", 200, &llmv1.Claim{Tenant: "b", Weight: 1, Tier: llmv1.Tier_TIER_PRIORITY}},
		{"two", "flex", 200, &llmv1.Claim{Tenant: "b", Weight: 1, Tier: llmv1.Tier_TIER_FLEX}},
		{"two", "first", 200, &llmv1.Claim{Tenant: "b", Weight: 1, Tier: llmv1.Tier_TIER_DEFAULT}},
		{"two", "", 200, &llmv1.Claim{Tenant: "b", Weight: 1, Tier: llmv1.Tier_TIER_DEFAULT}},
		{"three", "", 200, &llmv1.Claim{Tenant: "c", Weight: 1, Tier: llmv1.Tier_TIER_FLEX}},
		{"three", "auto", 200, &llmv1.Claim{Tenant: "c", Weight: 1, Tier: llmv1.Tier_TIER_FLEX}},
		{"three", "default", 403, nil},
	} {
		body := asking("start m say x end x")
		if stream.tier != "" {
			body = strings.TrimSuffix(body, "}") + `,"service_tier":"` + stream.tier + `"}`
		}
		resp := ask(t, "POST", url+"/v1/chat/completions", body, "Authorization", "Bearer "+stream.key)
		if text := whole(t, resp); resp.StatusCode != stream.status {
			t.Errorf("%v: status %d: %s", stream, resp.StatusCode, text)
		} else if resp.StatusCode != http.StatusOK {
			if !strings.Contains(text, `"param":"service_tier"`) {
				t.Errorf("%v: %s", stream, text)
			}
			continue
		}
		if got := chat.claim.Load(); got.GetTenant() != stream.claim.GetTenant() || got.GetWeight() != stream.claim.GetWeight() || got.GetTier() != stream.claim.GetTier() {
			t.Errorf("%v: claimed %v", stream, got)
		}
	}

	// A token reads a stream without a key.
	m := makeStream(t, url, "start m say x end x", "Authorization", "Bearer one")
	if _, text := events(t, ask(t, "GET", url+m.Events+"?token="+m.Token, "")); text != "x" {
		t.Errorf("read %q", text)
	}
}

// TestKeysBoundLeavePolicies checks that a stream has the leave policy of its key, unless the
// request asks for another policy that the key allows.
func TestKeysBoundLeavePolicies(t *testing.T) {
	keyed := keyFile(t, `keys:
  - {key: one, tenant: a}
  - {key: two, tenant: b, leave: drain}
  - {key: three, tenant: c, leaves: ["linger:1m", drain]}`)
	url, _ := start(t, func(c *edge.Config) { keyed(c); c.LeaveEvents = edge.DefaultLeaveEvents })
	for _, c := range []struct{ key, path, asks, want string }{
		{"one", "/v1/chat/completions", "", "cancel"}, {"one", "/v1/chat/completions", "detach", "detach"},
		{"two", "/v1/chat/completions", "", "drain"}, {"two", "/v1/chat/completions", "cancel", "cancel"},
		{"two", "/v1/chat/completions", "linger:1s", ""}, {"two", "/v1/streams", "detach", ""},
		{"three", "/v1/chat/completions", "", "cancel"}, {"three", "/v1/streams", "", "linger:30s"},
		{"three", "/v1/streams", "linger:1m", "linger:1m0s"}, {"three", "/v1/streams", "linger:61s", ""}, {"three", "/v1/chat/completions", "detach", ""},
	} {
		auth := bearer(c.key)
		asks := auth
		if c.asks != "" {
			asks = append(asks, "X-Leave", c.asks)
		}
		resp := ask(t, "POST", url+c.path, asking("start m say x end x"), asks...)
		body := whole(t, resp)
		if c.want == "" {
			if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, `"param":"X-Leave"`) {
				t.Errorf("%v: %d %s", c, resp.StatusCode, body)
			}
			continue
		}
		story := whole(t, ask(t, "GET", url+"/v1/streams/"+resp.Header.Get("X-Request-Id"), "", auth...))
		if !strings.Contains(story, `"leave":"`+c.want+`"`) {
			t.Errorf("%v: the story is %s", c, story)
		}
	}
}
