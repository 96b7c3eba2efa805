package keys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An Issuer is an issuer of tokens, with the terms of its callers. Its limits apply to each caller,
// in addition to the limits of the tenant.
type Issuer struct {
	issuerConfig `yaml:",inline"`
	Terms        `yaml:",inline"`

	tokens *tokenIssuer
}

// addIssuers adds the issuers of a file.
func (t *table) addIssuers(issuers []*Issuer, f *documentFetcher, before *table) (err error) {
	names := map[string]bool{}
	for n, i := range issuers {
		if i == nil {
			return fmt.Errorf("issuers[%d] is empty", n)
		}
		var last *tokenIssuer
		if before != nil && before.issuers[i.URL] != nil {
			last = before.issuers[i.URL].tokens
		}
		if i.tokens, err = newIssuer(i.issuerConfig, f, last); err == nil {
			i.issuerConfig = *i.tokens.Config()
			err = i.Terms.check()
		}
		switch {
		case err != nil:
			return fmt.Errorf("issuers[%d]: %w", n, err)
		case t.issuers[i.URL] != nil:
			return fmt.Errorf("issuers[%d]: the issuer appears more than once", n)
		case names[i.Name]:
			return fmt.Errorf("issuers[%d]: the name %q appears more than once", n, i.Name)
		}
		t.issuers[i.URL], names[i.Name] = i, true
	}
	if err := checkPrefixes(issuers); err != nil {
		return err
	}
	for _, e := range t.keys {
		if name, _, ok := strings.Cut(e.ID, "/"); ok && names[name] {
			return errors.New("the id of a key begins with the name of an issuer; give the key another id, or the issuer another name")
		}
	}
	return nil
}

// checkPrefixes refuses issuers whose tokens could name a tenant of another issuer: their callers
// could read and stop the streams of that tenant. Issuers that have the same fixed tenant share it,
// as the file says.
func checkPrefixes(issuers []*Issuer) error {
	for n, i := range issuers {
		if len(issuers) == 1 || i.TenantClaim == "" {
			continue
		}
		if i.TenantPrefix == "" {
			return fmt.Errorf("issuers[%d]: tenant_prefix is missing; without it, this issuer could name the tenants of another one", n)
		}
		for m, other := range issuers {
			if m != n && strings.HasPrefix(other.Tenant+other.TenantPrefix, i.TenantPrefix) { // only one of the two is set
				return fmt.Errorf("issuers[%d]: the tenant or the tenant_prefix of issuers[%d] begins with tenant_prefix, so this issuer could name tenants of that one; use another tenant_prefix", n, m)
			}
		}
	}
	return nil
}

// claimable returns the tenants with keys that the tokens of an issuer may name by a claim.
func (t *table) claimable() (tenants []string) {
	for tenant := range t.weights {
		for _, i := range t.issuers {
			if i.claims(tenant) {
				tenants = append(tenants, tenant)
				break
			}
		}
	}
	slices.Sort(tenants)
	return tenants
}

// claims reports whether a token of the issuer may name a tenant.
func (i *Issuer) claims(tenant string) bool {
	return i.TenantClaim != "" && strings.HasPrefix(tenant, i.TenantPrefix)
}

// named reports whether the tokens of an issuer may name a tenant.
func (t *table) named(tenant string) bool {
	for _, i := range t.issuers {
		if i.Tenant == tenant || i.claims(tenant) {
			return true
		}
	}
	return false
}

// verify returns the holder of a token.
func (t *table) verify(ctx context.Context, token string) (Holder, error) {
	if len(t.issuers) == 0 {
		return Holder{}, invalidToken("the API key is unknown")
	}
	i := t.issuers[issuerOf(token)]
	if i == nil {
		return Holder{}, invalidToken("the API key is unknown, and it is not a token of an accepted issuer")
	}
	valid, err := i.tokens.Verify(ctx, token)
	if err != nil {
		return Holder{}, err
	}
	holder := Holder{Operates: valid.Operates}
	if valid.Tenant != "" {
		holder.Entry = &Entry{ID: valid.ID, Tenant: valid.Tenant, Terms: i.Terms, shared: t.tenants[valid.Tenant]}
		if weight, keyed := t.weights[valid.Tenant]; keyed {
			holder.Entry.Weight = weight
		}
	}
	return holder, nil
}
