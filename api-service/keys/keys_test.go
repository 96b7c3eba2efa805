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
	ring, err := Load(path)
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
		e, err := ring.Find(header)
		if err != nil {
			t.Errorf("%q: %v", header, err)
			continue
		}
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
		if want.tier == llmv1.Tier_TIER_PRIORITY && (e.Leave == nil || *e.Leave != leave.Policy{Kind: leave.Linger, For: 5 * time.Second}) {
			t.Errorf("leave is %v", e.Leave)
		}
	}
	for _, header := range []string{"", "sk-one", "Bearer", "Bearer sk-on", "Basic sk-one", "Bearer " + strings.Repeat("x", 1<<16)} {
		if e, err := ring.Find(header); e != nil || streamerr.As(err).Reason != streamerr.Unauthenticated {
			t.Errorf("%.32q: %v, %v", header, e, err)
		} else if strings.Contains(err.Error(), "sk-on") {
			t.Errorf("%q: the error quotes the key: %v", header, err)
		}
	}
}

// TestEmptyKeyIsNoKey, whatever the ring holds.
func TestEmptyKeyIsNoKey(t *testing.T) {
	ring := &Ring{}
	ring.entries.Store(&map[[sha256.Size]byte]*Entry{sha256.Sum256(nil): {Tenant: "one"}})
	for _, header := range []string{"Bearer", "Bearer ", "bearer \t "} {
		if e, err := ring.Find(header); e != nil || streamerr.As(err).Reason != streamerr.Unauthenticated {
			t.Errorf("%q: %v, %v", header, e, err)
		}
	}
}

func TestWithoutARingEverybodyIsNobody(t *testing.T) {
	ring, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	e, err := ring.Find("Bearer whatever")
	if e != nil || err != nil {
		t.Fatal(e, err)
	}
	claim, err := e.Claim(llmv1.Tier_TIER_PRIORITY)
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
		"keys: [{key: a, tenant: a, wait: 2}]":                                                          "wait not found",
		"keys: [{key: a, tenant: a}, {key: a, tenant: b}]":                                              "more than once",
		"keys: [{key: a, id: x, tenant: a}, {key: b, id: x, tenant: b}]":                                "more than once",
		"keys: [{key: a, tenant: a, weight: 2}, {key: b, tenant: a}]":                                   "weights",
		"keys: [{key: '  ', tenant: a}]":                                                                "blank",
		"keys: [{sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855, tenant: a}]": "empty",
		"keys: {": "yaml",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there is none")
	}
}

// TestFilesMayLoseTheirKeys: what is left after the last key of a tenant, or of the file, is revoked is valid, and the log
// says what it means.
func TestFilesMayLoseTheirKeys(t *testing.T) {
	for text, want := range map[string]string{
		"keys: []": "every caller is refused",
		"tenants: {b: {streams: 1}, a: {streams: 2}}\nkeys: [{key: x, tenant: a}]": "tenants=[b]",
		"tenants: {a: {streams: 2}}\nkeys: [{key: x, tenant: a}]":                  "",
	} {
		ring, err := Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if e, err := ring.Find("Bearer y"); e != nil || streamerr.As(err).Reason != streamerr.Unauthenticated {
			t.Errorf("%s: %v, %v", text, e, err)
		}
		var logged strings.Builder
		ring.warn(slog.New(slog.NewTextHandler(&logged, nil)), "f")
		if !strings.Contains(logged.String(), want) || (want == "") != (logged.Len() == 0) {
			t.Errorf("%s: logged is %q, want %q", text, logged.String(), want)
		}
	}
}

// TestBoundsLowerDefaults: a default of the API is lowered to the bound of the key, and a number that the request names is
// not.
func TestBoundsLowerDefaults(t *testing.T) {
	for _, c := range []struct {
		bound, most uint32
		byDefault   bool
		want        uint32 // 0 for a refusal
	}{{100, 128, true, 100}, {100, 16, true, 16}, {100, 128, false, 0}, {0, 128, true, 128}} {
		s, err := (&Entry{MaxTokens: c.bound}).Sampling(&llmv1.Sampling{MaxTokens: &c.most}, c.byDefault)
		if s.GetMaxTokens() != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%+v: %v, %v", c, s, err)
		}
	}
	if s, err := (&Entry{MaxTokens: 7}).Sampling(nil, false); err != nil || s.GetMaxTokens() != 7 {
		t.Error(s, err)
	}
}
