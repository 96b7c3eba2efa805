package batch

import (
	"context"
	"iter"
	"slices"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Generate is a stream.Sequence. The first item is Started, once the request is valid and has a place
// in the batch or in the queue. Then come Tokens, merged if the reader is slow, or the requested
// Handover. The last item is End. When Generate returns, or the stream is stopped, the model has
// forgotten the sequence; that takes at most the rest of the current step.
func (l *Loop) Generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		if cause := stream.Cause(ctx); cause != nil {
			yield(nil, cause)
			return
		}
		s, ahead, err := l.arrive(ctx, req)
		if err != nil {
			l.logPanic(err, 1)
			yield(nil, err)
			return
		}
		record := ledger.Of(ctx)
		defer func() {
			l.leave(ctx, s)
			if s.gone() { // otherwise Run still owns the counters
				record.Unreceived(int(s.generated) - record.Generated())
			}
		}()
		if !yield(l.started(ctx, s, ahead), nil) {
			return
		}
		stopping := stream.Stopping(ctx)
		for {
			select {
			case <-s.box.ready:
			case <-stopping:
				l.leave(ctx, s)
				if s.gone() {
					record.Confirmed()
				}
				yield(nil, stream.Cause(ctx))
				return
			}
			tokens, end, err := s.box.take()
			if tokens != nil {
				record.In(len(tokens.GetTokens().GetIds()))
				if !yield(tokens, nil) {
					return
				}
			}
			switch {
			case err != nil:
				yield(nil, err)
				return
			case end != nil:
				if n := int(end.GetTokens()); n > 0 {
					record.In(n)
				}
				yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: end}, Prompt: s.box.scores()}, nil)
				return
			}
		}
	}
}

// arrive checks a request, does the work that its join needs and that must not delay the other
// sequences, and queues it. That work may be expensive, so the request has its place in the queue
// before it begins: a flood of requests is refused without it.
func (l *Loop) arrive(ctx context.Context, req *workerv1.TokenRequest) (s *sequence, ahead int, err error) {
	p, ok := l.model.(Preparer)
	if !ok {
		if err := l.model.Check(req); err != nil {
			return nil, 0, err
		}
		return l.enter(&sequence{req: req, join: func(id uint64) error { return l.model.Join(id, req) }})
	}
	if err := l.reserve(); err != nil {
		return nil, 0, err
	}
	holds := true // the place
	defer func() {
		if holds { // Prepare has failed or panicked
			l.mu.Lock()
			defer l.mu.Unlock()
			l.preparing--
		}
	}()
	join, err := p.Prepare(ctx, req)
	if err != nil {
		return nil, 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.preparing--
	holds = false
	return l.enterLocked(&sequence{req: req, join: join})
}

// reserve takes a place in the queue for a request before its preparation. Its errors are those of
// refusal.
func (l *Loop) reserve() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refusal(); err != nil {
		return err
	}
	l.preparing++
	return nil
}

func (l *Loop) started(ctx context.Context, s *sequence, ahead int) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{
		StreamId:     stream.ID(ctx),
		Model:        l.opts.Model,
		PromptTokens: s.promptTokens(),
		QueuedBehind: uint32(ahead),
	}}}
}

// enter queues a sequence, or returns the error that refuses it.
func (l *Loop) enter(s *sequence) (_ *sequence, ahead int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enterLocked(s)
}

// refusal returns the error that refuses another sequence, or nil. The caller holds mu.
func (l *Loop) refusal() error {
	if l.closed != nil {
		return l.closed
	}
	ahead := len(l.waiting) + l.preparing
	if l.running+ahead < l.opts.MaxRunning+l.opts.MaxQueued {
		return nil
	}
	e := streamerr.New(streamerr.Overloaded, "%d streams are running and %d are waiting; the queue is full", l.running, ahead)
	e.RetryAfter = l.turnover.After(ahead)
	return e
}

// enterLocked is enter for a caller that holds mu.
func (l *Loop) enterLocked(s *sequence) (_ *sequence, ahead int, err error) {
	if err := l.refusal(); err != nil {
		return nil, 0, err
	}
	ahead = len(l.waiting)
	l.nextID++
	s.id, s.box, s.arrived, s.released = l.nextID, newMailbox(l.opts.MaxUnread), time.Now(), make(chan struct{})
	l.waiting = append(l.waiting, s)
	l.poke()
	return s, ahead, nil
}

// leave asks Run to forget a sequence, and returns when that is done or when the stream is killed.
func (l *Loop) leave(ctx context.Context, s *sequence) {
	l.mu.Lock()
	if s.gone() {
		l.mu.Unlock()
		return
	}
	if i := slices.Index(l.waiting, s); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		close(s.released)
		l.mu.Unlock()
		return
	}
	l.leaving = append(l.leaving, s)
	l.poke()
	id := s.id
	l.mu.Unlock()
	l.abandonModel(id)
	select {
	case <-s.released:
	case <-ctx.Done():
	}
}

// promptTokens returns the length of the prompt without the answer tokens that another worker
// generated.
func (s *sequence) promptTokens() uint32 {
	return uint32(len(s.req.GetPrompt())) - s.req.GetGenerated()
}

// gone reports whether the model has forgotten the sequence. The fields owned by Run may be read
// after that.
func (s *sequence) gone() bool {
	select {
	case <-s.released:
		return true
	default:
		return false
	}
}

func (l *Loop) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
