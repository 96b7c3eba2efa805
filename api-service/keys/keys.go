// Package keys identifies callers: by the API keys of a file, and by the signed tokens (JWT) of the
// OpenID Connect issuers that the file names. Each key and token has a tenant, rights and limits.
//
// A Ring reads the file again when it changes. Add, Revoke and Change write it, and preserve its
// comments and its order. A tokenIssuer checks tokens; only it calls other servers, for their keys.
package keys

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/api-service/quota"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Header is the request header that holds a key, as "Bearer KEY".
const Header = "Authorization"

// MaxWeight bounds a tenant's weight.
const MaxWeight = 1000

// An Entry has the tenant and the limits of one key. All keys of a tenant own the same streams.
type Entry struct {
	// Key is the key itself; SHA256 is its digest in hex, for files that others can read. Exactly
	// one of them is set.
	Key    string `yaml:"key"`
	SHA256 string `yaml:"sha256"`
	// ID names the key in usage records; "" means the first 12 hex digits of its digest.
	ID string `yaml:"id"`
	// Tenant owns the streams that are created with the key.
	Tenant string `yaml:"tenant"`
	// Expires is when the key stops being valid; zero means never. Running answers continue.
	Expires time.Time `yaml:"expires"`

	Terms `yaml:",inline"`

	shared quota.Limits // of the tenant, over all its keys
}

// Terms are the defaults and the limits for the streams of a key, or of the callers of an issuer.
type Terms struct {
	// Weight is the tenant's share among tenants; 0 means 1.
	Weight uint32 `yaml:"weight"`
	// Tier is the most urgent service_tier that the key's streams get; "" means default.
	Tier string `yaml:"tier"`
	// Leave is the policy of requests without X-Leave; nil means the policy of the flags.
	Leave *leave.Policy `yaml:"leave"`
	// Leaves are the policies that X-Leave may name; every policy within one of them is allowed,
	// too. If the list is empty, Leave is the limit; without Leave there is no limit.
	Leaves []leave.Policy `yaml:"leaves"`
	// Limits are those of the key alone; the limits of the tenant apply as well.
	Limits quota.Limits `yaml:",inline"`
	// Models are the models that the key may request; an empty list means all.
	Models []string `yaml:"models"`
	// MaxTokens bounds the max_tokens of a request, and is its default; 0 means no bound.
	MaxTokens uint32 `yaml:"max_tokens"`
	// Deadline bounds the duration of a stream; 0 means no bound.
	Deadline time.Duration `yaml:"deadline"`

	tier llmv1.Tier
}

// A File holds entries, the issuers of tokens, and the limits of tenants over all their keys and tokens.
type File struct {
	Tenants map[string]quota.Limits `yaml:"tenants"`
	Keys    []*Entry                `yaml:"keys"`
	Issuers []*Issuer               `yaml:"issuers"`
}

// A Ring identifies callers by their keys and tokens. A nil Ring accepts every caller, without a tenant. A Ring of a file
// can be replaced while it is in use.
type Ring struct {
	text    []byte // of the file, as it was read last; owned by Follow
	table   atomic.Pointer[table]
	fetcher *documentFetcher
}

// A table is the parsed content of a file.
type table struct {
	keys    map[[sha256.Size]byte]*Entry
	issuers map[string]*Issuer // by the iss of their tokens
	tenants map[string]quota.Limits
	weights map[string]uint32 // of tenants with keys
}

// Load reads the YAML file at path; an empty path returns a nil ring. The caller closes the ring.
func Load(path string, log *slog.Logger) (*Ring, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	ring, err := Parse(text, log)
	if err != nil {
		return nil, fmt.Errorf("keys in %s: %w", path, err)
	}
	return ring, nil
}

// Parse reads a file's text. It calls no issuer: the first token of each issuer causes a call.
func Parse(text []byte, log *slog.Logger) (*Ring, error) {
	ring := &Ring{text: text, fetcher: newDocumentFetcher(log)}
	if err := ring.replace(text); err != nil {
		ring.Close()
		return nil, err
	}
	return ring, nil
}

// Close ends the ring's calls to issuers.
func (r *Ring) Close() {
	if r != nil {
		r.fetcher.Close()
	}
}

// replace makes the ring use a file's text.
func (r *Ring) replace(text []byte) error {
	t, err := parse(text, r.fetcher, r.table.Load())
	if err == nil {
		r.table.Store(t)
	}
	return err
}

