package beside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/pkg/rpc/problem"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// After maxMisses late probes in a row the server is unhealthy: a busy server may be late. A server
	// that refuses the connection is unhealthy at once.
	maxMisses = 3
	// AskTimeout bounds a health probe, which generates nothing.
	AskTimeout = time.Second
	// TryTimeout bounds a trial, which may have to wait in the server's queue.
	TryTimeout = 30 * time.Second
)

// A Look probes the server, and returns the server's current properties, or why it cannot be used.
// was is the result of the last look, or nil if the server could not be used; a Look returns was
// itself if nothing has changed. doubt means that a stream's ending suggests that the server was
// replaced or has failed. A Look generates nothing on the server, except in a Trial. It is called
// by one goroutine at a time, so it may keep state.
type Look func(ctx context.Context, was *Upstream, doubt bool) (*Upstream, error)

// Watch probes the server every ProbeInterval until ctx is done. It calls changed when the health
// has changed; before the first call the server counts as unhealthy.
func (e *Engine) Watch(ctx context.Context, changed func(healthy bool)) {
	tick := time.NewTicker(cmp.Or(e.opts.ProbeInterval, time.Second))
	defer tick.Stop()
	w := watch{engine: e}
	w.probed = make(chan struct{}, 1)
	var loads sync.WaitGroup
	defer loads.Wait()
	defer close(w.probed)
	loads.Go(func() { e.readLoads(ctx, w.probed) })
	doubt := e.doubt // nil after one, until the next tick: a server that loses every stream is not probed for each
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

// A watch is the state of Watch between probes.
type watch struct {
	engine *Engine
	doubt  bool // the server may have been replaced
	misses int  // late probes in a row
	lull   lull
	log    problem.Log
	told   []string // notes about the server that the log has
	// probed has capacity 1 and asks for the server's load. Watch closes it.
	probed chan struct{}
}

func (w *watch) once(ctx context.Context, changed func(healthy bool)) {
	e := w.engine
	was := e.upstream.Load()
	up, err := w.look(ctx, was)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		w.misses, w.doubt = 0, false
	} else {
		w.misses++
	}
	if was != nil && Late(err) && w.misses < maxMisses {
		w.askLoad() // the server may be busy
		return
	}
	e.problem.Store(new(problemOf(err)))
	e.upstream.Store(up)
	if err != nil && w.log.Due(e.Problem()) {
		e.opts.Log.Warn("upstream is not healthy", "upstream", e.opts.Upstream, "problem", e.Problem(), "err", err,
			"then", "it is probed each second, and tried with one token when it seems to be back")
	}
	switch {
	case was == nil && up != nil:
		w.log.Clear()
		can := up.Capabilities
		e.opts.Log.Info("upstream is healthy", "upstream", e.opts.Upstream, "server", can.GetUpstream(), "model", up.Name,
			"prompt", word(can.GetPrompt()), "answer", word(can.GetAnswer()), "generates", up.Ask != nil, "embeds", up.AskEmbed != nil, "scores", up.AskScore != nil, "context_length", shownContext(up.Context))
		changed(true)
	case was != nil && up == nil:
		changed(false)
	}
	if up != nil {
		w.tell(up.Notes)
		w.askLoad()
	}
}

// longLook is longer than any look without a trial.
const longLook = 5 * time.Second

// look calls the engine's Look, in doubt if the server has been silent. While a server that does not answer its
// trial may be busy, the error is a late one; see Late.
func (w *watch) look(ctx context.Context, was *Upstream) (*Upstream, error) {
	e, begun := w.engine, time.Now()
	silent := w.lull.update(e.answers.Load(), e.running.Load() > 0, begun)
	doubt := w.doubt || silent >= suspectAfter
	if was == nil && silent < maxSilence {
		defer w.tellTrial()()
	}
	up, err := e.look(ctx, was, doubt)
	if _, late := errors.AsType[*lateTrial](err); late {
		if silent = w.lull.update(e.answers.Load(), true, begun); was == nil || silent >= maxSilence {
			return nil, blocked(silent)
		}
		w.misses = 0
		return nil, err
	}
	if err == nil && (was == nil || doubt) {
		w.lull.since = time.Time{} // it has answered a trial
	}
	return up, err
}

// tellTrial reports as the server's problem that a trial takes long. The caller calls done after the trial.
func (w *watch) tellTrial() (done func()) {
	const problem = "the server that generates is tried with a short request, and has not answered it yet: one that loads its model, or compiles, takes minutes for its first answer"
	e, told := w.engine, make(chan struct{})
	timer := time.AfterFunc(longLook, func() {
		defer close(told)
		e.problem.Store(new(problem))
		if w.log.Due(problem) {
			e.opts.Log.Info("upstream is being tried", "upstream", e.opts.Upstream, "problem", problem, "then", fmt.Sprintf("it is waited for up to %v while it answers probes", maxTryTimeout))
		}
	})
	return func() {
		if !timer.Stop() {
			<-told
		}
	}
}

// askLoad asks for the server's load.
func (w *watch) askLoad() {
	select {
	case w.probed <- struct{}{}:
	default: // the last load report is still under way
	}
}

// shownContext returns a context length for the log.
func shownContext(tokens int) any {
	if tokens == textonly.NoLimit {
		return "unknown"
	}
	return tokens
}

// tell logs the notes about the server that are new.
func (w *watch) tell(notes []string) {
	for _, note := range notes {
		if !slices.Contains(w.told, note) {
			w.engine.opts.Log.Warn("upstream has a peculiarity", "upstream", w.engine.opts.Upstream, "note", note)
		}
	}
	w.told = notes
}

// Late reports whether a probe failed because the server took too long.
func Late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, streamerr.Deadline)
}

// problemOf describes why the server cannot be used. It names no address, because callers read it.
func problemOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*streamerr.Error](err); ok && slices.Contains(e.Path, Hop) {
		return e.Text()
	}
	return "the server that generates cannot be used: " + err.Error()
}

func word(form llmv1.Form) string {
	return strings.ToLower(strings.TrimPrefix(form.String(), "FORM_"))
}

// suspect probes the server now if err suggests that the server has changed: it is gone or was
// replaced, rejects the key, or has lost the model.
func (e *Engine) suspect(err error) {
	for _, reason := range []error{streamerr.Unavailable, streamerr.PeerLost, streamerr.NotFound, ErrKeyRefused} {
		if errors.Is(err, reason) {
			select {
			case e.doubt <- struct{}{}:
			default:
			}
			return
		}
	}
}
