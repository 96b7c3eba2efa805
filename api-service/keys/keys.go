// Package keys reads the file of API keys: the tenant of each key, and the limits of keys and tenants.
package keys

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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

// An Entry is the tenant and the limits of one key. Several keys of one tenant own the same
// streams.
type Entry struct {
	// Key is the key itself; SHA256 is its digest in hex, for files that others can read. One of
	// them is there.
	Key    string `yaml:"key"`
	SHA256 string `yaml:"sha256"`
	// ID names the key in usage records; "" means the first 12 hex digits of its digest.
	ID string `yaml:"id"`
	// Tenant owns the streams that are made with the key.
	Tenant string `yaml:"tenant"`
	// Weight is the tenant's share among tenants; 0 is 1.
	Weight uint32 `yaml:"weight"`
	// Tier is the most urgent service_tier that the key's streams get; "" is default.
	Tier string `yaml:"tier"`
	// Leave is the policy of requests without X-Leave; nil is the policy of the flags.
	Leave *leave.Policy `yaml:"leave"`
	// Leaves are the policies that X-Leave may ask for, and every policy within one of them. If
	// there are none, Leave is the limit; without Leave there is no limit.
	Leaves []leave.Policy `yaml:"leaves"`
	// Limits are those of the key alone; the tenant's hold besides.
	Limits quota.Limits `yaml:",inline"`
	// Models are the models that the key may ask for; none means all.
	Models []string `yaml:"models"`
	// MaxTokens bounds the max_tokens of a request, and is its default; 0 means no bound.
	MaxTokens uint32 `yaml:"max_tokens"`
	// Deadline bounds the time that a stream may take; 0 means no bound.
	Deadline time.Duration `yaml:"deadline"`
	// Expires is when the key stops being valid; zero means never. Streams that run then go on.
	Expires time.Time `yaml:"expires"`

	tier   llmv1.Tier
	shared quota.Limits // of the tenant, over all its keys
}

// A File holds entries, and the limits of tenants over all their keys.
type File struct {
	Tenants map[string]quota.Limits `yaml:"tenants"`
	Keys    []*Entry                `yaml:"keys"`
}

// A Ring maps keys to entries. A nil Ring accepts every caller, without a tenant. A Ring of a file can be replaced
// while it is in use.
type Ring struct {
	text    []byte   // of the file, as it was read last; owned by Follow
	unused  []string // tenants with limits, to which no key belongs; owned by Follow
	entries atomic.Pointer[map[[sha256.Size]byte]*Entry]
}

// Load reads the YAML file at path; an empty path returns a nil ring.
func Load(path string) (*Ring, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	ring, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("keys in %s: %w", path, err)
	}
	ring.text = text
	return ring, nil
}

// Parse reads a file's text.
func Parse(text []byte) (*Ring, error) {
	entries, unused, err := parse(text)
	if err != nil {
		return nil, err
	}
	r := &Ring{unused: unused}
	r.entries.Store(&entries)
	return r, nil
}

// parse returns the entries of a file, and the tenants with limits to which no key belongs: their last key may have been
// revoked.
func parse(data []byte) (entries map[[sha256.Size]byte]*Entry, unused []string, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	var file File
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	if file.Keys == nil {
		return nil, nil, errors.New("the file has no keys; write keys: [] to refuse every caller")
	}
	for tenant, limits := range file.Tenants {
		if err := limits.Check(); err != nil {
			return nil, nil, fmt.Errorf("tenants: %q: %w", tenant, err)
		}
		if !slices.ContainsFunc(file.Keys, func(e *Entry) bool { return e != nil && e.Tenant == tenant }) {
			unused = append(unused, tenant)
		}
	}
	slices.Sort(unused)
	entries, err = file.entries()
	return entries, unused, err
}

// entries returns the entries of a file by their digests.
func (file *File) entries() (map[[sha256.Size]byte]*Entry, error) {
	entries := make(map[[sha256.Size]byte]*Entry, len(file.Keys))
	weights, ids := map[string]uint32{}, map[string]bool{}
	for i, e := range file.Keys {
		if e == nil {
			return nil, fmt.Errorf("keys[%d] is empty", i)
		}
		e.shared = file.Tenants[e.Tenant]
		digest, err := e.check()
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		if entries[digest] != nil {
			return nil, fmt.Errorf("keys[%d]: the key appears more than once", i)
		}
		if was, known := weights[e.Tenant]; known && was != e.Weight {
			return nil, fmt.Errorf("keys[%d]: the tenant %q has the weights %d and %d", i, e.Tenant, was, e.Weight)
		}
		weights[e.Tenant] = e.Weight
		e.ID = nameOf(e.ID, digest)
		if ids[e.ID] {
			return nil, fmt.Errorf("keys[%d]: the id %q appears more than once", i, e.ID)
		}
		ids[e.ID], entries[digest] = true, e
	}
	return entries, nil
}

