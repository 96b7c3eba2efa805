// Package access decides which callers may see, read and stop a stream.
//
// The owner of a stream is the tenant of the API key that made it or, without a key file, the
// credentials that made it. The owner is stored as a digest, travels with the stream's Claim to
// every hop, and is the same on all instances. Operators may see and stop every stream, and read
// none.
//
// With a key file, or on a listener that other machines reach, a caller sees, stops and reads its
// own streams only. A stream of another owner is answered like a stream that does not exist. Lists
// hold a caller's own streams only where there is a key file or an operator's key; without both, a
// list shows the ids of all streams to every caller.
package access

import (
	"crypto/subtle"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Guard checks callers against the keys. Its fields must not change while it is in use.
type Guard struct {
	// Keys are the API keys of a file. A nil ring lets every caller in.
	Keys *keys.Ring
	// Operator is the operator's key; a blank key means none.
	Operator string
	// Loopback says that only this machine reaches the listener. Without Keys and Operator, every
	// caller then sees and stops every stream; without Keys, every caller reads the streams that
	// were made without credentials.
	Loopback bool
	// Tokens checks read tokens.
	Tokens *follow.Keyring
}

// A Caller is the identity behind a request.
type Caller struct {
	// Entry is the key file's entry for the caller's API key; nil without a key file, and for the
	// operator.
	Entry *keys.Entry
	// Owner owns the streams that the caller makes; empty for a caller without credentials.
	Owner string
	// Operates says that the caller has the operator's key.
	Operates bool
}

// Caller identifies the caller by the Authorization header. With a key file, a caller with neither
// a listed key nor the operator's key is UNAUTHENTICATED.
func (g *Guard) Caller(authorization string) (Caller, error) {
	credentials := normal(authorization)
	c := Caller{Owner: follow.Digest(credentials)}
	if operator := strings.TrimSpace(g.Operator); operator != "" && same(c.Owner, follow.Digest(normal("Bearer "+operator))) {
		c.Operates = true
		return c, nil
	}
	entry, err := g.Keys.Find(credentials)
	if err != nil {
		return Caller{}, err
	}
	if entry != nil {
		c.Entry, c.Owner = entry, follow.Digest("tenant", entry.Tenant)
	}
	return c, nil
}

// Claim returns the claim of a new stream of the caller in a tier.
func (c Caller) Claim(tier llmv1.Tier) (*llmv1.Claim, error) {
	claim, err := c.Entry.Claim(tier)
	if err != nil {
		return nil, err
	}
	claim.Owner = c.Owner
	return claim, nil
}

// Bound applies the bounds of the caller's key to a request and its timeout, in which 0 means none. byDefault says that
// the request's max_tokens is the default of its API. Errors name the fields of the IDL.
func (c Caller) Bound(req *chatv1.ChatRequest, timeout *time.Duration, byDefault bool) (err error) {
	if err := c.Entry.Model(req.GetModel()); err != nil {
		return err
	}
	*timeout = c.Entry.Timeout(*timeout)
	req.Sampling, err = c.Entry.Sampling(req.GetSampling(), byDefault)
	return err
}

// normal returns credentials in the form that is compared: the scheme in lower case, because
// schemes ignore case, one space, and the rest.
func normal(authorization string) string {
	text := strings.Trim(authorization, " \t")
	at := strings.IndexAny(text, " \t")
	if at < 0 {
		return text
	}
	return strings.ToLower(text[:at]) + " " + strings.TrimLeft(text[at:], " \t")
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// open reports whether every caller sees and stops every stream.
func (g *Guard) open() bool { return g.Keys == nil && g.Operator == "" && g.Loopback }

// Owners returns the owners whose streams a caller may see and stop; nil means all owners. Without
// a key file, every caller may see and stop the streams that were made without credentials.
func (g *Guard) Owners(c Caller) []string {
	switch {
	case c.Operates || g.open():
		return nil
	case g.Keys != nil:
		return []string{c.Owner}
	case c.Owner == "":
		return []string{""}
	default:
		return []string{c.Owner, ""}
	}
}

// Listed returns the owners whose streams appear in a caller's list; nil means all owners. Without
// a key file and without an operator's key, lists are complete: a gateway has to restrict access to
// the port. With an operator's key only, a list requires credentials, because the id of a stream
// that was made without credentials is enough to read it.
func (g *Guard) Listed(c Caller) ([]string, error) {
	switch {
	case c.Operates || g.Keys == nil && g.Operator == "":
		return nil, nil
	case c.Owner == "":
		return nil, &streamerr.Error{Reason: streamerr.Unauthenticated, Message: "a list of streams takes the Authorization that made them, or the operator's key, as Authorization: Bearer"}
	default:
		return []string{c.Owner}, nil
	}
}

// Fleet refuses the list of workers to all callers but operators, where there are keys.
func (g *Guard) Fleet(c Caller) error {
	switch {
	case c.Operates || g.Keys == nil && g.Operator == "":
		return nil
	case c.Owner == "":
		return &streamerr.Error{Reason: streamerr.Unauthenticated, Message: "the list of workers takes the operator's key, as Authorization: Bearer"}
	case g.Operator == "":
		return &streamerr.Error{Reason: streamerr.Forbidden, Message: "the list of workers takes an operator's key; start api-service with --operator-key"}
	default:
		return &streamerr.Error{Reason: streamerr.Forbidden, Message: "the list of workers takes the operator's key"}
	}
}

// Read refuses access to a stream's events unless the caller is the stream's owner or presents a
// read token of this very stream. A caller without access gets the answer of Missing.
func (g *Guard) Read(c Caller, h replay.Head, token string) error {
	switch {
	case h.Owner != "" && same(h.Owner, c.Owner), h.Owner == "" && g.Loopback && g.Keys == nil:
		return nil
	case token == "" && c.Operates:
		return &streamerr.Error{Reason: streamerr.Forbidden, Message: "the operator's key does not read answers"}
	case token != "":
		if valid, err := g.Tokens.Check(h.ID, h.Epoch, token); valid || err != nil {
			return err
		}
	}
	return Missing(h.ID)
}

// Missing is the error for a stream that does not exist, and for a stream that the caller must not
// know of.
func Missing(id string) *streamerr.Error {
	e := streamerr.New(streamerr.NotFound, "there is no stream %q, or another owner has made it: use the Authorization that made it or, to read it, its read_token as ?token=", id)
	e.Param = "id"
	return e
}
