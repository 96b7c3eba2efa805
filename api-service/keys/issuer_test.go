package keys

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/whence-dev/whence/api-service/keys/issuertest"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// trust returns the tokenIssuer for the tokens of at.
func trust(t *testing.T, at *issuertest.Issuer, change func(*issuerConfig)) *tokenIssuer {
	t.Helper()
	f := newDocumentFetcher(slog.New(slog.DiscardHandler))
	t.Cleanup(f.Close)
	c := issuerConfig{URL: at.URL, Name: "corp", Audience: issuertest.Audience, TenantClaim: "org"}
	if change != nil {
		change(&c)
	}
	i, err := newIssuer(c, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// refused checks that a token is refused for a reason, and that the error contains no part of the
// token.
func refused(t *testing.T, what string, i *tokenIssuer, token string, reason streamerr.Reason, why string) {
	t.Helper()
	got, err := i.Verify(t.Context(), token)
	e := streamerr.As(err)
	if err == nil || e.Reason != reason || !strings.Contains(e.Message, why) {
		t.Errorf("%s: %+v, %v; want %v: %s", what, got, err, reason, why)
		return
	}
	for part := range strings.SplitSeq(token, ".") {
		if len(part) > 4 && strings.Contains(err.Error(), part) {
			t.Errorf("%s: the error quotes the token: %v", what, err)
		}
	}
	if strings.Contains(err.Error(), "alice") {
		t.Errorf("%s: the error quotes the subject: %v", what, err)
	}
}

func TestTokensIdentifyTheCaller(t *testing.T) {
	at := issuertest.New(t)
	i := trust(t, at, func(c *issuerConfig) {
		c.OperatorScope = "whence.operate"
		c.UseScope = "whence.use"
		c.TenantPrefix = "x-"
	})
	for name, c := range map[string]struct {
		claims map[string]any
		want   token
	}{
		"a caller":                      {nil, token{ID: "corp/alice", Tenant: "x-corp"}},
		"scopes in a list":              {map[string]any{"scope": []string{"a", "whence.use"}}, token{ID: "corp/alice", Tenant: "x-corp"}},
		"several audiences":             {map[string]any{"aud": []string{"other", "whence"}}, token{ID: "corp/alice", Tenant: "x-corp"}},
		"an operator":                   {map[string]any{"scope": "whence.operate"}, token{ID: "corp/alice", Operates: true}},
		"an operator without a tenant":  {map[string]any{"scope": "whence.operate whence.use", "org": nil}, token{ID: "corp/alice", Operates: true}},
		"both":                          {map[string]any{"scope": "whence.operate whence.use"}, token{ID: "corp/alice", Tenant: "x-corp", Operates: true}},
		"expired within the skew":       {map[string]any{"exp": time.Now().Add(-30 * time.Second).Unix()}, token{ID: "corp/alice", Tenant: "x-corp"}},
		"not yet valid within the skew": {map[string]any{"nbf": time.Now().Add(30 * time.Second).Unix()}, token{ID: "corp/alice", Tenant: "x-corp"}},
		"no subject":                    {map[string]any{"sub": nil}, token{ID: "corp/", Tenant: "x-corp"}},
	} {
		if got, err := i.Verify(t.Context(), at.Token(t, c.claims)); err != nil || *got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for _, subject := range []string{strings.Repeat("s", 200), "line\nbreak", "ä"} {
		if got, err := i.Verify(t.Context(), at.Token(t, map[string]any{"sub": subject})); err != nil || len(got.ID) > maxID || strings.Contains(got.ID, subject) || got.ID == "corp/" {
			t.Errorf("%q: %+v, %v", subject, got, err)
		}
	}
	if n := at.Fetches.Load(); n != 2 {
		t.Errorf("the issuer was asked %d times, want 2: for its metadata and its keys", n)
	}
}

func TestTokensAreRefused(t *testing.T) {
	at, other := issuertest.New(t), issuertest.New(t)
	i := trust(t, at, func(c *issuerConfig) { c.UseScope = "whence.use" })
	good := at.Token(t, nil)
	if _, err := i.Verify(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		claims map[string]any
		reason streamerr.Reason
		why    string
	}{
		"expired":                {map[string]any{"exp": time.Now().Add(-2 * time.Minute).Unix()}, streamerr.Unauthenticated, "expired"},
		"no end":                 {map[string]any{"exp": nil}, streamerr.Unauthenticated, "exp"},
		"not valid yet":          {map[string]any{"nbf": time.Now().Add(2 * time.Minute).Unix()}, streamerr.Unauthenticated, "not valid yet"},
		"bad nbf":                {map[string]any{"nbf": "soon"}, streamerr.Unauthenticated, "malformed"},
		"another audience":       {map[string]any{"aud": "other"}, streamerr.Unauthenticated, "audience"},
		"no audience":            {map[string]any{"aud": nil}, streamerr.Unauthenticated, "audience"},
		"another issuer":         {map[string]any{"iss": other.URL}, streamerr.Unauthenticated, "malformed"},
		"without the scope":      {map[string]any{"scope": "whence.uses"}, streamerr.Forbidden, "whence.use"},
		"without scopes":         {map[string]any{"scope": nil}, streamerr.Forbidden, "whence.use"},
		"scopes of a bad kind":   {map[string]any{"scope": 7}, streamerr.Unauthenticated, "scope"},
		"no tenant":              {map[string]any{"org": nil}, streamerr.Forbidden, "org"},
		"a tenant of a bad kind": {map[string]any{"org": []string{"corp"}}, streamerr.Forbidden, "org"},
		"a long tenant":          {map[string]any{"org": strings.Repeat("t", 100)}, streamerr.Forbidden, "org"},
		"an odd tenant":          {map[string]any{"org": "a\x00b"}, streamerr.Forbidden, "org"},
	} {
		refused(t, what, i, at.Token(t, c.claims), c.reason, c.why)
	}
	head, rest, _ := strings.Cut(good, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	encode := base64.RawURLEncoding.EncodeToString
	forged, _ := json.Marshal(at.Claims(map[string]any{"org": "victim"}))
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key := func(id string) jose.SigningKey {
		return jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: stranger, KeyID: id}}
	}
	for what, token := range map[string]string{
		"no signature":               head + "." + payload + ".",
		"another payload":            head + "." + encode(forged) + "." + signature,
		"alg none":                   encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + encode(forged) + ".",
		"alg none with a signature":  encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + encode(forged) + "." + signature,
		"a shared secret":            issuertest.Sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: []byte(strings.Repeat("k", 32))}, at.Claims(nil)),
		"a stranger's key":           issuertest.Sign(t, key("key-9"), at.Claims(nil)),
		"a stranger's key, same id":  issuertest.Sign(t, key("key-1"), at.Claims(nil)),
		"a stranger's key, no id":    issuertest.Sign(t, key(""), at.Claims(nil)),
		"no token":                   "a.b.c",
		"nothing":                    "",
		"a token with a fourth part": good + ".x",
	} {
		refused(t, what, i, token, streamerr.Unauthenticated, "malformed, or no key")
	}
	narrow := trust(t, at, func(c *issuerConfig) { c.Algorithms = []string{"RS256"} })
	refused(t, "an algorithm that is not accepted", narrow, good, streamerr.Unauthenticated, "malformed")
}

