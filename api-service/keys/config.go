package keys

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// Defaults of an issuerConfig, and its bounds.
const (
	defaultScopeClaim = "scope"
	defaultSkew       = time.Minute
	maxSkew           = 5 * time.Minute
	maxName           = 32
)

// algorithms are the signatures that can be accepted. All of them have a public key. With a shared
// secret, everyone who can check tokens could make them, and with "none" anybody could.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// An issuerConfig says which tokens of an issuer are accepted, and for which tenant.
type issuerConfig struct {
	// URL is the iss of the tokens. The issuer's metadata is at URL/.well-known/openid-configuration.
	URL string `yaml:"issuer"`
	// Name names the issuer's callers in usage records, as NAME/SUBJECT; "" means the host of URL.
	Name string `yaml:"name"`
	// Audience must be in the aud of the tokens.
	Audience string `yaml:"audience"`
	// JWKS is the URL of the issuer's public keys, for an issuer without metadata; "" means that of the metadata.
	JWKS string `yaml:"jwks"`
	// Algorithms are the accepted signatures; none means all that have public keys.
	Algorithms []string `yaml:"algorithms"`
	// Skew is how far the clocks of issuer and service may be apart; nil means defaultSkew.
	Skew *time.Duration `yaml:"skew"`

	// Tenant is the tenant of all tokens. TenantClaim is the claim that names the tenant instead.
	// Exactly one of the two is set.
	Tenant      string `yaml:"tenant"`
	TenantClaim string `yaml:"tenant_claim"`
	// TenantPrefix is put before the tenant that a token names, so that an issuer cannot name the
	// tenants of another issuer.
	TenantPrefix string `yaml:"tenant_prefix"`

	// ScopeClaim has the scopes of a token, as a list or separated by spaces; "" means
	// defaultScopeClaim.
	ScopeClaim string `yaml:"scope_claim"`
	// UseScope is the scope of tokens that may use the service; "" means that all may.
	UseScope string `yaml:"use_scope"`
	// OperatorScope is the scope of tokens with the rights of the operator's key; "" means that none has them.
	OperatorScope string `yaml:"operator_scope"`
}

// check completes c.
func (c *issuerConfig) check() error {
	if c.URL == "" {
		return errors.New("issuer is missing; it is the iss of the tokens")
	}
	at, err := checkURL(c.URL)
	if err != nil {
		return fmt.Errorf("issuer: %w", err)
	}
	if c.JWKS != "" {
		if _, err := checkURL(c.JWKS); err != nil {
			return fmt.Errorf("jwks: %w", err)
		}
	}
	if c.Name == "" {
		c.Name = at.Hostname()[:min(len(at.Hostname()), maxName)]
	}
	if c.Skew == nil {
		c.Skew = new(defaultSkew)
	}
	if c.ScopeClaim == "" {
		c.ScopeClaim = defaultScopeClaim
	}
	if len(c.Algorithms) == 0 {
		c.Algorithms = algorithms
	}
	for _, name := range c.Algorithms {
		if !slices.Contains(algorithms, name) {
			return fmt.Errorf("algorithms: %.32q is none of %s", name, strings.Join(algorithms, ", "))
		}
	}
	switch {
	case c.Audience == "":
		return errors.New("audience is missing; without it, tokens for other services would be accepted")
	case len(c.Name) > maxName || strings.ContainsRune(c.Name, '/'):
		return fmt.Errorf("name must have at most %d bytes, and no slash", maxName)
	case *c.Skew < 0 || *c.Skew > maxSkew:
		return fmt.Errorf("skew is %v; it must be 0 to %v", *c.Skew, maxSkew)
	case (c.Tenant == "") == (c.TenantClaim == ""):
		return errors.New("there must be either tenant or tenant_claim")
	case c.Tenant != "" && c.TenantPrefix != "":
		return errors.New("tenant_prefix is for tenant_claim; write the whole tenant")
	case len(c.Tenant) > maxTenant || len(c.TenantPrefix) >= maxTenant:
		return fmt.Errorf("a tenant must have at most %d bytes, with its prefix", maxTenant)
	}
	return nil
}

// checkURL parses a URL from which keys are fetched. Anyone who can change the fetched keys can
// make tokens, so the URL must be HTTPS, except on the same machine.
func checkURL(text string) (*url.URL, error) {
	at, err := url.Parse(text)
	if err != nil || at.Hostname() == "" || at.User != nil || at.Scheme != "https" && at.Scheme != "http" {
		return nil, fmt.Errorf("%.256q is not an https:// URL", text)
	}
	ip, err := netip.ParseAddr(at.Hostname())
	if local := at.Hostname() == "localhost" || err == nil && ip.IsLoopback(); at.Scheme == "http" && !local {
		return nil, fmt.Errorf("%.256q must begin with https://, because anyone who can change the keys in transit can make tokens", text)
	}
	return at, nil
}
