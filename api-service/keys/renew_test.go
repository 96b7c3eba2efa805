package keys

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/keys/issuertest"
	"github.com/whence-dev/whence/internal/endlesstest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// knownKeys returns a tokenIssuer that has the keys of at, and a token that it accepts.
func knownKeys(t *testing.T, at *issuertest.Issuer) (i *tokenIssuer, token string) {
	t.Helper()
	f := newDocumentFetcher(slog.New(slog.DiscardHandler))
	t.Cleanup(f.Close)
	i, err := newIssuer(issuerConfig{URL: at.URL, Audience: issuertest.Audience, Tenant: "t"}, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	token = at.Token(t, nil)
	if _, err := i.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	return i, token
}

// expire makes the next renewal due, as if the last one had ended at a time.
func (s *keySource) expire(renewed time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed, s.renewAt = renewed, time.Now()
}

// renewNow renews the keys, and returns the error of the renewal.
func (s *keySource) renewNow(t *testing.T) error {
	t.Helper()
	s.mu.Lock()
	running := s.start(true)
	s.mu.Unlock()
	select {
	case <-running:
	case <-time.After(time.Minute):
		t.Fatal("a renewal does not end")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// TestWithdrawnKeysAreDropped: a key that the issuer publishes no longer is dropped by the next renewal, even if no token
// asks for another key. The renewal fails no token while it runs.
func TestWithdrawnKeysAreDropped(t *testing.T) {
	at := issuertest.New(t)
	i, token := knownKeys(t, at)
	at.Rotate(t, true)
	if _, err := i.Verify(t.Context(), token); err != nil {
		t.Errorf("before the renewal: %v", err)
	}
	i.source.expire(time.Now())
	polltest.Eventually(t, "a key that the issuer has withdrawn is not accepted after the renewal", func() bool {
		_, err := i.Verify(t.Context(), token)
		return err != nil
	})
}

// TestWithdrawnKeysAreDroppedAfterIdleTime: after a long time without tokens, the first token waits for the renewal. If the issuer does
// not answer, the token is accepted, and further tokens do not wait.
func TestWithdrawnKeysAreDroppedAfterIdleTime(t *testing.T) {
	at := issuertest.New(t)
	i, token := knownKeys(t, at)
	at.SetDown(true)
	i.source.expire(time.Now().Add(-time.Hour))
	if _, err := i.Verify(t.Context(), token); err != nil {
		t.Errorf("the issuer is away: %v", err)
	}
	at.SetDown(false)
	waits, release := make(chan struct{}, 100), make(chan struct{})
	at.AnswerKeys(func(w http.ResponseWriter, r *http.Request) {
		waits <- struct{}{}
		<-release
		at.Answer(w, r)
	})
	i.source.mu.Lock()
	i.source.renewAt = time.Now()
	i.source.mu.Unlock()
	for range 2 { // while the renewal runs
		if _, err := i.Verify(t.Context(), token); err != nil {
			t.Error(err)
		}
	}
	<-waits
	close(release)
	if err := i.source.renewNow(t); err != nil {
		t.Fatal(err)
	}
	at.Rotate(t, true)
	i.source.expire(time.Now().Add(-time.Hour))
	if _, err := i.Verify(t.Context(), token); streamerr.As(err).Reason != streamerr.Unauthenticated {
		t.Errorf("the first token after an hour has a withdrawn key: %v", err)
	}
}

// TestAnswersWithoutKeysChangeNothing: an answer of the issuer without its keys is treated like no
// answer.
func TestAnswersWithoutKeysChangeNothing(t *testing.T) {
	at := issuertest.New(t)
	i, token := knownKeys(t, at)
	at.Rotate(t, false)
	unknown := at.Token(t, nil)
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for what, h := range map[string]http.HandlerFunc{
		"a page":                      text(200, "<html>maintenance</html>"),
		"nothing":                     text(200, ""),
		"null":                        text(200, "null"),
		"an object without keys":      text(200, `{"error":"try again"}`),
		"keys that are not a list":    text(200, `{"keys":{}}`),
		"too many keys":               text(200, `{"keys":[`+strings.TrimSuffix(strings.Repeat(`{"kty":"new"},`, maxKeys+1), ",")+`]}`),
		"a key of a megabit":          text(200, `{"keys":[{"kty":"RSA","e":"AQAB","n":"`+strings.Repeat("_", 170_000)+`"}]}`),
		"keys of unknown kinds":       text(200, `{"keys":[{"kty":"new"},{"kty":"oct","k":"AAAA"}]}`),
		"an error":                    text(500, `{"keys":[]}`),
		"another success":             text(202, `{"keys":[]}`),
		"a redirect without a target": text(302, `{"keys":[]}`),
		"not modified":                text(304, ""),
		"a redirect to itself":        func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) },
		"too many bytes":              text(200, `{"keys":[], "x":"`+strings.Repeat("x", maxDocument)+`"}`),
	} {
		at.AnswerKeys(h)
		if err := i.source.renewNow(t); err == nil {
			t.Errorf("%s: the renewal succeeds", what)
		}
		if _, err := i.Verify(t.Context(), token); err != nil {
			t.Errorf("%s: a token of a known key: %v", what, err)
		}
		if _, err := i.Verify(t.Context(), unknown); streamerr.As(err).Reason != streamerr.Unavailable {
			t.Errorf("%s: a token of a key that may be a new one: %v", what, err)
		}
	}
	at.AnswerKeys(text(200, `{"keys":[]}`))
	if err := i.source.renewNow(t); err != nil {
		t.Errorf("the issuer has withdrawn all keys: %v", err)
	}
	if _, err := i.Verify(t.Context(), token); streamerr.As(err).Reason != streamerr.Unauthenticated {
		t.Errorf("the issuer has withdrawn all keys: %v", err)
	}
}

// TestEndlessAnswersChangeNothing: they cost no more than the document that is expected.
func TestEndlessAnswersChangeNothing(t *testing.T) {
	at := issuertest.New(t)
	i, token := knownKeys(t, at)
	for what, answer := range endlesstest.Answers {
		at.AnswerKeys(answer.ServeHTTP)
		if got := endlesstest.Allocated(t, func() {
			if err := i.source.renewNow(t); err == nil {
				t.Errorf("%s: the renewal succeeds", what)
			}
		}); got > 16*maxDocument {
			t.Errorf("%s: the renewal allocated %d bytes", what, got)
		}
		if _, err := i.Verify(t.Context(), token); err != nil {
			t.Errorf("%s: a token of a known key: %v", what, err)
		}
	}
}

// TestUnusableKeysAreIgnored: the other keys of the document are used.
func TestUnusableKeysAreIgnored(t *testing.T) {
	at := issuertest.New(t)
	i, token := knownKeys(t, at)
	at.AnswerKeys(func(w http.ResponseWriter, r *http.Request) {
		got := httptest.NewRecorder()
		at.Answer(got, r)
		_, _ = io.WriteString(w, strings.Replace(got.Body.String(), "[", `[{"kty":"new"},{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"},{"kty":"oct","k":"AAAA"},7,`, 1))
	})
	if err := i.source.renewNow(t); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Verify(t.Context(), token); err != nil {
		t.Error(err)
	}
}

// TestTokensWaitForRunningRenewals: a token of a new key is accepted if a renewal that brings the key is running, even if keys have
// just been fetched for another token.
func TestTokensWaitForRunningRenewals(t *testing.T) {
	at := issuertest.New(t)
	i, token := knownKeys(t, at)
	at.Rotate(t, false)
	renewed := at.Token(t, nil)
	waits, release := make(chan struct{}, 100), make(chan struct{})
	at.AnswerKeys(func(w http.ResponseWriter, r *http.Request) {
		waits <- struct{}{}
		<-release
		at.Answer(w, r)
	})
	i.source.mu.Lock()
	old := i.source.set
	i.source.asked = time.Now().Add(time.Hour) // no fetch is allowed
	i.source.mu.Unlock()
	i.source.expire(time.Now())
	if _, err := i.Verify(t.Context(), token); err != nil { // starts the renewal
		t.Fatal(err)
	}
	<-waits
	verified := make(chan error, 1)
	go func() {
		_, err := i.Verify(t.Context(), renewed)
		verified <- err
	}()
	close(release)
	if err := <-verified; err != nil {
		t.Errorf("a token during the renewal: %v", err)
	}
	if set, err := i.source.newerKeys(t.Context(), old); err != nil || set == old {
		t.Errorf("a token that was checked with the old keys is not checked with the new ones: %v", err)
	}
}

// TestKeysDoNotComeOverPlainHTTP: an issuer at an https:// URL cannot lead to http://, also not on this machine. Only an issuer
// that is itself at an http:// URL of this machine can.
func TestKeysDoNotComeOverPlainHTTP(t *testing.T) {
	plain := issuertest.New(t)
	var secure *httptest.Server
	secure = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": secure.URL, "jwks_uri": plain.URL + "/keys"})
		case "/redirect":
			http.Redirect(w, r, plain.URL+"/keys", http.StatusFound)
		}
	}))
	t.Cleanup(secure.Close)
	detour := httptest.NewServer(http.RedirectHandler(secure.URL+"/redirect", http.StatusFound))
	t.Cleanup(detour.Close)
	direct := httptest.NewServer(http.RedirectHandler(plain.URL+"/keys", http.StatusFound))
	t.Cleanup(direct.Close)
	f := newDocumentFetcher(slog.New(slog.DiscardHandler))
	t.Cleanup(f.Close)
	f.http.TLSClientConfig = &tls.Config{RootCAs: secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12}
	for what, c := range map[string]struct {
		config issuerConfig
		want   string
	}{
		"metadata":              {issuerConfig{URL: secure.URL}, "must begin with https://"},
		"a redirect":            {issuerConfig{URL: "https://issuer.example", JWKS: secure.URL + "/redirect"}, "to http://"},
		"a redirect to and fro": {issuerConfig{URL: "https://issuer.example", JWKS: detour.URL}, "to http://"},
		"on this machine":       {issuerConfig{URL: "https://issuer.example", JWKS: direct.URL}, ""},
	} {
		c.config.Audience, c.config.Tenant = issuertest.Audience, "t"
		i, err := newIssuer(c.config, f, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := i.source.renewNow(t); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", what, err, c.want)
		}
	}
}
