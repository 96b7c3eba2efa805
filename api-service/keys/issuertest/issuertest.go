// Package issuertest is an OpenID Connect issuer on loopback, for tests.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Audience is that of the tokens, unless their claims say otherwise.
const Audience = "whence"

// An Issuer publishes its keys, and makes tokens.
type Issuer struct {
	URL     string // the iss of the tokens
	Fetches atomic.Int64

	mu      sync.Mutex // guards the following fields
	down    bool
	keys    http.HandlerFunc // answers instead of the keys; nil for the keys
	made    int              // keys
	signing *jose.JSONWebKey
	public  []jose.JSONWebKey
}

// New returns an issuer with one key. It ends with the test.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{}
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	i.URL = server.URL
	i.Rotate(t, false)
	return i
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.Fetches.Add(1)
	i.mu.Lock()
	keys := i.keys
	i.mu.Unlock()
	if keys != nil && r.URL.Path == "/keys" {
		keys(w, r)
		return
	}
	i.Answer(w, r)
}

// Answer answers a request as if AnswerKeys had not been called.
func (i *Issuer) Answer(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.down:
		panic(http.ErrAbortHandler) // closes the connection without an answer
	case r.URL.Path == "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	case r.URL.Path == "/keys":
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": i.public})
	default:
		http.NotFound(w, r)
	}
}

// SetDown makes the issuer answer no request, or answer again.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// AnswerKeys makes h answer requests for the keys. A nil h makes the issuer answer them again.
func (i *Issuer) AnswerKeys(h http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = h
}

// Rotate replaces the key that signs. withdraw removes the old key from the published ones.
func (i *Issuer) Rotate(t testing.TB, withdraw bool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made++
	i.signing = &jose.JSONWebKey{Key: private, KeyID: fmt.Sprintf("key-%d", i.made), Algorithm: string(jose.ES256), Use: "sig"}
	if withdraw {
		i.public = nil
	}
	i.public = append(i.public, i.signing.Public())
}

// Token returns a token for an hour, with claims besides or instead of the usual ones. A claim that is nil is left out.
func (i *Issuer) Token(t testing.TB, claims map[string]any) string {
	t.Helper()
	i.mu.Lock()
	key := i.signing
	i.mu.Unlock()
	return Sign(t, jose.SigningKey{Algorithm: jose.ES256, Key: key}, i.Claims(claims))
}

// Claims returns the claims of Token.
func (i *Issuer) Claims(claims map[string]any) map[string]any {
	all := map[string]any{"iss": i.URL, "aud": Audience, "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(), "org": "corp", "scope": "whence.use"}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, claim any) bool { return claim == nil })
	return all
}

// Sign returns a token with claims.
func Sign(t testing.TB, with jose.SigningKey, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(with, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
