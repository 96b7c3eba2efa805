package keys

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxTenant and maxID bound a tenant's name and a caller's id, in bytes.
const (
	maxTenant = 64
	maxID     = 64
)

// tokenHeader is the request header that holds a token.
const tokenHeader = "Authorization"

// A token holds the claims of a valid token about its caller.
type token struct {
	ID       string // of the caller, for usage records: the name of the issuer and the subject
	Tenant   string // "" for a token that only operates
	Operates bool   // the caller has the rights of the operator's key
}

// A tokenIssuer checks the tokens of one issuer. All methods are safe for concurrent use.
//
// A token is valid if a key of its issuer has signed it, it is for our audience, and it has not
// expired. Its claims name the tenant and the rights of the caller. The keys are cached: a token
// costs a signature check, and no call. Keys that an issuer adds are found with the first token
// that they have signed, and keys that it withdraws are dropped within 10 minutes. While the issuer
// does not answer with keys, the cached keys stay valid. While no keys are cached, tokens of the
// issuer are UNAVAILABLE.
//
// No error contains any part of a token.
type tokenIssuer struct {
	config issuerConfig
	source *keySource
}

// newIssuer returns a tokenIssuer, and fetches nothing yet. before, which may be nil, is the
// tokenIssuer that the new one replaces. Its keys are reused if they come from the same URL.
func newIssuer(c issuerConfig, f *documentFetcher, before *tokenIssuer) (*tokenIssuer, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	i := &tokenIssuer{config: c}
	if before != nil && before.source.issuer == c.URL && before.source.jwks == c.JWKS {
		i.source = before.source
	} else {
		i.source = &keySource{issuer: c.URL, jwks: c.JWKS, fetcher: f}
	}
	return i, nil
}

// Config returns the complete issuerConfig of the issuer.
func (i *tokenIssuer) Config() *issuerConfig { return &i.config }

// issuerOf returns the unverified iss of a token, or "" if the text is not a token.
func issuerOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// invalidToken is the error of a token that is not accepted.
func invalidToken(why string) *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Unauthenticated, Param: tokenHeader, Code: streamerr.CodeInvalidKey, Message: why}
}

// Verify checks a token. A token that is not valid is UNAUTHENTICATED, one that gives no rights here is FORBIDDEN, and one whose
// issuer's keys cannot be fetched is UNAVAILABLE.
func (i *tokenIssuer) Verify(ctx context.Context, token string) (*token, error) {
	check := &signatureCheck{source: i.source}
	// The library would check audience and times with errors that quote the token, and without our skew.
	verifier := oidc.NewVerifier(i.config.URL, check, &oidc.Config{
		SkipClientIDCheck: true, SkipExpiryCheck: true, SupportedSigningAlgs: i.config.Algorithms,
	})
	verified, err := verifier.Verify(ctx, token)
	switch {
	case check.unreachable:
		return nil, &streamerr.Error{Reason: streamerr.Unavailable, Message: "the token cannot be checked, because the keys of its issuer cannot be fetched; try again", RetryAfter: retryEvery}
	case err != nil:
		return nil, invalidToken("the token is malformed, or no key of its issuer has signed it")
	}
	var claims map[string]json.RawMessage
	if verified.Claims(&claims) != nil {
		return nil, invalidToken("the claims of the token are malformed")
	}
	if err := i.inTime(verified, claims); err != nil {
		return nil, err
	}
	if !slices.Contains(verified.Audience, i.config.Audience) {
		return nil, invalidToken("the token is for another audience")
	}
	return i.rights(verified.Subject, claims)
}

// inTime refuses a token that has expired, or is not valid yet.
func (i *tokenIssuer) inTime(verified *oidc.IDToken, claims map[string]json.RawMessage) error {
	now, skew := time.Now(), *i.config.Skew
	switch {
	case verified.Expiry.IsZero():
		return invalidToken("the token has no exp, so it would never expire")
	case !now.Before(verified.Expiry.Add(skew)):
		return invalidToken("the token has expired")
	}
	if text := claims["nbf"]; text != nil {
		var seconds float64
		if json.Unmarshal(text, &seconds) != nil {
			return invalidToken("the claims of the token are malformed")
		}
		if float64(now.Add(skew).Unix()) < seconds {
			return invalidToken("the token is not valid yet")
		}
	}
	return nil
}

