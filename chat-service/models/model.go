package models

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/chat-service/admit"
	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/restart"
	"github.com/whence-dev/whence/chat-service/route"
	"github.com/whence-dev/whence/chat-service/route/policy"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/modelfile"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/pkg/discover"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/watchdog"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A model is a model that is served, or finishes its streams.
type model struct {
	// Static.
	print [sha256.Size]byte // of the model's files
	model *chat.Model
	pool  *route.Pool
	queue *admit.Queue // nil if streams wait at the workers
	chat  chat.Engine
	embed chat.EmbedEngine
	score chat.ScoreEngine
	begun time.Time
	log   *slog.Logger
	up    chan struct{} // closed when a worker is healthy for the first time
	stop  context.CancelFunc
	runs  sync.WaitGroup // goroutines that stop ends

	streams sync.WaitGroup // streams begin, with the registry's mu held, only while the model is served

	source atomic.Pointer[discover.Source] // of its workers

	// Guarded by the registry's applying.
	card     Card
	unfollow func() // stops following source
}

// prepare loads a model. Nothing runs before start.
func (r *Registry) prepare(c Card) (*model, error) {
	self, log, m := r.self, r.log, r.Metrics
	streams, prompts, kv, err := route.Policies(c.Policy, c.KV)
	if err != nil {
		return nil, err
	}
	dir, owner, err := c.files()
	if err != nil {
		return nil, err
	}
	print := fingerprint(dir) // before the files are read, so that a change in between is found by the next reload
	loaded, err := r.load(c, dir, owner)
	if err != nil {
		return nil, err
	}
	if !loaded.HasTemplate && !loaded.TextOnly {
		log.Warn("the model has no chat template, so chats are refused; completions, vectors and scores need none", "model", loaded.Name)
	}
	times, templates := c.settle(), newTemplateCheck(loaded, log)
	pool := route.New(route.Options{
		Self: self, Connect: r.Connect, Policy: streams, Prompts: prompts, KV: kv, Metrics: m.Router(cmp.Or(c.Policy, policy.LeastLoaded)),
		Migrations: c.Migrations, MigrateAfter: times.MigrateAfter, FirstTokenMove: times.FirstTokenMove, HandoverAbove: c.HandoverAbove,
		Check: func(info *llmv1.WorkerInfo) error {
			templates.compare(info)
			return fits(loaded, info)
		}, Log: log,
	})
	loaded.WorkerContext, loaded.TakesImages = pool.Context, pool.TakesImages
	loaded.Restarts = restart.Options{Self: self, Allow: pool.Retry, Log: log}
	workers, embedders, scorers := chat.TokenEngine(pool.Start), stream.Unary(pool.Embed), stream.Unary(pool.Score)
	var queue *admit.Queue
	if c.QueueStreams > 0 {
		queue = admit.New(admit.Options{MaxStreams: c.QueueStreams, MaxTokens: c.QueueTokens, Outage: c.QueueOutage, Room: pool.Room, Admitted: m.Admitted})
		workers, embedders, scorers = queue.Stage(workers), queue.EmbedStage(embedders), queue.ScoreStage(scorers)
	}
	return &model{
		card: c, print: print, model: loaded, pool: pool, queue: queue, begun: time.Now(), log: log.With("model", loaded.Name), up: make(chan struct{}),
		chat:  watchdog.Bound(self, times.Timers, methods.Chat.Tokens, chat.New(loaded, workers)),
		embed: watchdog.Bound(self, times.Timers, methods.ChatEmbeddings.Tokens, chat.Embed(loaded, embedders)),
		score: watchdog.Bound(self, times.Timers, methods.ChatScore.Tokens, chat.Score(loaded, scorers)),
	}, nil
}

// load reads the files of a model, and applies the card.
func (r *Registry) load(c Card, dir fs.FS, owner string) (*chat.Model, error) {
	if c.textOnly() {
		m := chat.TextOnly(c.ID(), owner)
		m.Adapters, m.ContextLength = c.Adapters, cmp.Or(c.Context, m.ContextLength)
		return m, nil
	}
	load := chat.Load
	if r.Load != nil {
		load = r.Load
	}
	loaded, err := load(dir, c.ID(), owner)
	if err != nil {
		return nil, err
	}
	if err := loaded.UseToolFormat(c.ToolFormat); err != nil {
		return nil, fmt.Errorf("--tool-format: %w", err)
	}
	switch {
	case loaded.ContextLength == 0 && c.Context == 0:
		return nil, errors.New("config.json has no max_position_embeddings, so the model needs a context: the key is in the file of --models")
	case loaded.ContextLength > 0 && c.Context > loaded.ContextLength:
		return nil, fmt.Errorf("context is %d; it must not be above the %d of config.json", c.Context, loaded.ContextLength)
	}
	if c.Context > 0 {
		loaded.ContextLength = c.Context
	}
	for _, id := range c.EOS {
		if int(id) >= loaded.Tokenizer.VocabSize() {
			return nil, fmt.Errorf("eos has %d; the vocabulary has %d tokens", id, loaded.Tokenizer.VocabSize())
		}
	}
	loaded.EOS, loaded.Adapters = c.EOS, c.Adapters
	return loaded, nil
}

// fingerprint returns a hash of the model's files, which shows whether they have changed.
func fingerprint(dir fs.FS) (print [sha256.Size]byte) {
	all := sha256.New()
	for _, name := range append(tokenizer.Files(), "config.json", "tokenizer_config.json", templateFile) {
		b, err := modelfile.Read(dir, name, modelfile.MaxTokenizer)
		all.Write(fmt.Appendf(nil, "%s %v %d ", name, err == nil, len(b)))
		all.Write(b)
	}
	return [sha256.Size]byte(all.Sum(nil))
}

