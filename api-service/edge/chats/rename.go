package chats

import (
	"context"

	"github.com/whence-dev/whence/pkg/streamerr"
)

type renameKey struct{}

// WithRename returns a context whose stream may get another id before it starts. Clients name streams, and
// two api-services may begin streams of the same name, which only the chat-service below them sees. rename
// sets the id of the request, and reports false if the stream must keep its id.
func WithRename(ctx context.Context, rename func() bool) context.Context {
	return context.WithValue(ctx, renameKey{}, rename)
}

// maxRenames bounds the ids that are tried for a stream. The second one is random.
const maxRenames = 2

// renamed reports whether the stream of ctx has got another id, because a hop below has refused the one of its
// request. n is the number of times that it has got one before.
func renamed(ctx context.Context, refusal error, n int) bool {
	e := streamerr.As(refusal)
	rename, ok := ctx.Value(renameKey{}).(func() bool)
	return ok && n < maxRenames && e.Reason == streamerr.Invalid && e.Param == "stream_id" && rename()
}
