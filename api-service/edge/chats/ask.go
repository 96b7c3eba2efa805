package chats

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An answer is the result of asking one chat-service.
type answer[T any] struct {
	value T
	err   error
}

// each calls all peers at once, and yields their answers as they come. Leaving the loop cancels the
// remaining calls.
func each[T any](ctx context.Context, peers []*peer, ask func(context.Context, *peer) (T, error), yield func(T, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan answer[T], len(peers))
	defer func() {
		cancel()
		for range peers { // after this loop all calls have ended
			<-answers
		}
	}()
	for _, p := range peers {
		go func() {
			value, err := ask(ctx, p)
			answers <- answer[T]{value, err}
		}()
	}
	for i := range peers {
		a := <-answers
		if !yield(a.value, a.err) {
			peers = peers[i+1:]
			return
		}
	}
	peers = nil
}

var errNobody = streamerr.New(streamerr.Unavailable, "no chat-service was found")

// first returns the first answer without an error. If there is none, it prefers NOT_FOUND to the
// error of an unreachable chat-service.
func first[T any](ctx context.Context, peers []*peer, ask func(context.Context, *peer) (T, error)) (value T, err error) {
	err = errNobody
	each(ctx, peers, ask, func(v T, e error) bool {
		if e == nil {
			value, err = v, nil
			return false
		}
		if e := streamerr.FromGRPC(Hop, e); errors.Is(err, errNobody) || e.Reason == streamerr.NotFound {
			err = e
		}
		return true
	})
	return value, err
}

// one calls the chat-service with the fewest streams, and another one if that call fails.
func one[T any](ctx context.Context, f *Fleet, ask func(context.Context, *peer) (T, error)) (value T, err error) {
	err = errNobody
	var tried []*peer
	for len(tried) < maxTries {
		p := f.choose(tried)
		if p == nil {
			break
		}
		tried = append(tried, p)
		value, err = ask(ctx, p)
		p.done()
		if err == nil {
			return value, nil
		}
		e := streamerr.FromGRPC(Hop, err)
		if err = e; !away(e) {
			break
		}
	}
	return value, err
}

// Tokenize converts a text or a conversation to token ids.
func (f *Fleet) Tokenize(ctx context.Context, req *chatv1.TokenizeRequest) (*chatv1.TokenizeResponse, error) {
	return one(ctx, f, func(ctx context.Context, p *peer) (*chatv1.TokenizeResponse, error) {
		resp, err := p.chat.Tokenize(ctx, req)
		if field := capability.Unknown(capability.TokenizeFields(req), resp.GetKnownFields()); err == nil && field != "" {
			return nil, earlier(p.name, field)
		}
		return resp, err
	})
}

// Detokenize converts token ids to text.
func (f *Fleet) Detokenize(ctx context.Context, req *chatv1.DetokenizeRequest) (*chatv1.DetokenizeResponse, error) {
	return one(ctx, f, func(ctx context.Context, p *peer) (*chatv1.DetokenizeResponse, error) {
		return p.chat.Detokenize(ctx, req)
	})
}

// Stop ends a stream on the chat-service that runs it.
func (f *Fleet) Stop(ctx context.Context, req *chatv1.StopRequest) (*chatv1.StopResponse, error) {
	return first(ctx, f.all(), func(ctx context.Context, p *peer) (*chatv1.StopResponse, error) { return p.chat.Stop(ctx, req) })
}

// Ready returns the reason why no request can be answered, or nil.
func (f *Fleet) Ready(ctx context.Context) error {
	err := error(errNobody)
	each(ctx, f.all(), func(ctx context.Context, p *peer) (struct{}, error) { return struct{}{}, p.ready(ctx) }, func(_ struct{}, e error) bool {
		err = e
		return e != nil
	})
	return err
}

// Models returns the models that requests may name, sorted by id.
func (f *Fleet) Models(ctx context.Context) ([]*chatv1.Model, error) {
	all := map[string]*chatv1.Model{}
	err := gather(ctx, f, func(ctx context.Context, p *peer) ([]*chatv1.Model, error) {
		resp, err := p.chat.Models(ctx, &chatv1.ModelsRequest{})
		return resp.GetModels(), err
	}, func(m *chatv1.Model) {
		if before := all[m.GetId()]; before == nil || before.GetHealthyWorkers() < m.GetHealthyWorkers() {
			all[m.GetId()] = m
		}
	})
	return sorted(all), err
}

// TakesImages reports whether a model that a request names takes images. An unknown model takes none.
func (f *Fleet) TakesImages(ctx context.Context, model string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, modelsTimeout)
	defer cancel()
	all, err := f.Models(ctx)
	return slices.ContainsFunc(all, func(m *chatv1.Model) bool {
		return m.GetImages() && (model == "" || m.GetId() == model || slices.Contains(m.GetAliases(), model))
	}), err
}

// modelsTimeout bounds the question which models take images.
const modelsTimeout = 5 * time.Second

// Workers returns the state of the workers. A worker that several chat-services know counts the
// streams of all of them.
func (f *Fleet) Workers(ctx context.Context) ([]*chatv1.Worker, error) {
	var order []string
	all := map[string]*chatv1.Worker{}
	err := gather(ctx, f, func(ctx context.Context, p *peer) ([]*chatv1.Worker, error) {
		resp, err := p.chat.Workers(ctx, &chatv1.WorkersRequest{})
		return resp.GetWorkers(), err
	}, func(w *chatv1.Worker) {
		key := w.GetModel() + " " + w.GetTarget()
		if w.GetLeaving() {
			key += " leaving"
		}
		before := all[key]
		if before == nil {
			order = append(order, key)
			all[key] = w
			return
		}
		newer, older := w, before
		if before.GetSaid().AsTime().After(w.GetSaid().AsTime()) {
			newer, older = before, w
		}
		newer = proto.CloneOf(newer)
		newer.Streams += older.GetStreams()
		all[key] = newer
	})
	workers := make([]*chatv1.Worker, len(order))
	for i, key := range order {
		workers[i] = all[key]
	}
	if len(f.all()) > 1 { // answers arrive in any order, so the list needs an order of its own
		slices.SortStableFunc(workers, func(a, b *chatv1.Worker) int {
			return strings.Compare(a.GetModel()+" "+a.GetInfo().GetInstance(), b.GetModel()+" "+b.GetInfo().GetInstance())
		})
	}
	return workers, err
}

// gather merges the lists of all healthy chat-services. It fails only if none answers.
func gather[T any](ctx context.Context, f *Fleet, ask func(context.Context, *peer) ([]T, error), add func(T)) error {
	err := error(errNobody)
	answered := false
	each(ctx, f.well(), ask, func(list []T, e error) bool {
		if e != nil {
			err = streamerr.FromGRPC(Hop, e)
			return true
		}
		answered = true
		for _, item := range list {
			add(item)
		}
		return true
	})
	if answered {
		return nil
	}
	return err
}

func sorted(all map[string]*chatv1.Model) []*chatv1.Model {
	list := make([]*chatv1.Model, 0, len(all))
	for _, m := range all {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *chatv1.Model) int { return strings.Compare(a.GetId(), b.GetId()) })
	return list
}
