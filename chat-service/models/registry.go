package models

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/fleet"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/discover"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Registry holds the models that are served.
type Registry struct {
	// Metrics counts the outcomes of streams; nil for none. This field and the following must be
	// set before the first Set.
	Metrics *metrics.Hop
	// Connect connects to a worker; nil means grpc-go.
	Connect fleet.Connect
	// Load reads a model's directory; nil means chat.Load.
	Load func(dir fs.FS, name, owner string) (*chat.Model, error)

	// Static.
	self    string
	log     *slog.Logger
	healthy func(bool)
	missing func() string // see Expect; nil for none

	applying sync.Mutex // held while cards are loaded and models change
	retiring sync.WaitGroup

	notifying sync.Mutex // held while healthy is called

	mu      sync.RWMutex // guards the following fields
	refused bool         // Take has refused the last cards
	byName  map[string]*model
	served  []entry // sorted by name
	leaving []*model
}

// An entry is a served model, with the parts that a new card changes.
type entry struct {
	*model
	aliases []string
}

// New returns a registry without models. self is this hop's name. healthy is told whether any model
// has a healthy worker; its calls are not concurrent.
func New(self string, log *slog.Logger, healthy func(bool)) *Registry {
	return &Registry{self: self, log: log, healthy: healthy, byName: map[string]*model{}}
}

// Set replaces the models by those of the cards. A model stays if its card and files are the same,
// except for aliases and workers. If any card cannot be served, nothing changes.
func (r *Registry) Set(cards []Card) error {
	if err := check(cards); err != nil {
		return err
	}
	r.applying.Lock()
	defer r.applying.Unlock()
	next := make([]*model, len(cards))
	sources := make([]*discover.Source, len(cards))
	var fresh, successors []*model
	for i, c := range cards {
		var err error
		if sources[i], err = discover.Parse(c.Workers); err != nil {
			return fmt.Errorf("model %s: workers: %w", c.ID(), err)
		}
		before := r.find(c.ID())
		if before != nil && before.canServe(c) {
			next[i] = before
			continue
		}
		if next[i], err = r.prepare(c); err != nil {
			return fmt.Errorf("model %s: %w", c.ID(), err)
		}
		fresh = append(fresh, next[i])
		if before != nil {
			successors = append(successors, next[i])
		}
	}
	for i, m := range next {
		switch {
		case slices.Contains(fresh, m):
			m.start(sources[i], r.notify)
		case m.card.Workers != cards[i].Workers:
			m.follow(sources[i])
		}
		m.card.Aliases = cards[i].Aliases
	}
	await(successors)
	for _, m := range r.replace(next) {
		r.log.Info("model was removed or replaced", "model", m.model.Name)
	}
	r.notify()
	return nil
}

// Expect says that models are still to come, before the first of them: missing returns why some are missing,
// for people, or "" once all are there. Until then a name that no model has is unavailable, and not unknown.
func (r *Registry) Expect(missing func() string) {
	r.missing = missing
	r.notify()
}

// Take is Set for cards that nobody waits for. Cards that cannot be served are logged, and are why the
// registry's models are missing.
func (r *Registry) Take(cards []Card) {
	err := r.Set(cards)
	if err != nil {
		r.log.Error("models cannot be served", "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = err != nil
}

// Missing returns why models are missing, for people; "" if none is expected.
func (r *Registry) Missing() string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.lacking()
}

// lacking is Missing with the registry's mu held.
func (r *Registry) lacking() string {
	switch {
	case r.refused:
		return "the files of a model cannot be used; the log says why"
	case r.missing == nil:
		return ""
	default:
		return r.missing()
	}
}

// settle is the maximum time that a replaced model's successor may take to find its workers before
// it takes over.
const settle = 3 * time.Second

// await waits until all models have a worker, at most for settle: requests should not meet a model
// without workers that had some before.
func await(all []*model) {
	late := time.After(settle)
	for _, m := range all {
		select {
		case <-m.up:
		case <-late:
			return
		}
	}
}

// find returns the model with this name (not alias).
func (r *Registry) find(id string) *model {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if m := r.byName[id]; m != nil && m.model.Name == id {
		return m
	}
	return nil
}

// replace serves next from now on. It retires all other models and returns them.
func (r *Registry) replace(next []*model) (retired []*model) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.served {
		if !slices.Contains(next, m.model) {
			retired = append(retired, m.model)
			r.leaving = append(r.leaving, m.model)
			r.retiring.Go(func() { r.retire(m.model) })
		}
	}
	r.byName, r.served = map[string]*model{}, nil
	for _, m := range next {
		r.served = append(r.served, entry{m, m.card.Aliases})
		for _, name := range slices.Concat([]string{m.model.Name}, m.card.Aliases, m.model.Adapters) {
			r.byName[name] = m
		}
	}
	slices.SortFunc(r.served, func(a, b entry) int { return cmp.Compare(a.model.model.Name, b.model.model.Name) })
	return retired
}

