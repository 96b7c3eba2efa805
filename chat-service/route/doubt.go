package route

import (
	"context"
	"log/slog"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// doubt has a worker asked how it is, if what it has ended with is a reason to. It reports whether that is so.
func doubt(w *fleet.Worker, ending *streamerr.Error) bool {
	switch ending.Reason {
	case streamerr.PeerLost, streamerr.PeerReset, streamerr.Draining, streamerr.Unavailable:
		w.Suspect()
		return true
	default:
		return false
	}
}

// elsewhere reports whether another worker may do better than this one, which has ended so and is doubted for it, if that is a
// reason: to be full is none.
func elsewhere(w *fleet.Worker, ending *streamerr.Error) bool {
	return doubt(w, ending) || ending.Reason == streamerr.Overloaded
}

// moved notes that another worker goes on with a stream, behind so many tokens, and why the one before does not.
func (p *Pool) moved(ctx context.Context, from, to string, why *streamerr.Error, tokens int, exact bool) {
	p.opts.Log.LogAttrs(ctx, slog.LevelInfo, "stream moved",
		slog.String("stream", stream.ID(ctx)), slog.String("hop", p.opts.Self), slog.String("from", from), slog.String("to", to),
		slog.String("reason", why.Reason.String()), slog.Int("tokens", tokens), slog.Bool("exact", exact), slog.String("message", why.Text()))
	ledger.Of(ctx).Moved(from, to, why.Reason, tokens)
}
