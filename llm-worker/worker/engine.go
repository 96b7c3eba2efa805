package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/gguf"
	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/features"
	"github.com/whence-dev/whence/llm-worker/engine/sim"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama"
	"github.com/whence-dev/whence/llm-worker/guide"
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// An engine is the engine of a worker with its properties.
type engine struct {
	model    string // model name; "" means the name in info
	generate Engine
	embed    EmbedEngine // works while info lists it as a capability; nil if it never does
	score    ScoreEngine // likewise
	// info returns the current description of the engine.
	info func() *llmv1.WorkerInfo
	// ready reports that the engine can answer from the start. run runs the engine until ctx is
	// done, and reports changes of its health.
	ready bool
	run   func(ctx context.Context, healthy func(bool))
	// held is the content of the KV cache; nil if the engine does not report it.
	held *kvevents.Hub
}

// NeedsWeights reports whether the engine reads the model's weights.
func (c *Config) NeedsWeights() bool { return c.Upstream.Upstream == "" && c.Engine != Sim }

// load returns the engine's load for the metrics.
func (e *engine) load() metrics.Load {
	info := e.info()
	l := info.GetLoad()
	return metrics.Load{
		Model: cmp.Or(e.model, info.GetModel()), Block: int64(info.GetKvBlockSize()),
		Running: int64(l.GetRunning()), Queued: int64(l.GetQueued()),
		KVUsed: int64(l.GetKvUsedTokens()), KVLimit: int64(l.GetKvTotalTokens()), KVCached: int64(l.GetKvCachedTokens()),
	}
}

// newEngine returns the engine that c selects. hop counts its work.
func newEngine(c *Config, hop *metrics.Hop, log *slog.Logger) (*engine, error) {
	dir := whencetiny.FS()
	name, owner := whencetiny.Name, whencetiny.Owner
	if c.textOnly() {
		return c.overText(hop, log)
	}
	if c.Model != "" {
		open := gguf.Description
		if c.NeedsWeights() {
			open = gguf.Directory
		}
		var err error
		if dir, err = open(c.Model); err != nil {
			return nil, err
		}
		name, owner = hub.Name(c.Model), ""
	}
	if c.ModelName != "" {
		name = c.ModelName
	}
	var e *engine
	var err error
	switch c.Engine {
	case OpenAI:
		e, err = overOpenAI(c, hop, dir, name, log)
	case LlamaCPP, Ollama:
		e, err = overOwnHTTP(c, hop, dir, name, log)
	case VLLM, SGLang:
		if c.Model == "" { // the server reports its model
			dir, name, owner = nil, c.ModelName, ""
		}
		e, err = overIDs(c, hop, dir, name, log)
	case Sim:
		e, err = simulated(c, hop, dir, name, log)
	default:
		e, err = embedded(c, hop, dir, name, log)
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", name, err)
	}
	sum, err := checksum(dir)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", name, err)
	}
	return e.named(c, name, owner, sum), nil
}

// named completes the description of an engine.
func (e *engine) named(c *Config, name, owner, sum string) *engine {
	info := e.info
	e.model = name
	e.info = func() *llmv1.WorkerInfo {
		i := info()
		i.OwnedBy, i.ModelChecksum, i.KvEvents, i.Role, i.Aliases = owner, sum, e.held != nil, roles[c.Role], c.aliases
		i.Server = strings.Trim(c.Server+"; "+i.Server, "; ")
		return i
	}
	return e
}

// checksum returns the checksum of the tokenizer in dir, or "" if there is
// no tokenizer or no directory: the worker then reports the checksum as unknown.
func checksum(dir fs.FS) (string, error) {
	if dir == nil {
		return "", nil
	}
	source, err := tokenizer.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return source.Checksum()
}