// rights returns the identity, the tenant and the rights in valid claims.
func (i *tokenIssuer) rights(subject string, claims map[string]json.RawMessage) (*token, error) {
	c := &i.config
	scopes, err := scopesOf(claims[c.ScopeClaim])
	if err != nil {
		return nil, invalidToken(fmt.Sprintf("the claim %q of the token has no scopes", c.ScopeClaim))
	}
	t := &token{ID: i.id(subject), Operates: c.OperatorScope != "" && slices.Contains(scopes, c.OperatorScope)}
	if c.UseScope != "" && !slices.Contains(scopes, c.UseScope) {
		if t.Operates {
			return t, nil
		}
		return nil, forbiddenHeader(fmt.Sprintf("the token lacks the scope %q", c.UseScope))
	}
	t.Tenant, err = i.tenant(claims)
	if err != nil && t.Operates {
		return t, nil
	}
	return t, err
}

func forbiddenHeader(why string) error {
	return &streamerr.Error{Reason: streamerr.Forbidden, Param: tokenHeader, Message: why}
}

// scopesOf returns the scopes in a claim: a list, or a text with spaces.
func scopesOf(claim json.RawMessage) (scopes []string, err error) {
	var text string
	switch {
	case claim == nil:
		return nil, nil
	case json.Unmarshal(claim, &text) == nil:
		return strings.Fields(text), nil
	default:
		err = json.Unmarshal(claim, &scopes)
		return scopes, err
	}
}

// tenant returns the tenant of a token.
func (i *tokenIssuer) tenant(claims map[string]json.RawMessage) (name string, err error) {
	c := &i.config
	if c.Tenant != "" {
		return c.Tenant, nil
	}
	if json.Unmarshal(claims[c.TenantClaim], &name) != nil || name == "" {
		return "", forbiddenHeader(fmt.Sprintf("the token has no claim %q, which names the tenant", c.TenantClaim))
	}
	if name = c.TenantPrefix + name; len(name) > maxTenant || strings.ContainsFunc(name, unprintable) {
		return "", forbiddenHeader(fmt.Sprintf("the claim %q of the token is not a valid tenant: it must be printable text of at most %d bytes, including the prefix", c.TenantClaim, maxTenant))
	}
	return name, nil
}

// id names a caller. A subject that is too long, or is not plain text, is replaced by its digest.
func (i *tokenIssuer) id(subject string) string {
	id := i.config.Name + "/" + subject
	if len(id) <= maxID && !strings.ContainsFunc(subject, unprintable) {
		return id
	}
	sum := sha256.Sum256([]byte(subject))
	return i.config.Name + "/" + hex.EncodeToString(sum[:12])
}

// unprintable reports whether a character has no place in logs and records.
func unprintable(r rune) bool { return r < ' ' || r > '~' }

// A signatureCheck is the oidc.KeySet of one token. The library hides why it failed.
type signatureCheck struct {
	source      *keySource
	unreachable bool // the keys could not be fetched
}

// VerifySignature implements oidc.KeySet. The verifier has checked that token has the form of a signed token, so a failure means that
// no key of the set has signed it.
func (v *signatureCheck) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	set, err := v.source.keys(ctx)
	if err != nil {
		v.unreachable = true
		return nil, err
	}
	payload, invalid := set.VerifySignature(ctx, token)
	if invalid == nil {
		return payload, nil
	}
	newer, err := v.source.newerKeys(ctx, set)
	if err != nil {
		v.unreachable = true
		return nil, err
	}
	if newer == set {
		return nil, invalid
	}
	return newer.VerifySignature(ctx, token)
}