// parse reads a file's text. before, which may be nil, is the table that the new one replaces.
func parse(text []byte, f *documentFetcher, before *table) (*table, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	var file File
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, withoutText(err)
	}
	if file.Keys == nil && len(file.Issuers) == 0 {
		return nil, errors.New("the file has no keys and no issuers; write keys: [] to refuse every caller")
	}
	for tenant, limits := range file.Tenants {
		if err := limits.Check(); err != nil {
			return nil, fmt.Errorf("tenants: %q: %w", tenant, err)
		}
	}
	t := &table{
		keys: make(map[[sha256.Size]byte]*Entry, len(file.Keys)), issuers: map[string]*Issuer{},
		tenants: file.Tenants, weights: map[string]uint32{},
	}
	if err := t.addKeys(file.Keys); err != nil {
		return nil, err
	}
	return t, t.addIssuers(file.Issuers, f, before)
}

// unused returns the tenants with limits to which no key belongs, and no token can: their last key may have been revoked.
func (t *table) unused() (tenants []string) {
	for tenant := range t.tenants {
		if _, keyed := t.weights[tenant]; !keyed && !t.named(tenant) {
			tenants = append(tenants, tenant)
		}
	}
	slices.Sort(tenants)
	return tenants
}

// addKeys adds the entries of a file.
func (t *table) addKeys(entries []*Entry) error {
	ids := map[string]bool{}
	for i, e := range entries {
		if e == nil {
			return fmt.Errorf("keys[%d] is empty", i)
		}
		e.shared = t.tenants[e.Tenant]
		digest, err := e.check()
		if err != nil {
			return fmt.Errorf("keys[%d]: %w", i, err)
		}
		if t.keys[digest] != nil {
			return fmt.Errorf("keys[%d]: the key appears more than once", i)
		}
		if was, known := t.weights[e.Tenant]; known && was != e.Weight {
			return fmt.Errorf("keys[%d]: the tenant %q has the weights %d and %d", i, e.Tenant, was, e.Weight)
		}
		t.weights[e.Tenant] = e.Weight
		e.ID = nameOf(e.ID, digest)
		if ids[e.ID] {
			return fmt.Errorf("keys[%d]: the id %q appears more than once", i, e.ID)
		}
		ids[e.ID], t.keys[digest] = true, e
	}
	return nil
}

// idDigits is the number of hex digits of a key's digest that name the key.
const idDigits = 12

// nameOf returns the id of a key.
func nameOf(id string, digest [sha256.Size]byte) string {
	if id != "" {
		return id
	}
	return hex.EncodeToString(digest[:idDigits/2])
}

// Name returns the id of the key, or "" if the entry is not valid.
func (e *Entry) Name() string {
	own := *e
	digest, err := own.check()
	if err != nil {
		return ""
	}
	return nameOf(e.ID, digest)
}

// check completes an entry, and returns the digest of its key.
func (e *Entry) check() (digest [sha256.Size]byte, err error) {
	switch {
	case (e.Key == "") == (e.SHA256 == ""):
		return digest, errors.New("there must be either key or sha256")
	case e.Tenant == "" || len(e.Tenant) > maxTenant:
		return digest, fmt.Errorf("tenant must have 1 to %d bytes", maxTenant)
	case len(e.ID) > maxID:
		return digest, fmt.Errorf("id has %d bytes; it must have at most %d", len(e.ID), maxID)
	}
	if err := e.Terms.check(); err != nil {
		return digest, err
	}
	if e.SHA256 == "" {
		if strings.TrimSpace(e.Key) == "" {
			return digest, errors.New("key is blank; it must have other characters than spaces")
		}
		return sha256.Sum256([]byte(e.Key)), nil
	}
	sum, err := hex.DecodeString(e.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return digest, fmt.Errorf("sha256 must have %d hex digits", 2*sha256.Size)
	}
	if digest = [sha256.Size]byte(sum); digest == sha256.Sum256(nil) {
		return digest, errors.New("sha256 is the digest of an empty key; give the digest of a key")
	}
	return digest, nil
}

// check completes the terms.
func (t *Terms) check() (err error) {
	if t.Weight > MaxWeight {
		return fmt.Errorf("weight is %d; it must be at most %d", t.Weight, MaxWeight)
	}
	if err := t.Limits.Check(); err != nil {
		return err
	}
	if t.Deadline < 0 {
		return fmt.Errorf("deadline is %v; it must not be negative", t.Deadline)
	}
	t.Weight = max(t.Weight, 1)
	if t.tier, err = ParseTier(t.Tier); err != nil {
		return fmt.Errorf("tier is %.64q; it must be flex, default or priority", t.Tier)
	}
	t.tier = orDefault(t.tier)
	if e := (&Entry{Terms: *t}); t.Leave != nil && !e.allows(*t.Leave) {
		return fmt.Errorf("leave is %v, which leaves does not allow", t.Leave)
	}
	return nil
}