// embedded runs the model in this process.
func embedded(c *Config, hop *metrics.Hop, dir fs.FS, name string, log *slog.Logger) (*engine, error) {
	weights, err := c.load(dir, name, log)
	if id := hub.ID(c.Model); id != "" && errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the cache has no weights of the model, which are not downloaded: run `hf download %s` first, or serve it with a model server and name that with --upstream (%w)", id, err)
	}
	if err != nil {
		return nil, err
	}
	vocabulary, err := vocabularyOf(dir)
	if err != nil {
		return nil, err
	}
	can := guided(features.Embedded.Capabilities(), vocabulary)
	held, block := &kvevents.Hub{}, tinyllama.BlockTokens
	if c.NoPrefixCache {
		held, block = nil, 0
	}
	model := tinyllama.New(weights, tinyllama.Options{KVTokens: c.KVTokens, Threads: c.Threads, Vocabulary: vocabulary, NoPrefixCache: c.NoPrefixCache, Held: held})
	loop := batch.New(model, c.batch(hop, name, log))
	return &engine{
		generate: loop.Generate,
		embed:    stream.Unary(loop.Embed),
		info: func() *llmv1.WorkerInfo {
			load := loop.Load()
			load.KvCachedTokens = model.CachedTokens()
			return &llmv1.WorkerInfo{
				Engine:        Embedded,
				ContextLength: uint32(model.ContextLength()),
				VocabSize:     uint32(model.VocabSize()),
				EosTokenIds:   model.EOS(),
				Continues:     true,
				Embeds:        loop.Embeds(),
				KvBlockSize:   uint32(block),
				Load:          load,
				Capabilities:  can,
			}
		},
		ready: true,
		run: func(ctx context.Context, _ func(bool)) {
			defer model.Close()
			loop.Run(ctx)
		},
		held: held,
	}, nil
}

// vocabularyOf returns the vocabulary for guides, or nil if the directory has no tokenizer, or one
// that cannot spell every answer.
func vocabularyOf(dir fs.FS) (*guide.Vocabulary, error) {
	source, err := tokenizer.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tok, err := source.Tokenizer()
	if err != nil {
		return nil, err
	}
	v, err := guide.NewVocabulary(tok)
	if errors.Is(err, guide.ErrVocabulary) {
		return nil, nil
	}
	return v, err
}

// guided returns the capabilities of an engine in this process whose guides have this vocabulary, or
// none if it is nil.
func guided(can *llmv1.Capabilities, v *guide.Vocabulary) *llmv1.Capabilities {
	if v == nil {
		can.Sampling = slices.DeleteFunc(can.Sampling, func(field string) bool { return field == "guide" })
	}
	return can
}

// batch returns the limits of the loop of an engine in this process.
func (c *Config) batch(hop *metrics.Hop, name string, log *slog.Logger) batch.Options {
	opts := batch.Options{MaxRunning: c.MaxRunning, MaxQueued: c.MaxQueued, Pace: c.Pace, Model: name, Log: log}
	if opts.MaxQueued == 0 {
		opts.MaxQueued = -1 // no queue; 0 would mean batch's default
	}
	if observer := hop.Engine(); observer != nil {
		opts.Observer = observer
	}
	return opts
}

// simulated returns an engine that answers with words of the model's vocabulary, at the speed of a
// GPU.
func simulated(c *Config, hop *metrics.Hop, dir fs.FS, name string, log *slog.Logger) (*engine, error) {
	described, err := lexicon.Load(dir)
	if err != nil {
		return nil, err
	}
	if described.ContextLength == 0 && c.Sim.ContextLength == 0 {
		return nil, errors.New("config.json has no max_position_embeddings, so the simulator needs --sim-context")
	}
	opts, held := c.Sim, &kvevents.Hub{}
	opts.KVTokens = c.KVTokens
	words := sim.NewVocabulary(described.ContextLength, described.VocabSize, described.EOS, described.Tokenizer)
	if words.Guides, err = vocabularyOf(dir); err != nil {
		return nil, err
	}
	can := guided(features.Sim.Capabilities(), words.Guides)
	model := sim.New(words, opts, held)
	loop := batch.New(model, c.batch(hop, name, log))
	if opts.Quiet {
		held = nil
	}
	return &engine{
		generate: loop.Generate,
		info: func() *llmv1.WorkerInfo {
			load := loop.Load()
			load.KvCachedTokens, load.PrefillTokens = model.Cached(), model.Prefill()
			return &llmv1.WorkerInfo{
				Engine:        Sim,
				ContextLength: uint32(model.ContextLength()),
				VocabSize:     uint32(described.VocabSize),
				EosTokenIds:   described.EOS,
				Continues:     true,
				KvBlockSize:   uint32(model.Block()),
				Load:          load,
				Capabilities:  can,
			}
		},
		ready: true,
		run: func(ctx context.Context, _ func(bool)) {
			defer model.Close()
			loop.Run(ctx)
		},
		held: held,
	}, nil
}
