package edge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/api-service/keys/issuertest"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
)

// trusting has an edge accept the tokens of an issuer, beside the key of a tenant. more are further fields of the issuer.
func trusting(t *testing.T, at *issuertest.Issuer, more string) func(*edge.Config) {
	t.Helper()
	return keyFile(t, `
keys: [{key: sk-corp, tenant: corp}]
issuers: [{issuer: "`+at.URL+`", name: idp, audience: whence, tenant_claim: org, use_scope: whence.use, operator_scope: whence.operate, `+more+`}]`)
}

// awaitListStatus asks with a key until the answer has a status.
func awaitListStatus(t *testing.T, url, key string, want int) {
	t.Helper()
	polltest.Eventually(t, fmt.Sprintf("the status is %d", want), func() bool {
		resp := ask(t, http.MethodGet, url+"/v1/streams", "", bearer(key)...)
		_ = whole(t, resp)
		return resp.StatusCode == want
	})
}

// TestTokensIdentifyTenants: a token makes streams of the tenant that it names, which the keys and the other tokens of the tenant
// own, too, and other tenants do not. The engine learns tenant and subject.
func TestTokensIdentifyTenants(t *testing.T) {
	at := issuertest.New(t)
	url, chat := start(t, trusting(t, at, "tier: priority"))
	alice, bob := at.Token(t, nil), at.Token(t, map[string]any{"sub": "bob"})
	stranger, operator := at.Token(t, map[string]any{"org": "else"}), at.Token(t, map[string]any{"scope": "whence.operate"})
	id := plainStream(t, url, bearer(alice)...)
	if claim := chat.claim.Load(); claim.GetTenant() != "corp" || claim.GetKey() != "idp/alice" || claim.GetOwner() == "" {
		t.Errorf("the claim is %v", claim)
	}
	for _, p := range []probe{
		{"GET", "/v1/streams/" + id, alice, 200}, {"GET", "/v1/streams/" + id, bob, 200}, {"GET", "/v1/streams/" + id, "sk-corp", 200},
		{"GET", "/v1/streams/" + id, stranger, 404}, {"DELETE", "/v1/streams/" + id, stranger, 404}, {"GET", "/v1/workers", alice, 403},
		{"GET", "/v1/streams/" + id, operator, 200}, {"GET", "/v1/workers", operator, 200}, {"POST", "/v1/chat/completions", operator, 403},
	} {
		p.check(t, url)
	}
	if resp := ask(t, http.MethodPost, url+"/v1/messages", strings.Replace(asking("start m end x"), "{", `{"max_tokens":5,`, 1), "x-api-key", bob); resp.StatusCode != http.StatusOK {
		t.Error(whole(t, resp))
	} else {
		whole(t, resp)
	}
	probe{"DELETE", "/v1/streams/" + id, bob, 202}.check(t, url)
}

// TestBadTokensAreRefused: with 401 and 403, a challenge, and errors of the API, and no part of the token is in an answer or in
// the log.
func TestBadTokensAreRefused(t *testing.T) {
	at := issuertest.New(t)
	logs := new(logtest.Log)
	url, _ := startLogging(t, logs, trusting(t, at, ""))
	good := at.Token(t, nil)
	awaitListStatus(t, url, good, http.StatusOK)
	const invalid, scope = `Bearer error="invalid_token"`, `Bearer error="insufficient_scope"`
	for what, c := range map[string]struct {
		token, challenge string
		status           int
	}{
		"nothing":           {"", "Bearer", 401},
		"expired":           {at.Token(t, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}), invalid, 401},
		"another audience":  {at.Token(t, map[string]any{"aud": "else"}), invalid, 401},
		"another issuer":    {issuertest.New(t).Token(t, nil), invalid, 401},
		"no signature":      {good[:strings.LastIndexByte(good, '.')+1], invalid, 401},
		"another signature": {good[:len(good)-8] + "AAAAAAAA", invalid, 401},
		"alg none":          {"eyJhbGciOiJub25lIn0." + strings.Split(good, ".")[1] + ".", invalid, 401},
		"without the scope": {at.Token(t, map[string]any{"scope": "openid"}), scope, 403},
		"without a tenant":  {at.Token(t, map[string]any{"org": nil}), scope, 403},
	} {
		for _, path := range []string{"/v1/chat/completions", "/v1/streams", "/v1/responses"} {
			resp := ask(t, http.MethodPost, url+path, asking("start m end x"), bearer(c.token)...)
			body := whole(t, resp)
			var e struct {
				Error struct {
					Message, Type, Code string
					Whence              struct{ Reason string }
				}
			}
			if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error.Message == "" || e.Error.Type == "" || e.Error.Whence.Reason == "" {
				t.Errorf("%s: %v: %s", what, err, body)
			}
			if resp.StatusCode != c.status || resp.Header.Get("WWW-Authenticate") != c.challenge || c.challenge == invalid && e.Error.Code != "invalid_api_key" {
				t.Errorf("%s: %d, %q: %s", what, resp.StatusCode, resp.Header.Get("WWW-Authenticate"), body)
			}
			for part := range strings.SplitSeq(c.token, ".") {
				if len(part) > 4 && (strings.Contains(body, part) || strings.Contains(logs.String(), part)) {
					t.Errorf("%s: the token is in the answer or in the log: %s", what, body)
				}
			}
		}
	}
}