// start begins to follow the workers. changed is called when the number of healthy workers changes.
func (m *model) start(source *discover.Source, changed func()) {
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	var first sync.Once
	m.runs.Go(func() {
		m.pool.Watch(ctx, func(healthy bool) {
			if healthy {
				first.Do(func() { close(m.up) })
			}
			changed()
		})
	})
	if m.queue != nil {
		m.runs.Go(func() { m.queue.Run(ctx) })
	}
	m.follow(source)
}

// follow takes the pool's workers from source. Until source answers, the workers stay the same.
func (m *model) follow(source *discover.Source) {
	if m.unfollow != nil {
		m.unfollow()
	}
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { source.Watch(ctx, m.log, m.pool.Healthy, m.found) })
	m.source.Store(source)
	m.card.Workers = source.String()
	m.unfollow = func() {
		stop()
		following.Wait()
	}
}

func (m *model) found(all []discover.Target) {
	var addrs []string
	for _, t := range all {
		if t.Model == "" || hub.Alike(t.Model, m.model.Name) { // several models may share a prefix
			addrs = append(addrs, t.Addr)
		}
	}
	if err := m.pool.Set(addrs...); err != nil {
		m.log.Warn("some workers are left out", "err", err)
	}
}

// canServe reports whether m can serve the card c without new workers or a new pipeline.
func (m *model) canServe(c Card) bool {
	c.Workers, c.Aliases = m.card.Workers, m.card.Aliases
	dir, _, err := c.files()
	return err == nil && reflect.DeepEqual(c, m.card) && fingerprint(dir) == m.print
}

// retire waits until the model's streams have ended, and stops its goroutines. No new stream can
// begin.
func (m *model) retire() {
	m.streams.Wait()
	m.unfollow()
	m.stop()
	m.runs.Wait()
	m.pool.Close()
}

// describe returns the current description of the model.
func (m *model) describe(aliases []string) *chatv1.Model {
	healthy, known := m.pool.Count()
	described := &chatv1.Model{
		Id: m.model.Name, OwnedBy: m.model.OwnedBy, Created: m.begun.Unix(), ContextLength: uint32(m.model.Context()),
		Aliases: aliases, HealthyWorkers: uint32(healthy), KnownWorkers: uint32(known), ModelChecksum: m.model.Checksum,
		Problem: m.pool.Problem(),
	}
	generates := healthy == 0 // unknown
	if m.model.HasTemplate {
		described.Template = m.model.Template()
	}
	if described.GetContextLength() == textonly.NoLimit {
		described.ContextLength = 0 // unknown
	}
	for _, w := range m.pool.Workers() {
		if w.GetState() != chatv1.WorkerState_WORKER_STATE_DOWN {
			generates = generates || !w.GetInfo().GetPoolsOnly()
			described.Sampling = append(described.Sampling, w.GetInfo().GetCapabilities().GetSampling()...)
			described.Embeds = described.GetEmbeds() || w.GetInfo().GetEmbeds()
			described.Scores = described.GetScores() || w.GetInfo().GetScores()
			described.Images = described.GetImages() || w.GetInfo().GetCapabilities().GetImages() != llmv1.ImageInput_IMAGE_INPUT_UNSPECIFIED
		}
	}
	if described.PoolsOnly = !generates; m.model.TextOnly && generates {
		described.Sampling = append(described.Sampling, "max_tokens") // beside those of the workers
	}
	slices.Sort(described.Sampling)
	described.Sampling = slices.Compact(described.Sampling)
	return described
}

// fits returns why a worker cannot serve the model, or nil. Token ids must mean the same on both
// sides.
func fits(m *chat.Model, info *llmv1.WorkerInfo) error {
	switch {
	case info.GetModel() != m.Name && !slices.Contains(info.GetAliases(), m.Name):
		return fmt.Errorf("%s serves the model %q, not %q", info.GetInstance(), info.GetModel(), m.Name)
	case m.TextOnly && info.GetModelChecksum() != textonly.Checksum:
		return fmt.Errorf("%s has the files of its model, or takes token ids, and this service has no files (--model %s): give both the model's files, or neither", info.GetInstance(), textonly.Model)
	case !m.TextOnly && info.GetModelChecksum() == textonly.Checksum:
		return fmt.Errorf("%s has no files of its model (--model %s) and takes only text, and this service has the files: give both the model's files, or neither", info.GetInstance(), textonly.Model)
	case m.TextOnly:
		return nil // there are no token ids to compare
	case int(info.GetVocabSize()) < m.Tokenizer.VocabSize():
		return fmt.Errorf("%s has a vocabulary of %d, the tokenizer one of %d", info.GetInstance(), info.GetVocabSize(), m.Tokenizer.VocabSize())
	case comparable(m.Checksum, info.GetModelChecksum()) && m.Checksum != info.GetModelChecksum():
		return fmt.Errorf("%s has another tokenizer than this service, so token ids would have different meanings; give both the same tokenizer file (checksums %.14s and %.14s)",
			info.GetInstance(), info.GetModelChecksum(), m.Checksum)
	case info.GetContextLength() == 0:
		return errors.New(info.GetInstance() + " does not report the length of its context")
	}
	return nil
}

// comparable reports whether two checksums use the same method.
func comparable(a, b string) bool {
	method, _, _ := strings.Cut(a, ":")
	return b != "" && strings.HasPrefix(b, method+":")
}
