package keys

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/keys/issuertest"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestTokensHaveTermsAndLimits: the caller of a token gets the terms of its issuer, and the limits and the weight of its
// tenant. Keys of the same file stay valid.
func TestTokensHaveTermsAndLimits(t *testing.T) {
	at := issuertest.New(t)
	text := `
tenants: {corp: {streams: 7}}
keys: [{key: sk-one, tenant: other, weight: 3}]
issuers:
  - {issuer: "` + at.URL + `", name: idp, audience: whence, tenant_claim: org, operator_scope: op, use_scope: whence.use,
     weight: 2, tier: flex, models: [small], max_tokens: 100, requests_per_minute: 5}`
	ring, err := Parse([]byte(text), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	h, err := ring.Find(t.Context(), "Bearer "+at.Token(t, nil))
	if err != nil || h.Operates || h.Entry.Tenant != "corp" || h.Entry.ID != "idp/alice" || h.Entry.MaxTokens != 100 || h.Entry.Weight != 2 {
		t.Fatalf("%+v, %v", h.Entry, err)
	}
	if accounts := h.Entry.Accounts(); accounts[0].Limits.Requests != 5 || accounts[0].Name != "key/idp/alice" || accounts[1].Limits.Streams != 7 || accounts[1].Name != "tenant/corp" {
		t.Errorf("%+v", accounts)
	}
	if err := h.Entry.Model("large"); streamerr.As(err).Reason != streamerr.Forbidden {
		t.Error(err)
	}
	if claim, err := h.Entry.Claim(llmv1.Tier_TIER_UNSPECIFIED); err != nil || claim.GetTier() != llmv1.Tier_TIER_FLEX || claim.GetKey() != "idp/alice" {
		t.Errorf("%v, %v", claim, err)
	}
	if h, err := ring.Find(t.Context(), "Bearer "+at.Token(t, map[string]any{"org": "other"})); err != nil || h.Entry.Weight != 3 {
		t.Errorf("a token of a tenant with keys: %+v, %v", h.Entry, err)
	}
	if h, err := ring.Find(t.Context(), "Bearer "+at.Token(t, map[string]any{"scope": "op"})); err != nil || !h.Operates || h.Entry != nil {
		t.Errorf("an operator's token: %+v, %v", h, err)
	}
	if h, err := ring.Find(t.Context(), "Bearer sk-one"); err != nil || h.Entry.Tenant != "other" {
		t.Errorf("a key beside the tokens: %+v, %v", h, err)
	}
	elsewhere := issuertest.New(t).Token(t, nil)
	for _, unknown := range []string{"sk-two", "a.b.c", elsewhere} {
		if h, err := ring.Find(t.Context(), "Bearer "+unknown); h.Entry != nil || streamerr.As(err).Reason != streamerr.Unauthenticated || strings.Contains(err.Error(), unknown) {
			t.Errorf("%.20s: %+v, %v", unknown, h, err)
		}
	}
}

// TestReloadsChangeIssuers: a file that drops an issuer refuses its tokens, and a file that keeps it needs no new keys.
func TestReloadsChangeIssuers(t *testing.T) {
	at := issuertest.New(t)
	trusts := `issuers: [{issuer: "` + at.URL + `", audience: whence, tenant: NAME}]`
	ring, err := Parse([]byte(strings.Replace(trusts, "NAME", "a", 1)), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	token := "Bearer " + at.Token(t, nil)
	tenant := func() string {
		h, err := ring.Find(t.Context(), token)
		if err != nil {
			return err.Error()
		}
		return h.Entry.Tenant
	}
	if got := tenant(); got != "a" {
		t.Fatal(got)
	}
	at.SetDown(true)
	if err := ring.replace([]byte(strings.Replace(trusts, "NAME", "b", 1))); err != nil || tenant() != "b" {
		t.Error(err, tenant())
	}
	if err := ring.replace([]byte("keys: []")); err != nil || !strings.Contains(tenant(), "unknown") {
		t.Error(err, tenant())
	}
}

// TestIssuersNameNoTenantsOfOthers checks that a key file is refused if a claim without a prefix, or
// overlapping prefixes, would let an issuer name the tenants of another issuer.
func TestIssuersNameNoTenantsOfOthers(t *testing.T) {
	for _, c := range []struct {
		what, first, second string
		ok                  bool
	}{
		{"two prefixes", "tenant_claim: org, tenant_prefix: a/", "tenant_claim: org, tenant_prefix: b/", true},
		{"a fixed tenant beside a prefix", "tenant_claim: org, tenant_prefix: a/", "tenant: b", true},
		{"a fixed tenant that is shorter than a prefix", "tenant_claim: org, tenant_prefix: a/", "tenant: a", true},
		{"one fixed tenant", "tenant: a", "tenant: a", true},
		{"no prefixes", "tenant_claim: org", "tenant_claim: org", false},
		{"one prefix", "tenant_claim: org", "tenant_claim: org, tenant_prefix: b/", false},
		{"equal prefixes", "tenant_claim: org, tenant_prefix: a", "tenant_claim: org, tenant_prefix: a", false},
		{"nested prefixes", "tenant_claim: org, tenant_prefix: a", "tenant_claim: org, tenant_prefix: ab", false},
		{"a fixed tenant beside no prefix", "tenant_claim: org", "tenant: b", false},
		{"a fixed tenant with the prefix", "tenant_claim: org, tenant_prefix: b", "tenant: bc", false},
		{"a fixed tenant that is the prefix", "tenant_claim: org, tenant_prefix: b", "tenant: b", false},
	} {
		for _, order := range [][2]string{{c.first, c.second}, {c.second, c.first}} {
			text := "issuers: [{issuer: 'https://i.example', audience: w, " + order[0] + "}, {issuer: 'https://j.example', audience: w, " + order[1] + "}]"
			ring, err := Parse([]byte(text), slog.New(slog.DiscardHandler))
			if err == nil {
				ring.Close()
			}
			if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "tenant_prefix") {
				t.Errorf("%s: %v", c.what, err)
			}
		}
	}
}

// TestTenantsOfKeysAndTokensAreLogged: an operator learns that tokens may name the tenants of keys.
func TestTenantsOfKeysAndTokensAreLogged(t *testing.T) {
	for terms, want := range map[string]string{
		"tenant_claim: org": "tenants=\"[a b-x]\"", "tenant_claim: org, tenant_prefix: b-": "tenants=[b-x]",
		"tenant_claim: org, tenant_prefix: c-": "", "tenant: a": "",
	} {
		ring, err := Parse([]byte("keys: [{key: one, tenant: a}, {key: two, tenant: b-x}]\nissuers: [{issuer: 'https://i.example', audience: w, "+terms+"}]"), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var logged strings.Builder
		ring.warn(slog.New(slog.NewTextHandler(&logged, nil)), "f")
		ring.Close()
		if got := logged.String(); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: logged is %q, want %q", terms, got, want)
		}
	}
}
