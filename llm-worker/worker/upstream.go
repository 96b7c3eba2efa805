package worker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"sync"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/flags"
	"github.com/whence-dev/whence/internal/gguf"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overgrpc"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/llm-worker/engine/llamacpp"
	"github.com/whence-dev/whence/llm-worker/engine/ollama"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/llm-worker/engine/sglang"
	"github.com/whence-dev/whence/llm-worker/engine/vllm"
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/llm-worker/kvevents/upstream"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/stream"
)

// The engines of a worker. All except Embedded and Sim generate on a server beside the worker.
const (
	Embedded = "embedded" // the model runs in this process
	OpenAI   = "openai"   // over OpenAI's API
	VLLM     = "vllm"     // over vLLM's gRPC service
	SGLang   = "sglang"   // over SGLang's gRPC service or HTTP API
	LlamaCPP = "llamacpp" // over the HTTP API of llama.cpp's server
	Ollama   = "ollama"   // over Ollama's own API
	Sim      = "sim"      // nothing does: time passes as on a GPU, and words are drawn by lot
)

func (c *Config) kindFlags(fs *flag.FlagSet) {
	fs.StringVar(&c.Engine, "engine", Embedded, "the engine: embedded; the server of --upstream over OpenAI's API (openai) or over its own (vllm, sglang, llamacpp, ollama); or a simulator (sim)")
	fs.StringVar(&c.Upstream.Upstream, "upstream", "", "`address` of that server: a URL such as http://127.0.0.1:8000 for openai, llamacpp and ollama, host:port of its gRPC service for vllm, either for sglang")
	fs.StringVar(&c.Upstream.Model, "upstream-model", "", "that server's name for the model, for openai and ollama; empty for the first model of its list")
	fs.StringVar(&c.Upstream.Key, "upstream-key", "", "key for that server, over HTTP; others can read it in a command line, but not in the environment")
	fs.StringVar(&c.Upstream.Prompt, "upstream-prompt", openai.PromptAuto, "form of the prompts for that server, for openai: ids, text, or auto for ids if it accepts them")
	fs.Var(&c.Upstream.Rank, "upstream-rank", "the data-parallel `rank` of that vLLM or SGLang that this worker uses, over HTTP: start a worker for each rank; empty to let the server choose one for each request")
	fs.StringVar(&c.Events.Events, "upstream-kv-events", "", "`endpoint` of the KV cache events of vLLM, SGLang or llm-d: tcp://host:port to connect to, or tcp://*:port (or @tcp://host:port) to bind for an engine that connects; empty for none")
	fs.StringVar(&c.Events.Replay, "upstream-kv-replay", "", "`tcp://host:port` where that engine replays batches that were missed; empty for none")
	fs.StringVar(&c.Events.Topic, "upstream-kv-topic", "", "`prefix` of the topics of that engine's batches")
	flags.Group(fs, flags.Engine)
	flags.Secret(fs, "upstream-key")
	c.Sim.Flags(fs)
	flags.Group(fs, flags.Simulator)
}

func (c *Config) validateEngine() error {
	up := &c.Upstream
	events := c.events()
	if err := events.Validate(); err != nil {
		return err
	}
	if _, ranked := up.Rank.Number(); ranked && c.Engine != OpenAI && (c.Engine != SGLang || !sglang.OverHTTP(up.Upstream)) {
		return fmt.Errorf("--upstream-rank is of use only with --engine %s, or with --engine %s and a URL: the gRPC services of vLLM and SGLang do not let a request choose a rank", OpenAI, SGLang)
	}
	switch c.Engine {
	case "", Embedded, Sim:
		if up.Upstream != "" {
			return fmt.Errorf("--upstream is of use only with --engine %s, %s, %s, %s or %s", OpenAI, VLLM, SGLang, LlamaCPP, Ollama)
		}
		if c.Events != (upstream.Options{}) {
			return fmt.Errorf("--upstream-kv-events is of use only with --engine %s, %s, %s, %s or %s", OpenAI, VLLM, SGLang, LlamaCPP, Ollama)
		}
		return c.Sim.Validate()
	case OpenAI:
		if err := up.Validate(); err != nil {
			return err
		}
		return c.NeedsModel()
	case VLLM, SGLang, LlamaCPP, Ollama:
		return c.validateOwnAPI()
	default:
		return fmt.Errorf("--engine is %.64q; it must be %s, %s, %s, %s, %s, %s or %s", c.Engine, Embedded, OpenAI, VLLM, SGLang, LlamaCPP, Ollama, Sim)
	}
}

// events returns where the server publishes the events of the KV cache that this worker uses.
func (c *Config) events() upstream.Options {
	events := c.Events
	events.Rank, _ = c.Upstream.Rank.Number()
	return events
}

// validateOwnAPI checks the options of an engine on a server over the server's own API.
func (c *Config) validateOwnAPI() error {
	up := &c.Upstream
	http := c.Engine == LlamaCPP || c.Engine == Ollama || c.Engine == SGLang && sglang.OverHTTP(up.Upstream)
	switch {
	case up.Model != "" && c.Engine != Ollama:
		return fmt.Errorf("--upstream-model is of use only with --engine %s or %s", OpenAI, Ollama)
	case up.Prompt != "" && up.Prompt != openai.PromptAuto:
		return fmt.Errorf("--upstream-prompt is of use only with --engine %s", OpenAI)
	case up.Key != "" && !http:
		return errors.New("--upstream-key is of use only over HTTP")
	case http:
		if err := overhttp.Validate(up.Upstream, up.Key); err != nil {
			return err
		}
		return c.NeedsModel()
	default:
		return overgrpc.Validate(up.Upstream)
	}
}

