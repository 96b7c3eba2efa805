package batch

import (
	"errors"
	"slices"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// step advances the sequences that are due. If none is due, idle is true and wait is the time until
// the next one is; 0 if the batch is empty.
func (l *Loop) step() (wait time.Duration, idle bool) {
	l.ids = l.ids[:0]
	var now time.Time
	if l.gap > 0 {
		now = time.Now()
	}
	for _, s := range l.batch {
		if l.pauser != nil && l.pauser.Paused(s.id) {
			if s.paused.IsZero() {
				s.paused = time.Now()
			}
			continue
		}
		l.unpause(s)
		if ahead := s.due.Sub(now); l.gap > 0 && ahead > 0 {
			if wait == 0 || ahead < wait {
				wait = ahead
			}
			continue
		}
		l.ids = append(l.ids, s.id)
	}
	slices.Sort(l.ids) // oldest first, every time: map order would make runs differ
	if len(l.ids) == 0 {
		return wait, true
	}
	begun, prefill := l.watch()
	var err error
	if l.outs, err = l.advance(l.ids, l.outs[:0]); err != nil {
		l.fail(err)
		return 0, false
	}
	if l.opts.Observer != nil {
		l.opts.Observer.Stepped(time.Since(begun), len(l.ids), prefill)
	}
	for _, out := range l.outs {
		l.deliver(out, now)
	}
	l.publish()
	return 0, false
}

// unpause ends the pause of a sequence, if it was paused.
func (l *Loop) unpause(s *sequence) {
	if s.paused.IsZero() {
		return
	}
	if l.opts.Observer != nil {
		l.opts.Observer.Paused(time.Since(s.paused))
	}
	s.paused = time.Time{}
}

// watch returns the time before the next step, and whether the step reads a prompt, for the
// observer.
func (l *Loop) watch() (begun time.Time, prefill bool) {
	if l.opts.Observer == nil {
		return begun, false
	}
	for _, id := range l.ids {
		if l.batch[id].generated == 0 { // its prompt, or the rest of its prompt, is still to be read
			prefill = true
			break
		}
	}
	return time.Now(), prefill
}

// fail ends every sequence of a step that failed as a whole. The loop continues with the next
// batch.
func (l *Loop) fail(err error) {
	failed := err
	if _, panicked := errors.AsType[*Panic](err); !panicked { // guard has logged a panic
		l.opts.Log.Error("engine failed", "streams", len(l.ids), "err", err)
		failed = &streamerr.Error{Reason: streamerr.EngineFailed, Path: streamerr.NewPath(engineHop), Message: "the engine failed; the worker's log has the details", Cause: err}
	}
	for _, id := range l.ids {
		if s := l.batch[id]; s != nil {
			s.box.close(nil, failed)
			l.drop(s)
		}
	}
	l.publish()
}

// engineHop is the origin of endings that the engine decides.
const engineHop = "engine"

// deliver passes one output of a step to its sequence's mailbox.
func (l *Loop) deliver(out Output, now time.Time) {
	s := l.batch[out.ID]
	if s == nil {
		return
	}
	if out.Err != nil {
		l.logPanic(out.Err, 1)
		s.box.close(nil, out.Err)
		l.drop(s)
		return
	}
	if out.Vector != nil {
		l.embedded(s, out.Vector)
		return
	}
	out.Cached = min(out.Cached, s.promptTokens()) // the prompt of a moved sequence contains its answer so far
	if out.Handover == "" {
		s.generated++
	} else {
		s.box.hand(out.Handover)
	}
	if l.gap > 0 {
		s.due = s.due.Add(l.gap)
		if s.due.Before(now) { // the first token, or the model is slower than the pace
			s.due = now.Add(l.gap)
		}
	}
	if out.Prompt != nil {
		s.box.score(out.Prompt)
	}
	if !out.Hidden && out.Handover == "" && !s.box.put(out) {
		s.box.close(nil, streamerr.New(streamerr.SlowReader, "more than %d tokens were left unread", l.opts.MaxUnread))
		l.drop(s)
		return
	}
	if out.Finish == llmv1.Finish_FINISH_UNSPECIFIED {
		return
	}
	end := &llmv1.End{
		Reason: streamv1.Reason_REASON_COMPLETED,
		Path:   []string{engineHop},
		Finish: out.Finish,
		Usage: &llmv1.Usage{
			PromptTokens: s.promptTokens(), CompletionTokens: s.req.GetGenerated() + s.generated,
			CachedTokens: new(out.Cached),
		},
	}
	if out.Hidden {
		end.MatchedToken = new(out.Token)
	}
	if out.Hidden && out.Handover == "" { // no Tokens item has counted it
		end.Tokens = 1
	}
	s.box.close(end, nil)
	l.drop(s)
}