// ParseTier parses a service_tier. "" and auto name no tier.
func ParseTier(word string) (llmv1.Tier, error) {
	switch word {
	case "", "auto":
		return llmv1.Tier_TIER_UNSPECIFIED, nil
	case "default":
		return llmv1.Tier_TIER_DEFAULT, nil
	case "flex":
		return llmv1.Tier_TIER_FLEX, nil
	case "priority":
		return llmv1.Tier_TIER_PRIORITY, nil
	default:
		return 0, fmt.Errorf("there is no tier %.64q", word)
	}
}

// orDefault returns the default tier for a request without a tier.
func orDefault(tier llmv1.Tier) llmv1.Tier {
	if tier == llmv1.Tier_TIER_UNSPECIFIED {
		return llmv1.Tier_TIER_DEFAULT
	}
	return tier
}

// A Holder is a caller that has presented a key or a token.
type Holder struct {
	Entry    *Entry // nil without a ring, and for tokens that only operate
	Operates bool   // the token has the rights of the operator's key
}

// Find returns the holder of the key or the token in a header. A header without a key of the ring, and without a valid token
// of its issuers, is UNAUTHENTICATED.
func (r *Ring) Find(ctx context.Context, header string) (Holder, error) {
	if r == nil {
		return Holder{}, nil
	}
	scheme, key, _ := strings.Cut(header, " ")
	key = strings.TrimSpace(key)
	switch {
	case header == "":
		return Holder{}, &streamerr.Error{Reason: streamerr.Unauthenticated, Param: Header, Message: "the header " + Header + " with an API key is missing"}
	case !strings.EqualFold(scheme, "bearer"), key == "":
		return Holder{}, invalidToken(Header + " must be Bearer and an API key")
	}
	t := r.table.Load()
	e := t.keys[sha256.Sum256([]byte(key))]
	switch {
	case e == nil:
		return t.verify(ctx, key)
	case !e.Expires.IsZero() && !time.Now().Before(e.Expires):
		return Holder{}, invalidToken("the API key has expired")
	}
	return Holder{Entry: e}, nil
}

// Claim returns the claim of a stream in a tier. A request without a tier gets the default tier, or
// the key's tier if that is less urgent. An unknown tier is INVALID. A nil Entry allows any tier,
// without a tenant.
func (e *Entry) Claim(tier llmv1.Tier) (*llmv1.Claim, error) {
	if _, known := llmv1.Tier_name[int32(tier)]; !known { // clients of WebSockets may send any number
		return nil, streamerr.InvalidParam("service_tier", "there is no tier %d", tier)
	}
	if e == nil {
		return &llmv1.Claim{Tier: tier}, nil
	}
	if tier == llmv1.Tier_TIER_UNSPECIFIED {
		tier = min(orDefault(tier), e.tier)
	}
	if tier > e.tier {
		return nil, &streamerr.Error{Reason: streamerr.Forbidden, Param: "service_tier", Message: "the API key does not allow a service_tier above " + tierWord(e.tier)}
	}
	return &llmv1.Claim{Tenant: e.Tenant, Weight: e.Weight, Tier: tier, Key: e.ID}, nil
}

// Policy returns the leave policy of a request: asked if it is not nil, else the key's policy, else
// otherwise. A request for more than the key allows is FORBIDDEN. If otherwise exceeds the key's
// limit, the first policy of Leaves replaces it.
func (e *Entry) Policy(asked *leave.Policy, otherwise leave.Policy) (leave.Policy, error) {
	switch {
	case asked != nil && !e.allows(*asked):
		return leave.Policy{}, &streamerr.Error{
			Reason: streamerr.Forbidden, Param: leave.Header,
			Message: fmt.Sprintf("the API key does not allow the policy %v; the key file allows %v", asked, e.limits()),
		}
	case asked != nil:
		return *asked, nil
	case e != nil && e.Leave != nil:
		return *e.Leave, nil
	case !e.allows(otherwise):
		return e.Leaves[0], nil
	default:
		return otherwise, nil
	}
}

// Keeps reports whether the key allows that answers are kept after their readers have left.
func (e *Entry) Keeps() bool { return e.allows(leave.Policy{Kind: leave.Linger, For: 1}) }

// limits returns the policies that bound the policies of the key; an empty list means no bound.
func (e *Entry) limits() []leave.Policy {
	switch {
	case e == nil:
		return nil
	case len(e.Leaves) == 0 && e.Leave != nil:
		return []leave.Policy{*e.Leave}
	default:
		return e.Leaves
	}
}

func (e *Entry) allows(p leave.Policy) bool {
	limits := e.limits()
	return len(limits) == 0 || slices.ContainsFunc(limits, p.Within)
}

func tierWord(t llmv1.Tier) string {
	return strings.ToLower(strings.TrimPrefix(t.String(), "TIER_"))
}