// TestKeysRotate: a token of a new key is accepted at once, and tokens of the old key as long as the issuer publishes it.
func TestKeysRotate(t *testing.T) {
	at := issuertest.New(t)
	i := trust(t, at, nil)
	old := at.Token(t, nil)
	for _, withdraw := range []bool{false, true} {
		if _, err := i.Verify(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		at.Rotate(t, withdraw)
		await(t, "a token of the new key", i, at.Token(t, nil), streamerr.Unspecified)
		want := streamerr.Unspecified
		if withdraw {
			want = streamerr.Unauthenticated
		}
		if _, err := i.Verify(t.Context(), old); err != nil != withdraw {
			t.Errorf("the old key is withdrawn: %t: %v, want %v", withdraw, err, want)
		}
	}
}

// await verifies a token until it gets an answer.
func await(t *testing.T, what string, i *tokenIssuer, token string, want streamerr.Reason) {
	t.Helper()
	polltest.Eventually(t, what, func() bool {
		_, err := i.Verify(t.Context(), token)
		return want == streamerr.Unspecified && err == nil || err != nil && streamerr.As(err).Reason == want
	})
}

// TestForgedTokensCauseFewFetches: anybody can send tokens whose keys are not known.
func TestForgedTokensCauseFewFetches(t *testing.T) {
	at, other := issuertest.New(t), issuertest.New(t)
	i := trust(t, at, nil)
	other.Rotate(t, false) // whose keys at does not know
	forged := other.Token(t, map[string]any{"iss": at.URL})
	began := time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if _, err := i.Verify(t.Context(), forged); err == nil || streamerr.As(err).Reason != streamerr.Unauthenticated {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n, most := at.Fetches.Load(), 3+int64(time.Since(began)/time.Second); n > most {
		t.Errorf("400 forged tokens have caused %d fetches, want at most %d", n, most)
	}
}

// TestUnreachableIssuer: without keys its tokens are UNAVAILABLE until it answers; with keys nothing changes while it is away.
func TestUnreachableIssuer(t *testing.T) {
	at := issuertest.New(t)
	at.SetDown(true)
	i := trust(t, at, nil)
	token := at.Token(t, nil)
	_, err := i.Verify(t.Context(), token)
	if e := streamerr.As(err); err == nil || e.Reason != streamerr.Unavailable || e.RetryAfter <= 0 {
		t.Errorf("without keys: %v", err)
	}
	at.SetDown(false)
	await(t, "the issuer answers", i, token, streamerr.Unspecified)
	at.SetDown(true)
	for range 10 {
		if _, err := i.Verify(t.Context(), token); err != nil {
			t.Errorf("the issuer is away, and its keys are known: %v", err)
		}
	}
	at.Rotate(t, false)
	renewed := at.Token(t, nil)
	await(t, "a new key while the issuer is away", i, renewed, streamerr.Unavailable)
	at.SetDown(false)
	await(t, "a new key when the issuer answers", i, renewed, streamerr.Unspecified)
}

// TestIssuersKeepTheirKeysOverReloads: a reload of the key file while the issuer is away changes nothing.
func TestIssuersKeepTheirKeysOverReloads(t *testing.T) {
	at := issuertest.New(t)
	before := trust(t, at, nil)
	token := at.Token(t, nil)
	if _, err := before.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	at.SetDown(true)
	f := newDocumentFetcher(slog.New(slog.DiscardHandler))
	t.Cleanup(f.Close)
	after, err := newIssuer(issuerConfig{URL: at.URL, Audience: issuertest.Audience, Tenant: "other"}, f, before)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := after.Verify(t.Context(), token); err != nil || got.Tenant != "other" || got.ID != "127.0.0.1/alice" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBadConfigsAreRefused(t *testing.T) {
	minute, hour := time.Minute, time.Hour
	for want, c := range map[string]issuerConfig{
		"issuer is missing": {Audience: "a", Tenant: "t"},
		"https://":          {URL: "http://issuer.example", Audience: "a", Tenant: "t"},
		"not an https":      {URL: "issuer.example", Audience: "a", Tenant: "t"},
		"jwks":              {URL: "https://issuer.example", JWKS: "http://issuer.example/keys", Audience: "a", Tenant: "t"},
		"audience":          {URL: "https://issuer.example", Tenant: "t"},
		"either tenant":     {URL: "https://issuer.example", Audience: "a", Skew: &minute},
		"tenant_claim":      {URL: "https://issuer.example", Audience: "a", Tenant: "t", TenantClaim: "org"},
		"skew":              {URL: "https://issuer.example", Audience: "a", Tenant: "t", Skew: &hour},
		"none of":           {URL: "https://issuer.example", Audience: "a", Tenant: "t", Algorithms: []string{"HS256"}},
		"algorithms":        {URL: "https://issuer.example", Audience: "a", Tenant: "t", Algorithms: []string{"none"}},
		"name":              {URL: "https://issuer.example", Audience: "a", Tenant: "t", Name: "a/b"},
		"whole tenant":      {URL: "https://issuer.example", Audience: "a", Tenant: "t", TenantPrefix: "p"},
	} {
		if _, err := newIssuer(c, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", c, err, want)
		}
	}
}