// retire drops a model after its last stream has ended.
func (r *Registry) retire(m *model) {
	m.retire()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving = slices.DeleteFunc(r.leaving, func(other *model) bool { return other == m })
}

// Close removes all models, and returns when their streams have ended.
func (r *Registry) Close() {
	r.applying.Lock()
	defer r.applying.Unlock()
	r.replace(nil)
	r.retiring.Wait()
}

// notify reports whether any model has a healthy worker.
func (r *Registry) notify() {
	r.notifying.Lock()
	defer r.notifying.Unlock()
	healthy, _ := r.Count()
	r.healthy(healthy > 0)
}

// Generate is a stream.Engine. The model that the request names answers.
func (r *Registry) Generate(ctx context.Context, req *chatv1.ChatRequest, to stream.Reader[*chatv1.GenerateResponse]) {
	start(ctx, r, req, to, func(m *model) chat.Engine { return m.chat })
}

// Embed is a stream.Engine that computes vectors with the model that the request names.
func (r *Registry) Embed(ctx context.Context, req *chatv1.EmbeddingsRequest, to stream.Reader[*chatv1.EmbeddingsResponse]) {
	start(ctx, r, req, to, func(m *model) chat.EmbedEngine { return m.embed })
}

// Score is a stream.Engine that rates documents with the model that the request names.
func (r *Registry) Score(ctx context.Context, req *chatv1.ScoreRequest, to stream.Reader[*chatv1.ScoreResponse]) {
	start(ctx, r, req, to, func(m *model) chat.ScoreEngine { return m.score })
}

// start starts an engine of the model that a request names.
func start[Req interface{ GetModel() string }, Item any](ctx context.Context, r *Registry, req Req, to stream.Reader[Item], of func(*model) stream.Engine[Req, Item]) {
	m, err := r.enter(req.GetModel())
	if err != nil {
		if cause := stream.Cause(ctx); cause != nil {
			err = cause
		}
		to.End(err)
		return
	}
	of(m)(ctx, req, &modelStream[Item]{stream.RelayTo(to), m})
}

// A modelStream is the Reader of a stream that enter has counted.
type modelStream[Item any] struct {
	stream.Relay[Item]

	model *model
}

// Item implements stream.Reader.
func (e *modelStream[Item]) Item(on *stream.Loop, item Item) (more bool) { return e.Pass(on, item) }

// End implements stream.Reader.
func (e *modelStream[Item]) End(err error) {
	e.Close(err, func(err error) error {
		e.model.streams.Done()
		return err
	})
}

// enter returns a model, and counts a stream on it.
func (r *Registry) enter(name string) (*model, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	m, err := r.named(name)
	if err != nil {
		return nil, err
	}
	m.streams.Add(1)
	return m, nil
}

// Model returns a model for requests that are not streams. An empty name stands for the only model.
func (r *Registry) Model(name string) (*chat.Model, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	m, err := r.named(name)
	if err != nil {
		return nil, err
	}
	return m.model, nil
}

// named returns the model that a request names. The registry's mu is held.
func (r *Registry) named(name string) (*model, error) {
	if m := r.byName[name]; m != nil {
		return m, nil
	}
	if name == "" && len(r.served) == 1 {
		return r.served[0].model, nil
	}
	if problem := r.lacking(); problem != "" {
		return nil, streamerr.New(streamerr.Unavailable, "the model %.128q is not served yet: %s", name, problem)
	}
	if name == "" {
		return nil, streamerr.InvalidParam("model", "model is missing; there is %s", r.names()).WithCode(streamerr.CodeMissing)
	}
	e := streamerr.New(streamerr.NotFound, "the model %.128q does not exist; there is %s", name, r.names()).WithCode(streamerr.CodeModelNotFound)
	e.Param = "model"
	return nil, e
}