const (
	// maxTenant and maxID bound a tenant's name and a key's id, in bytes.
	maxTenant = 64
	maxID     = 64
	// idDigits is the number of hex digits of a key's digest that name the key.
	idDigits = 12
)

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
	case e.Weight > MaxWeight:
		return digest, fmt.Errorf("weight is %d; it must be at most %d", e.Weight, MaxWeight)
	}
	if err := e.Limits.Check(); err != nil {
		return digest, err
	}
	if e.Deadline < 0 {
		return digest, fmt.Errorf("deadline is %v; it must not be negative", e.Deadline)
	}
	e.Weight = max(e.Weight, 1)
	if e.tier, err = ParseTier(e.Tier); err != nil {
		return digest, fmt.Errorf("tier is %.64q; it must be flex, default or priority", e.Tier)
	}
	e.tier = orDefault(e.tier)
	if e.Leave != nil && !e.allows(*e.Leave) {
		return digest, fmt.Errorf("leave is %v, which leaves does not allow", e.Leave)
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

// orDefault returns the tier of a request that names none.
func orDefault(tier llmv1.Tier) llmv1.Tier {
	if tier == llmv1.Tier_TIER_UNSPECIFIED {
		return llmv1.Tier_TIER_DEFAULT
	}
	return tier
}

// Find returns the entry of the key in a header, or nil without a ring. A header without a key of
// the ring is UNAUTHENTICATED.
func (r *Ring) Find(header string) (*Entry, error) {
	if r == nil {
		return nil, nil
	}
	scheme, key, _ := strings.Cut(header, " ")
	key = strings.TrimSpace(key)
	switch {
	case header == "":
		return nil, &streamerr.Error{Reason: streamerr.Unauthenticated, Param: Header, Message: "the header " + Header + " with an API key is missing"}
	case !strings.EqualFold(scheme, "bearer"), key == "":
		return nil, &streamerr.Error{Reason: streamerr.Unauthenticated, Param: Header, Code: streamerr.CodeInvalidKey, Message: Header + " must be Bearer and an API key"}
	}
	e := (*r.entries.Load())[sha256.Sum256([]byte(key))]
	switch {
	case e == nil:
		return nil, &streamerr.Error{Reason: streamerr.Unauthenticated, Param: Header, Code: streamerr.CodeInvalidKey, Message: "the API key is not known"}
	case !e.Expires.IsZero() && !time.Now().Before(e.Expires):
		return nil, &streamerr.Error{Reason: streamerr.Unauthenticated, Param: Header, Code: streamerr.CodeInvalidKey, Message: "the API key has expired"}
	}
	return e, nil
}

// Claim returns the claim of a stream in a tier. A request that names no tier gets the default
// tier, or the key's tier if that is less urgent. A nil Entry allows any tier, without a tenant.
func (e *Entry) Claim(tier llmv1.Tier) (*llmv1.Claim, error) {
	if e == nil {
		return &llmv1.Claim{Tier: tier}, nil
	}
	if tier == llmv1.Tier_TIER_UNSPECIFIED {
		tier = min(orDefault(tier), e.tier)
	}
	if tier > e.tier {
		return nil, &streamerr.Error{Reason: streamerr.Forbidden, Param: "service_tier", Message: "the API key may not ask for a service_tier over " + tierWord(e.tier)}
	}
	return &llmv1.Claim{Tenant: e.Tenant, Weight: e.Weight, Tier: tier, Key: e.ID}, nil
}

// Policy returns the leaving policy of a request: the policy that it asks for, unless asked is nil,
// else the key's, else otherwise. A request for more than the key allows is FORBIDDEN. If otherwise
// exceeds the key's limit, the first policy of Leaves replaces it.
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

// limits returns the policies that bound the key's; an empty list means no bound.
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
