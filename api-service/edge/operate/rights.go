package operate

import (
	"context"
	"crypto/subtle"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Rights say who may stop a stream, and see its record: whoever made it, and an operator, who may also see lists. A stream that
// was made without credentials is anybody's who knows its id. Nothing of this lets anybody read what a stream says.
type Rights struct {
	// Operator is the operator's key. Without one nobody can be told from an operator, so that lists are open, and so is a
	// stream whose owner this instance does not know.
	Operator string
	// Open lets everybody do everything while there is no Operator: for listeners that only this machine reaches.
	Open bool
	// Owner returns the digest of the credentials that made a stream, if this instance knows the stream. Where it is not live, it
	// has ended here.
	Owner func(ctx context.Context, id string) (owner string, live, known bool)
}

// mayList refuses lists to all but operators.
func (r *Rights) mayList(c *app.RequestContext) error {
	credentials := string(c.GetHeader(exchange.AuthorizationHeader))
	switch {
	case r.Operator == "" || r.Operates(credentials):
		return nil
	case credentials == "":
		return &streamerr.Error{Reason: streamerr.Unauthenticated, Message: "lists take the operator's key, as Authorization: Bearer"}
	default:
		return &streamerr.Error{Reason: streamerr.Forbidden, Message: "lists take the operator's key"}
	}
}

// mayHave refuses a stream to all but its owner and operators.
func (r *Rights) mayHave(ctx context.Context, c *app.RequestContext, id string) error {
	credentials := string(c.GetHeader(exchange.AuthorizationHeader))
	if r.Operator == "" && r.Open || r.Operates(credentials) {
		return nil
	}
	owner, _, known := r.Owner(ctx, id)
	switch {
	case !known && r.Operator == "", known && owner == "", known && same(owner, follow.Digest(credentials)):
		return nil
	case credentials == "":
		return &streamerr.Error{Reason: streamerr.Unauthenticated, Message: "this takes the Authorization that made the stream, or the operator's"}
	case !known:
		return &streamerr.Error{Reason: streamerr.Forbidden, Message: "this instance does not know who made the stream; ask the one that runs it, or with the operator's key"}
	default:
		return &streamerr.Error{Reason: streamerr.Forbidden, Message: "the stream was made with other credentials"}
	}
}

// mayAskBelow refuses to have hops below stop a stream that has ended here, to all but operators: whoever knows the id of
// somebody's stream at another instance could ask for one of the same id here, and would be its owner.
func (r *Rights) mayAskBelow(ctx context.Context, c *app.RequestContext, id string) error {
	if r.Operator == "" || r.Operates(string(c.GetHeader(exchange.AuthorizationHeader))) {
		return nil
	}
	if _, live, known := r.Owner(ctx, id); known && !live {
		e := streamerr.New(streamerr.NotFound, "the stream has ended")
		e.Param = "stream_id"
		return e
	}
	return nil
}

// Operates reports whether a request has the operator's key.
func (r *Rights) Operates(credentials string) bool {
	return r.Operator != "" && same(follow.Digest("Bearer "+r.Operator), follow.Digest(credentials))
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