// shownNames is the maximum number of names in a refusal.
const shownNames = 8

// names lists the models for a refusal. The registry's mu is held.
func (r *Registry) names() string {
	var all []string
	for i, m := range r.served {
		if i == shownNames {
			all = append(all, "…")
			break
		}
		all = append(all, fmt.Sprintf("%q", m.model.model.Name))
	}
	return strings.Join(all, ", ")
}

// everyone returns the served models, and the models that finish their streams.
func (r *Registry) everyone() (served []entry, leaving []*model) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.served), slices.Clone(r.leaving)
}

// Models describes the served models, sorted by name. Adapters follow their model.
func (r *Registry) Models() (all []*chatv1.Model) {
	served, _ := r.everyone()
	for _, m := range served {
		base := m.describe(m.aliases)
		all = append(all, base)
		for _, name := range m.model.model.Adapters {
			adapter := proto.CloneOf(base)
			adapter.Id, adapter.Parent, adapter.Aliases, adapter.Embeds, adapter.Scores = name, base.GetId(), nil, false, false
			all = append(all, adapter)
		}
	}
	return all
}

// Workers returns the state of the workers, by model.
func (r *Registry) Workers() (all []*chatv1.Worker) {
	served, leaving := r.everyone()
	for _, m := range served {
		leaving = append(leaving, m.model) // described in the same way
	}
	slices.SortStableFunc(leaving, func(a, b *model) int { return cmp.Compare(a.model.Name, b.model.Name) })
	for _, m := range leaving {
		for _, w := range m.pool.Workers() {
			w.Model = m.model.Name
			all = append(all, w)
		}
	}
	return all
}

// Count returns the numbers of healthy and known workers of all served models.
func (r *Registry) Count() (healthy, known int) {
	served, _ := r.everyone()
	for _, m := range served {
		h, k := m.pool.Count()
		healthy, known = healthy+h, known+k
	}
	return healthy, known
}

// Charged returns the estimated load of all streams on the workers of the served models: prompt
// tokens that the workers have still to read, and tokens in their KV caches.
func (r *Registry) Charged() (unread, tokens int64) {
	served, _ := r.everyone()
	for _, m := range served {
		for _, w := range m.pool.Members() {
			s := w.Snapshot(time.Now())
			unread, tokens = unread+s.Unread, tokens+s.Tokens
		}
	}
	return unread, tokens
}

// Queue returns the numbers of running and waiting streams of all models with a queue.
func (r *Registry) Queue() (running, waiting int) {
	served, leaving := r.everyone()
	for _, m := range served {
		leaving = append(leaving, m.model)
	}
	for _, m := range leaving {
		if m.queue != nil {
			has, waits := m.queue.Load()
			running, waiting = running+has, waiting+waits
		}
	}
	return running, waiting
}

// Unanswered returns the number of worker sources that do not answer.
func (r *Registry) Unanswered() (n int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, m := range r.served {
		if !m.source.Load().Answers() {
			n++
		}
	}
	return n
}

// Why returns the workers' records of a stream. known is this hop's record, or nil.
func (r *Registry) Why(ctx context.Context, id string, known *streamv1.Record) []*streamv1.Record {
	served, leaving := r.everyone()
	pools := map[string][]*model{}
	for _, m := range served {
		leaving = append(leaving, m.model)
	}
	for _, m := range leaving {
		pools[m.model.Name] = append(pools[m.model.Name], m)
	}
	asked := slices.Concat(slices.Collect(maps.Values(pools))...)
	if of := pools[known.GetModel()]; len(of) > 0 {
		asked = of
	}
	records := make([][]*streamv1.Record, len(asked))
	var asking sync.WaitGroup
	for i, m := range asked {
		asking.Go(func() { records[i] = m.pool.Why(ctx, id, known) })
	}
	asking.Wait()
	return slices.Concat(records...)
}
