package beside

import (
	"context"
	"errors"
	"strings"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// askEvery is how often the server is looked at, and maxMisses how often on end it may be late: a server that is busy is
	// not gone. One that refuses the connection is, at once.
	askEvery  = time.Second
	maxMisses = 3
	// AskTimeout is how long it may take to say how it is.
	AskTimeout = time.Second
	// TryTimeout is how long the answer of one token may take by which it is known: it may have to wait its turn.
	TryTimeout = 30 * time.Second
)

// A Look returns what the server is now, or why it cannot be used. was is what it was at the last look, and is returned as it
// is if nothing has changed; nil if it could not be used. doubt says that another server may be there by now. It is called by
// one goroutine at a time, so it may remember.
type Look func(ctx context.Context, was *Upstream, doubt bool) (*Upstream, error)

// Watch looks at the server, again and again, until ctx is done. changed is called when its health has changed; before the
// first call it is not healthy.
func (e *Engine) Watch(ctx context.Context, changed func(healthy bool)) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	w := watch{engine: e}
	doubt := e.doubt // nil after one, until the next tick: a server that loses every stream is not asked for each
	for {
		w.once(ctx, changed)
		select {
		case <-tick.C:
			doubt = e.doubt
		case <-doubt:
			w.doubt, doubt = true, nil
		case <-ctx.Done():
			return
		}
	}
}

// A watch is what Watch remembers from one look to the next.
type watch struct {
	engine *Engine
	doubt  bool   // another server may be there
	misses int    // how often it was late, on end
	said   string // what was logged last, so that it is not logged each second
}

func (w *watch) once(ctx context.Context, changed func(healthy bool)) {
	e := w.engine
	was := e.upstream.Load()
	up, err := e.look(ctx, was, w.doubt)
	if ctx.Err() != nil {
		return
	}
	w.misses++
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, streamerr.Deadline)
	switch {
	case err == nil:
		w.misses, w.doubt = 0, false
	case was != nil && late && w.misses < maxMisses:
		return
	}
	e.upstream.Store(up)
	switch {
	case was == nil && up != nil:
		can := up.Capabilities
		e.opts.Log.Info("upstream is healthy", "upstream", e.opts.Upstream, "server", can.GetUpstream(), "model", up.Name,
			"prompt", word(can.GetPrompt()), "answer", word(can.GetAnswer()), "embeds", up.AskEmbed != nil, "context_length", up.Context)
		changed(true)
	case was != nil && up == nil:
		e.opts.Log.Warn("upstream is not healthy", "upstream", e.opts.Upstream, "err", err)
		changed(false)
	case err != nil && err.Error() != w.said:
		e.opts.Log.Warn("upstream is not usable", "upstream", e.opts.Upstream, "err", err)
	}
	w.said = ""
	if err != nil {
		w.said = err.Error()
	}
}

func word(form workerv1.Form) string {
	return strings.ToLower(strings.TrimPrefix(form.String(), "FORM_"))
}

// suspect has the server looked at, now, if err looks as if it were no longer what it was.
func (e *Engine) suspect(err error) {
	if errors.Is(err, streamerr.Unavailable) || errors.Is(err, streamerr.PeerLost) {
		select {
		case e.doubt <- struct{}{}:
		default:
		}
	}
}
