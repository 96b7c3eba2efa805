package keys

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/leave"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestKeysAreFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	text := fmt.Sprintf(`
keys:
  - {key: sk-one, tenant: one}
  - {sha256: %x, tenant: two, weight: 3, tier: priority, leave: "linger:5s"}
  - {key: sk-three, tenant: two, weight: 3, tier: flex}
`, sha256.Sum256([]byte("sk-two")))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ring, err := Load(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]struct {
		tenant string
		weight uint32
		tier   llmv1.Tier
	}{
		"Bearer sk-one":    {"one", 1, llmv1.Tier_TIER_DEFAULT},
		"bearer  sk-two":   {"two", 3, llmv1.Tier_TIER_PRIORITY},
		"Bearer sk-three ": {"two", 3, llmv1.Tier_TIER_FLEX},
	} {
		h, err := ring.Find(t.Context(), header)
		if err != nil {
			t.Errorf("%q: %v", header, err)
			continue
		}
		e := h.Entry
		if claim, err := e.Claim(llmv1.Tier_TIER_UNSPECIFIED); err != nil || claim.GetTier() != min(want.tier, llmv1.Tier_TIER_DEFAULT) {
			t.Errorf("%q, without a tier: %v, %v", header, claim, err)
		}
		for tier := llmv1.Tier_TIER_FLEX; tier <= llmv1.Tier_TIER_PRIORITY; tier++ {
			claim, err := e.Claim(tier)
			if tier <= want.tier && (err != nil || claim.GetTenant() != want.tenant || claim.GetWeight() != want.weight || claim.GetTier() != tier) {
				t.Errorf("%q: %v, %v", header, claim, err)
			}
			if tier > want.tier && (streamerr.As(err).Reason != streamerr.Forbidden || streamerr.As(err).Param != "service_tier") {
				t.Errorf("%q may claim %v: %v", header, tier, err)
			}
		}
		for _, tier := range []llmv1.Tier{-1, llmv1.Tier_TIER_PRIORITY + 1} {
			if claim, err := e.Claim(tier); streamerr.As(err).Reason != streamerr.Invalid {
				t.Errorf("%q may claim the unknown tier %d: %v, %v", header, tier, claim, err)
			}
		}
		if want.tier == llmv1.Tier_TIER_PRIORITY && (e.Leave == nil || *e.Leave != leave.Policy{Kind: leave.Linger, For: 5 * time.Second}) {
			t.Errorf("leave is %v", e.Leave)
		}
	}
	for _, header := range []string{"", "sk-one", "Bearer", "Bearer sk-on", "Basic sk-one", "Bearer " + strings.Repeat("x", 1<<16)} {
		if h, err := ring.Find(t.Context(), header); h.Entry != nil || streamerr.As(err).Reason != streamerr.Unauthenticated {
			t.Errorf("%.32q: %v, %v", header, h, err)
		} else if strings.Contains(err.Error(), "sk-on") {
			t.Errorf("%q: the error quotes the key: %v", header, err)
		}
	}
}

// TestEmptyKeyIsNoKey checks that an empty key is refused, whatever the ring holds.
func TestEmptyKeyIsNoKey(t *testing.T) {
	ring := &Ring{}
	ring.table.Store(&table{keys: map[[sha256.Size]byte]*Entry{sha256.Sum256(nil): {Tenant: "one"}}})
	for _, header := range []string{"Bearer", "Bearer ", "bearer \t "} {
		if h, err := ring.Find(t.Context(), header); h.Entry != nil || streamerr.As(err).Reason != streamerr.Unauthenticated {
			t.Errorf("%q: %v, %v", header, h, err)
		}
	}
}

func TestWithoutARingCallersHaveNoTenant(t *testing.T) {
	ring, err := Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := ring.Find(t.Context(), "Bearer whatever")
	if h.Entry != nil || err != nil {
		t.Fatal(h, err)
	}
	claim, err := h.Entry.Claim(llmv1.Tier_TIER_PRIORITY)
	if err != nil || claim.GetTenant() != "" || claim.GetTier() != llmv1.Tier_TIER_PRIORITY {
		t.Error(claim, err)
	}
}

func TestBadFilesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                         "no keys",
		"keys:":                                    "no keys",
		"tenants: {a: {streams: 1}}":               "no keys",
		"keys: [{tenant: a}]":                      "either key or sha256",
		"keys: [{key: a}]":                         "tenant",
		"keys: [{key: a, sha256: b, tenant: a}]":   "either key or sha256",
		"keys: [{sha256: abc, tenant: a}]":         "hex digits",
		"keys: [{key: a, tenant: a, tier: x}]":     "flex, default or priority",
		"keys: [{key: a, tenant: a, leave: x}]":    "linger",
		"keys: [{key: a, tenant: a, leaves: [x]}]": "linger",
		"keys: [{key: a, tenant: a, leave: detach, leaves: [cancel, drain]}]":                           "leaves does not allow",
		"keys: [{key: a, tenant: a, weight: 2000}]":                                                     "at most 1000",
		"keys: [{key: a, tenant: a, wait: 2}]":                                                          "line 1: the field does not exist",
		"keys: [{key: a, tenant: a}, {key: a, tenant: b}]":                                              "more than once",
		"keys: [{key: a, id: x, tenant: a}, {key: b, id: x, tenant: b}]":                                "more than once",
		"keys: [{key: a, tenant: a, weight: 2}, {key: b, tenant: a}]":                                   "weights",
		"keys: [{key: '  ', tenant: a}]":                                                                "blank",
		"keys: [{sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855, tenant: a}]": "empty",
		"keys: {": "line 1: the file is not valid YAML",
		"issuers: [{issuer: 'https://i.example', tenant: a}]":                                                                                 "audience",
		"issuers: [{issuer: 'https://i.example', audience: w, tenant: a, tier: x}]":                                                           "flex, default or priority",
		"issuers: [{issuer: 'https://i.example', audience: w, tenant: a}, {issuer: 'https://i.example', audience: v, tenant: a}]":             "more than once",
		"issuers: [{issuer: 'https://i.example', audience: w, tenant: a}, {issuer: 'https://i.example/b', audience: w, tenant: a}]":           "the name",
		"issuers: [{issuer: 'https://i.example', audience: w, tenant_claim: t}, {issuer: 'https://j.example', audience: w, tenant_claim: t}]": "tenant_prefix",
		"keys: [{key: a, id: corp/a, tenant: a}]\nissuers: [{issuer: 'https://i.example', name: corp, audience: w, tenant: a}]":               "name of an issuer",
		"issuers: [{issuer: 'https://i.example', audience: w, tenant: a, algorithms: [none]}]":                                                "none of",
		"issuers: [null]": "empty",
	} {
		if _, err := Parse([]byte(text), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a missing file is loaded")
	}
}

// TestFilesMayLoseTheirKeys: a file is still valid after the last key of a tenant, or of the file,
// was revoked, and the log reports the consequence.
func TestFilesMayLoseTheirKeys(t *testing.T) {
	for text, want := range map[string]string{
		"keys: []": "every caller is refused",
		"tenants: {b: {streams: 1}, a: {streams: 2}}\nkeys: [{key: x, tenant: a}]": "tenants=[b]",
		"tenants: {a: {streams: 2}}\nkeys: [{key: x, tenant: a}]":                  "",
		"tenants: {a: {streams: 2}, x-b: {streams: 1}, c: {streams: 1}}\nissuers: [{issuer: 'https://i.example', audience: w, tenant: a}, {issuer: 'https://j.example', audience: w, tenant_claim: org, tenant_prefix: x-}]": "tenants=[c]",
		"issuers: [{issuer: 'https://i.example', audience: w, tenant: a}]": "",
	} {
		ring, err := Parse([]byte(text), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if h, err := ring.Find(t.Context(), "Bearer y"); h.Entry != nil || streamerr.As(err).Reason != streamerr.Unauthenticated {
			t.Errorf("%s: %v, %v", text, h, err)
		}
		var logged strings.Builder
		ring.warn(slog.New(slog.NewTextHandler(&logged, nil)), "f")
		if !strings.Contains(logged.String(), want) || (want == "") != (logged.Len() == 0) {
			t.Errorf("%s: logged is %q, want %q", text, logged.String(), want)
		}
	}
}

// TestBoundsLowerDefaults: the key's bound lowers a default of the API, but not a number that the
// request names.
func TestBoundsLowerDefaults(t *testing.T) {
	for _, c := range []struct {
		bound, most uint32
		byDefault   bool
		want        uint32 // 0 means a refusal
	}{{100, 128, true, 100}, {100, 16, true, 16}, {100, 128, false, 0}, {0, 128, true, 128}} {
		s, err := (&Entry{Terms: Terms{MaxTokens: c.bound}}).Sampling(&llmv1.Sampling{MaxTokens: &c.most}, c.byDefault)
		if s.GetMaxTokens() != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%+v: %v, %v", c, s, err)
		}
	}
	if s, err := (&Entry{Terms: Terms{MaxTokens: 7}}).Sampling(nil, false); err != nil || s.GetMaxTokens() != 7 {
		t.Error(s, err)
	}
}

// TestErrorsOfFilesQuoteNoKeys: a key in a place where it does not belong stays out of the error, which the log gets.
func TestErrorsOfFilesQuoteNoKeys(t *testing.T) {
	const key = "sk-secret"
	for text, want := range map[string]string{
		"keys:\n- " + key:                         "line 2",
		"keys:\n- {" + key + ": x, tenant: a}":    "line 2",
		"keys: " + key:                            "line 1",
		"keys:\n- {key: *" + key + ", tenant: a}": "not valid YAML",
		"keys:\n- {key: a, tenant: a, weight: " + key + "}\n- {key: b, tenant: a, max_tokens: " + key + "}": "line 2, line 3",
		"tenants: {" + key + ": 1, " + key + ": 2}":                                                         "line 1",
		"keys:\n- {key: \"" + key + "\\q\", tenant: a}":                                                     "line 2: the file is not valid YAML",
		key + ": [": "line 1",
	} {
		if _, err := Parse([]byte(text), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-") {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
