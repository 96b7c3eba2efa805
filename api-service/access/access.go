// Package access decides which callers may see, read and stop a stream.
//
// The owner of a stream is the tenant of the API key that created it or, without a key file, the
// credentials that created it. The owner is stored as a digest, travels with the stream's Claim to
// every hop, and is the same on all instances. Operators may see and stop every stream, but read
// none.
//
// With a key file, or on a listener that other machines reach, a caller sees, stops and reads its
// own streams only. A stream of another owner is answered like a stream that does not exist. Lists
// hold a caller's own streams only where there is a key file, an operator's key or an admin
// listener; without them, a list shows the ids of all streams to every caller.
package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Role says which callers a listener serves.
type Role int

// Roles.
const (
	// ForAll is the role of the only listener: it serves operators, too.
	ForAll Role = iota
	// ForCallers is the role of the public listener beside an admin listener. No caller is an
	// operator there.
	ForCallers
	// ForOperators is the role of the admin listener. Every admitted caller is an operator.
	ForOperators
)

// A Guard checks the callers of one listener against the keys. Its fields must not change while it is in use.
type Guard struct {
	Role Role
	// Keys are the API keys of a file. A nil ring lets every caller in.
	Keys *keys.Ring
	// Operator is the operator's key; a blank key means none.
	Operator string
	// Loopback reports that only this machine reaches the listener. Without Keys and Operator,
	// every caller then sees and stops every stream; without Keys, every caller reads the streams
	// that were created without credentials.
	Loopback bool
	// Tokens checks read tokens.
	Tokens *follow.Keyring
}

// A Caller is the identity behind a request.
type Caller struct {
	// Entry is the key file's entry for the caller's API key or token; nil without a key file, and
	// for the operator.
	Entry *keys.Entry
	// Owner owns the streams that the caller creates; empty for a caller without credentials.
	Owner string
	// Operates reports that the caller is an operator: it has the operator's key or, if there is
	// none, uses the admin listener.
	Operates bool

	guard *Guard // the guard that identified the caller
}

// Anonymous returns a caller without credentials, for a request for which a read token is enough.
func (g *Guard) Anonymous() Caller { return Caller{guard: g} }

// Caller identifies the caller by the Authorization header. With a key file, a caller with neither
// a listed key nor the operator's key is UNAUTHENTICATED. So is a caller of the admin listener without the
// operator's key, if there is one.
func (g *Guard) Caller(ctx context.Context, authorization string) (Caller, error) {
	credentials := normal(authorization)
	c := Caller{Owner: follow.Digest(credentials), guard: g}
	operator := strings.TrimSpace(g.Operator)
	if operator != "" && g.Role != ForCallers && same(c.Owner, follow.Digest(normal("Bearer "+operator))) {
		c.Operates = true
		return c, nil
	}
	if g.Role == ForOperators && operator == "" {
		if c.Operates = true; c.Owner == "" {
			return c, nil
		}
	}
	holder, err := g.Keys.Find(ctx, credentials)
	if err == nil {
		c.Operates = c.Operates || holder.Operates && g.Role != ForCallers
		err = g.admit(c, holder)
	} else if g.Role == ForOperators && operator != "" && errors.Is(err, streamerr.Unauthenticated) {
		err = errOperators
	}
	if err != nil {
		return Caller{}, err
	}
	if holder.Entry != nil {
		c.Entry, c.Owner = holder.Entry, follow.Digest("tenant", holder.Entry.Tenant)
	}
	return c, nil
}

// errOperators refuses callers of the admin listener that are not operators.
var errOperators = &streamerr.Error{Reason: streamerr.Unauthenticated, Param: keys.Header, Message: "the admin listener requires the operator's key, as Authorization: Bearer"}