// NeedsModel refuses a worker on a server without the files of the server's model. Those of the embedded model
// would take their place, and the server would be asked, and read, in another vocabulary. Only the worker of
// vllm or sglang, over gRPC, needs no files, if its chat-service has them.
func (c *Config) NeedsModel() error {
	if c.Upstream.Upstream == "" || c.Model != "" {
		return nil
	}
	return fmt.Errorf("--engine %s needs --model: the Hugging Face directory (weights are not needed) or the GGUF file of the model that the server of --upstream runs", c.Engine)
}

// overOpenAI returns an engine on a server with OpenAI's API. The worker has only the model's
// tokenizer and config.json.
func overOpenAI(c *Config, hop *metrics.Hop, dir fs.FS, name string, log *slog.Logger) (*engine, error) {
	model, err := lexicon.Load(dir)
	if err != nil {
		return nil, err
	}
	model.Name = gguf.Name(c.Model)
	opts := c.Upstream
	opts.Name, opts.MaxRunning, opts.Log = name, c.MaxRunning, log
	opts.HandsOver = roles[c.Role] != llmv1.Role_ROLE_BOTH
	return c.upstreamed(openai.New(model, opts), model.Config(), hop, log), nil
}

// overOwnHTTP is an engine on llama.cpp's server or on Ollama. The worker has the model's tokenizer and
// config.json only.
func overOwnHTTP(c *Config, hop *metrics.Hop, dir fs.FS, name string, log *slog.Logger) (*engine, error) {
	model, err := lexicon.Load(dir)
	if err != nil {
		return nil, err
	}
	model.Name = gguf.Name(c.Model)
	opts := beside.Options{Upstream: c.Upstream.Upstream, Name: name, MaxRunning: c.MaxRunning, Log: log}
	if c.Engine == Ollama {
		return c.upstreamed(ollama.New(model, ollama.Options{Options: opts, Model: c.Upstream.Model, Key: c.Upstream.Key}), model.Config(), hop, log), nil
	}
	return c.upstreamed(llamacpp.New(model, llamacpp.Options{Options: opts, Key: c.Upstream.Key}), model.Config(), hop, log), nil
}

// overIDs returns an engine on a server that takes and returns token ids. The worker has no files
// of the model, or config.json in dir.
func overIDs(c *Config, hop *metrics.Hop, dir fs.FS, name string, log *slog.Logger) (*engine, error) {
	var config *beside.Config
	if dir != nil {
		var err error
		if config, err = beside.LoadConfig(dir); err != nil {
			return nil, err
		}
	}
	opts := beside.Options{Upstream: c.Upstream.Upstream, Name: name, MaxRunning: c.MaxRunning, Rank: c.Upstream.Rank, Log: log}
	if c.Engine == VLLM {
		e, err := vllm.New(opts, config)
		if err != nil {
			return nil, err
		}
		return c.upstreamed(e, config, hop, log), nil
	}
	e, err := sglang.New(sglang.Options{Options: opts, Key: c.Upstream.Key}, config)
	if err != nil {
		return nil, err
	}
	return c.upstreamed(e, config, hop, log), nil
}

// An upstreamEngine is the common interface of the engines on a server.
type upstreamEngine interface {
	Generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error]
	Embed(ctx context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error)
	Watch(ctx context.Context, changed func(healthy bool))
	Upstream() *beside.Upstream
	Problem() string
	Load() *llmv1.Load
}

// guessedBlock is the block size assumed for a server that does not report it: vLLM's. It matters
// only for guesses.
const guessedBlock = 16

// upstreamed returns the worker engine on e. config describes the model while the server does not.
func (c *Config) upstreamed(e upstreamEngine, config *beside.Config, hop *metrics.Hop, log *slog.Logger) *engine {
	if config == nil {
		config = new(beside.Config)
	}
	block, held := func() int { return guessedBlock }, (*kvevents.Hub)(nil)
	run := e.Watch
	if c.Events.Events != "" {
		held = &kvevents.Hub{}
		listener := upstream.New(c.events(), held, log, func(reason upstream.DropReason, blocks int) { hop.Dropped(string(reason), blocks) })
		block = listener.Block
		run = func(ctx context.Context, healthy func(bool)) {
			var wg sync.WaitGroup
			wg.Go(func() { listener.Run(ctx) })
			e.Watch(ctx, healthy)
			wg.Wait()
		}
	}
	return &engine{
		generate: e.Generate,
		embed:    stream.Unary(e.Embed),
		info: func() *llmv1.WorkerInfo {
			info := &llmv1.WorkerInfo{
				Engine: c.Engine, Load: e.Load(), Problem: e.Problem(), KvBlockSize: uint32(block()),
				ContextLength: uint32(config.Context), VocabSize: uint32(config.Vocab), EosTokenIds: config.EOS,
			}
			if up := e.Upstream(); up != nil {
				info.Model, info.ContextLength, info.VocabSize, info.EosTokenIds = up.Name, uint32(up.Context), uint32(up.Vocab), up.EOS
				info.Capabilities, info.Resumes = up.Capabilities, up.Resumes
				info.Embeds = up.AskEmbed != nil
			}
			return info
		},
		run:  run,
		held: held,
	}
}