// TestIssuerMayBeAway: an edge starts without its issuer, serves keys, refuses the tokens of the issuer with 503, and accepts them when
// the issuer answers.
func TestIssuerMayBeAway(t *testing.T) {
	t.Parallel()
	at := issuertest.New(t)
	at.SetDown(true)
	url, _ := start(t, trusting(t, at, ""))
	token := at.Token(t, nil)
	resp := ask(t, http.MethodPost, url+"/v1/chat/completions", asking("start m end x"), bearer(token)...)
	if body := whole(t, resp); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || resp.Header.Get("WWW-Authenticate") != "" || !strings.Contains(body, `"reason":"unavailable"`) {
		t.Errorf("%d, %v: %s", resp.StatusCode, resp.Header, body)
	}
	probe{"GET", "/v1/streams", "sk-corp", 200}.check(t, url)
	probe{"GET", "/v1/streams", "sk-other", 401}.check(t, url)
	at.SetDown(false)
	awaitListStatus(t, url, token, http.StatusOK)
	at.SetDown(true)
	probe{"POST", "/v1/chat/completions", token, 200}.check(t, url)
}

// TestTokensExpireBetweenStreams: a stream outlives the token that made it, and the token makes no further one, on a new
// connection or on a WebSocket that it has opened.
func TestTokensExpireBetweenStreams(t *testing.T) {
	t.Parallel()
	at := issuertest.New(t)
	trusts := trusting(t, at, "skew: 5m")
	var path string
	url, chat := start(t, func(c *edge.Config) { trusts(c); path = c.Keys })
	token := at.Token(t, map[string]any{"exp": time.Now().Add(-time.Second).Unix()}) // valid within the skew
	running := ask(t, http.MethodPost, url+"/v1/chat/completions", strings.Replace(asking("start m say one hold x say two end x"), "{", `{"stream":true,`, 1), bearer(token)...)
	if running.StatusCode != http.StatusOK {
		t.Fatal(whole(t, running))
	}
	talk := dialogue(t, url, bearer(token)...)
	create(talk, "start m say one end x", "")
	if m, _ := receiveEnd(t, talk); m.Type != "response.completed" {
		t.Fatalf("%+v", m)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Without the skew the token has expired, whatever the clock says.
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "skew: 5m", "skew: 0s", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitListStatus(t, url, token, http.StatusUnauthorized)
	probe{"POST", "/v1/chat/completions", token, 401}.check(t, url)
	create(talk, "start m say two end x", "")
	if m, _ := receiveEnd(t, talk); m.Type != "error" || m.Status != http.StatusUnauthorized || m.Error.Whence.Reason != "unauthenticated" && m.Whence.Reason != "unauthenticated" {
		t.Errorf("%+v", m)
	}
	close(chat.release)
	if body := whole(t, running); !strings.Contains(body, "two") || !strings.Contains(body, "[DONE]") {
		t.Errorf("the stream ends with %s", body)
	}
}

// TestOperatorsMayHaveTokens: on the admin listener, beside the operator's key, and on no public listener beside it.
func TestOperatorsMayHaveTokens(t *testing.T) {
	at := issuertest.New(t)
	trusts := trusting(t, at, "")
	url, port := startWithAdmin(t, "127.0.0.1:0", func(c *edge.Config) { trusts(c); c.OperatorKey = "op" })
	caller, operator, both := at.Token(t, nil), at.Token(t, map[string]any{"scope": "whence.operate"}), at.Token(t, map[string]any{"scope": "whence.use whence.operate"})
	for _, p := range []probe{
		{"GET", "/v1/workers", operator, 403}, {"GET", "/v1/streams", operator, 403}, {"GET", "/v1/workers", both, 403}, {"GET", "/v1/streams", both, 200},
		{"POST", "/v1/chat/completions", both, 200},
	} {
		p.check(t, url)
	}
	for _, p := range []probe{
		{"GET", "/v1/workers", operator, 200}, {"GET", "/metrics", operator, 200}, {"GET", "/v1/workers", both, 200}, {"GET", "/v1/workers", "op", 200},
		{"GET", "/v1/workers", caller, 401}, {"GET", "/metrics", caller, 401}, {"GET", "/metrics", "sk-corp", 401},
		{"POST", "/v1/chat/completions", both, 200}, {"POST", "/v1/chat/completions", operator, 403},
	} {
		p.check(t, "http://127.0.0.1:"+port)
	}
}