// admit refuses the holder of a valid key or token that gives no rights on the listener.
func (g *Guard) admit(c Caller, holder keys.Holder) error {
	switch {
	case g.Role == ForOperators && !c.Operates:
		return errOperators
	case holder.Entry == nil && g.Keys != nil && !c.Operates:
		return &streamerr.Error{Reason: streamerr.Forbidden, Param: keys.Header, Message: "the token is an operator's, and this listener serves no operators"}
	default:
		return nil
	}
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

// Bound applies the bounds of the caller's key to a request and its timeout; 0 means no timeout.
// byDefault reports that the request's max_tokens is the default of its API. Errors name the fields
// of the IDL.
func (c Caller) Bound(req *chatv1.ChatRequest, timeout *time.Duration, byDefault bool) (err error) {
	if err := c.Entry.Model(req.GetModel()); err != nil {
		return err
	}
	*timeout = c.Entry.Timeout(*timeout)
	req.Sampling, err = c.Entry.Sampling(req.GetSampling(), byDefault)
	return err
}

// normal returns credentials in the form for comparisons: the scheme in lower case, because schemes
// ignore case, one space, and the rest.
func normal(authorization string) string {
	text := strings.Trim(authorization, " \t")
	at := strings.IndexAny(text, " \t")
	if at < 0 {
		return text
	}
	return strings.ToLower(text[:at]) + " " + strings.TrimLeft(text[at:], " \t")
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// complete reports whether lists show the streams of all owners to every caller.
func (g *Guard) complete() bool { return g.Keys == nil && g.Operator == "" && g.Role == ForAll }

// open reports whether every caller sees and stops every stream.
func (g *Guard) open() bool { return g.complete() && g.Loopback }

// Keyed reports whether the caller has had to present a key.
func (c Caller) Keyed() bool { return c.guard.Keys != nil }

// Make refuses a caller that may not make streams. With a key file, the operator's key makes none.
func (c Caller) Make() error {
	if c.Operates && c.Entry == nil && c.Keyed() {
		return &streamerr.Error{Reason: streamerr.Forbidden, Param: keys.Header, Message: "the operator's key makes no streams; use an API key"}
	}
	return nil
}

// Owners returns the owners whose streams the caller may see and stop; nil means all owners. Without
// a key file, every caller may see and stop the streams that were made without credentials.
func (c Caller) Owners() []string {
	switch {
	case c.Operates || c.guard.open():
		return nil
	case c.Keyed():
		return []string{c.Owner}
	case c.Owner == "":
		return []string{""}
	default:
		return []string{c.Owner, ""}
	}
}

// Listed returns the owners whose streams appear in the caller's list; nil means all owners. Without
// a key file, an operator's key and an admin listener, lists are complete: a gateway has to restrict
// access to the port. With an operator's key or an admin listener only, a list requires credentials, because the id of a stream
// that was made without credentials is enough to read it.
func (c Caller) Listed() ([]string, error) {
	switch {
	case c.Operates || c.guard.complete():
		return nil, nil
	case c.Owner == "":
		return nil, &streamerr.Error{Reason: streamerr.Unauthenticated, Message: "a list of streams requires the Authorization that created them, or the operator's key, as Authorization: Bearer"}
	default:
		return []string{c.Owner}, nil
	}
}

// Fleet refuses the list of workers to all callers but operators, where there are keys or an admin listener.
func (c Caller) Fleet() error {
	switch {
	case c.Operates || c.guard.complete():
		return nil
	case c.guard.Role == ForCallers:
		return &streamerr.Error{Reason: streamerr.Forbidden, Message: "the list of workers is on the admin listener"}
	case c.Owner == "":
		return &streamerr.Error{Reason: streamerr.Unauthenticated, Message: "the list of workers requires the operator's key, as Authorization: Bearer"}
	case c.guard.Operator == "":
		return &streamerr.Error{Reason: streamerr.Forbidden, Message: "the list of workers requires an operator's key; start api-service with --operator-key"}
	default:
		return &streamerr.Error{Reason: streamerr.Forbidden, Message: "the list of workers requires the operator's key"}
	}
}

// Read refuses access to a stream's events unless the caller is the stream's owner or presents a
// read token of this very stream. A caller without access gets the answer of Missing.
func (c Caller) Read(h replay.Head, token string) error {
	switch {
	case h.Owner != "" && same(h.Owner, c.Owner), h.Owner == "" && c.guard.Loopback && !c.Keyed():
		return nil
	case token == "" && c.Operates:
		return &streamerr.Error{Reason: streamerr.Forbidden, Message: "the operator's key does not read answers"}
	case token != "":
		if valid, err := c.guard.Tokens.Check(h.ID, h.Epoch, token); valid || err != nil {
			return err
		}
	}
	return Missing(h.ID)
}

// Missing returns the error for an unknown stream, and for a stream that the caller must not know
// of.
func Missing(id string) *streamerr.Error {
	e := streamerr.New(streamerr.NotFound, "there is no stream %q, or another owner has made it: use the Authorization that made it or, to read it, its read_token as ?token=", id)
	e.Param = "id"
	return e
}
