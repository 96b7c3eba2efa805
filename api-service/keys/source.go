package keys

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

const (
	// renewEvery is the age at which the next token starts a renewal of the keys. Tokens do not wait for that renewal.
	renewEvery = 5 * time.Minute
	// maxIdle is the time since the last renewal after which tokens wait for a renewal. So a key that its issuer has withdrawn is
	// accepted for maxIdle at most, unless the issuer does not answer.
	maxIdle = 2 * renewEvery
	// retryEvery is the time between renewals while an issuer does not answer.
	retryEvery = time.Second
	// fetchEvery is the minimum time between fetches for tokens whose key is not known: anybody can send such tokens.
	fetchEvery = 2 * time.Second
)

// A keySource has the public keys of one issuer. It fetches the keys when the first token comes,
// again every renewEvery, and for tokens that no known key has signed. While the issuer does not
// answer with keys, the source keeps the keys that it has, without a time limit.
type keySource struct {
	issuer, jwks string
	fetcher      *documentFetcher

	mu      sync.Mutex // guards the following fields
	set     *oidc.StaticKeySet
	at      string        // the URL of the keys; "" until it is known
	err     error         // of the last renewal; nil if the renewal succeeded
	renewed time.Time     // the end of the last renewal, also of one that failed
	renewAt time.Time     // when the next renewal is due
	running chan struct{} // closed when the running renewal is over; nil without one
	asked   time.Time     // when keys were last fetched for a token that no known key has signed
}

// keys returns the keys. It waits for a renewal if there are no keys, or if the last renewal is too long ago.
func (s *keySource) keys(ctx context.Context) (*oidc.StaticKeySet, error) {
	s.mu.Lock()
	now := time.Now()
	if !now.Before(s.renewAt) {
		s.start(true)
	}
	set, err, running := s.set, s.err, s.running
	wait := running != nil && (set == nil || now.Sub(s.renewed) > maxIdle)
	s.mu.Unlock()
	switch {
	case wait:
		return s.await(ctx, running)
	case set != nil:
		return set, nil
	case err != nil:
		return nil, err
	default: // after Close
		return nil, context.Canceled
	}
}

// newerKeys returns the keys for a token that no key of old has signed: those that have replaced old, or else those that the issuer
// publishes now. If keys have just been fetched for another token, newerKeys returns old.
func (s *keySource) newerKeys(ctx context.Context, old *oidc.StaticKeySet) (*oidc.StaticKeySet, error) {
	s.mu.Lock()
	set, err, running := s.set, s.err, s.running
	if set == old && running == nil && time.Since(s.asked) >= fetchEvery {
		s.asked = time.Now()
		running = s.start(false)
	}
	s.mu.Unlock()
	switch {
	case set != old:
		return set, nil
	case running != nil:
		set, err = s.await(ctx, running)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return set, s.err // the issuer may have a newer key that it could not report
	default:
		return old, err
	}
}

// await waits for a renewal, and returns the keys after it.
func (s *keySource) await(ctx context.Context, running chan struct{}) (*oidc.StaticKeySet, error) {
	select {
	case <-running:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		return nil, s.err
	}
	return s.set, nil
}

// start starts a renewal, unless one is running. A full renewal reads the metadata of the issuer, too. start returns the
// channel that is closed after the renewal; nil after Close. The caller holds the lock.
func (s *keySource) start(full bool) chan struct{} {
	if s.running == nil && s.fetcher.enter() {
		done, at := make(chan struct{}), s.at
		if full {
			at = ""
		}
		s.running = done
		go func() {
			defer s.fetcher.running.Done()
			defer close(done)
			s.renew(at)
		}()
	}
	return s.running
}

// renew replaces the keys by those at a URL; "" means the URL that the issuer's metadata names. If it fails, the keys stay.
func (s *keySource) renew(at string) {
	var set *oidc.StaticKeySet
	var err error
	full := at == ""
	if full {
		at, err = s.discover()
	}
	if err == nil {
		set, err = s.fetch(at)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.renewed = nil, time.Now()
	if err != nil {
		s.renewAt = s.renewed.Add(retryEvery)
		if s.err == nil && s.fetcher.ctx.Err() == nil {
			s.fetcher.log.Warn("the keys of an issuer cannot be fetched", "issuer", s.issuer, "err", err)
		}
		s.err = err
		return
	}
	if s.err != nil {
		s.fetcher.log.Info("the keys of an issuer were fetched", "issuer", s.issuer)
	}
	s.set, s.at, s.err = set, at, nil
	if full { // otherwise forged tokens could put off the next look at the metadata
		s.renewAt = s.renewed.Add(renewEvery)
	}
}

// discover returns the URL of the issuer's keys.
func (s *keySource) discover() (string, error) {
	if s.jwks != "" {
		return s.jwks, nil
	}
	provider, err := oidc.NewProvider(oidc.ClientContext(s.fetcher.ctx, s.fetcher.client(s.issuer)), s.issuer)
	if err != nil {
		return "", err
	}
	var metadata struct {
		JWKS string `json:"jwks_uri"`
	}
	err = provider.Claims(&metadata)
	return metadata.JWKS, err
}

// fetch fetches the keys at a URL.
func (s *keySource) fetch(at string) (*oidc.StaticKeySet, error) {
	configured := s.jwks
	if configured == "" {
		configured = s.issuer
	}
	req, err := http.NewRequestWithContext(s.fetcher.ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := s.fetcher.client(configured).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // in memory
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK { // includes a redirect without a target
		return nil, fmt.Errorf("%s answered with status %s", at, resp.Status)
	}
	set, err := parseKeys(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return set, nil
}

// parseKeys reads a JWK Set. It ignores keys that cannot check signatures, as RFC 7517 requires. A
// list without a usable key is an error, but an empty list is valid: the issuer has withdrawn all
// its keys.
func parseKeys(document []byte) (*oidc.StaticKeySet, error) {
	var listed struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &listed); err != nil || listed.Keys == nil {
		return nil, fmt.Errorf("the answer of %d bytes is not a JWK Set", len(document))
	}
	if n := len(*listed.Keys); n > maxKeys {
		return nil, fmt.Errorf("the JWK Set has %d keys; at most %d are used", n, maxKeys)
	}
	set := &oidc.StaticKeySet{}
	for _, text := range *listed.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(text, &key) != nil || key.Use == "enc" {
			continue
		}
		if public := key.Public(); verifies(public.Key) {
			set.PublicKeys = append(set.PublicKeys, public.Key)
		}
	}
	if n := len(*listed.Keys); n > 0 && len(set.PublicKeys) == 0 {
		return nil, fmt.Errorf("none of the %d keys can be used", n)
	}
	return set, nil
}

// The signature of a token may be checked with each key, so the keys bound the time that a token costs.
const (
	maxKeys = 64
	maxRSA  = 8192 // bits, as in crypto/tls
)

// verifies reports whether a key is of a kind that checks signatures, in bounded time.
func verifies(key crypto.PublicKey) bool {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return k.N.BitLen() <= maxRSA
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	default:
		return false
	}
}
