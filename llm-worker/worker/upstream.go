package worker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/flags"
	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/textonly"
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
	Auto     = "auto"     // Embedded, or the best engine for the server of --upstream
	Embedded = "embedded" // the model runs in this process
	OpenAI   = "openai"   // over OpenAI's API
	VLLM     = "vllm"     // over vLLM's gRPC service
	SGLang   = "sglang"   // over SGLang's gRPC service or HTTP API
	LlamaCPP = "llamacpp" // over the HTTP API of llama.cpp's server
	Ollama   = "ollama"   // over Ollama's own API
	Sim      = "sim"      // nothing does: time passes as on a GPU, and words are drawn by lot
)

func (c *Config) kindFlags(fs *flag.FlagSet) {
	c.UpstreamFlags(fs)
	fs.Var(&c.Upstream.Rank, "upstream-rank", "the data-parallel `rank` of that vLLM or SGLang that this worker uses, over HTTP, or vLLM's gRPC: start a worker for each rank; empty to let the server choose one for each request")
	fs.StringVar(&c.Events.Events, "upstream-kv-events", "", "`endpoint` of the KV cache events of vLLM, SGLang or llm-d: tcp://host:port to connect to, tcp://*:port (or @tcp://host:port) to bind for an engine that connects, or grpc for those that vLLM's gRPC service relays; empty for none")
	fs.StringVar(&c.Events.Replay, "upstream-kv-replay", "", "`tcp://host:port` where that engine replays batches that were missed; empty for none")
	fs.StringVar(&c.Events.Topic, "upstream-kv-topic", "", "`prefix` of the topics of that engine's batches")
	flags.Group(fs, flags.Engine)
	c.Sim.Flags(fs)
	flags.Group(fs, flags.Simulator)
}

// UpstreamFlags adds only the flags of a model server beside the worker, and of the engine on it.
func (c *Config) UpstreamFlags(fs *flag.FlagSet) {
	c.Engine = Auto
	fs.Var((*engineName)(&c.Engine), "engine", "the engine: auto, which recognises the server of --upstream, and is embedded without one; embedded; that server over OpenAI's API (openai) or over its own (vllm, sglang, llamacpp, ollama); or a simulator (sim)")
	fs.Var(&addresses{&c.Upstream.Upstream, &c.Further}, "upstream", "`address` of a model server: a URL such as http://127.0.0.1:8000, or host:port, such as that of the gRPC service of vLLM or SGLang; repeat it for several servers in whence and whence gateway, which run a worker for each")
	fs.Var(&modelNames{&c.Upstream.Model, &c.Models}, "upstream-model", "that server's `name` for the model, for openai and ollama; empty for the first model of its list; in whence and whence gateway several, with commas: one for each --upstream, or several models of one server")
	fs.StringVar(&c.Upstream.Key, "upstream-key", "", "key for that server, over HTTP; others can read it in a command line, but not in the environment")
	fs.StringVar(&c.Upstream.Prompt, "upstream-prompt", openai.PromptAuto, "form of the prompts for that server, for openai: ids, text, or auto for ids if it accepts them")
	flags.Group(fs, flags.Engine)
	flags.Secret(fs, "upstream-key")
}

// An engineName is the value of --engine.
type engineName string

func (e *engineName) String() string { return string(*e) }

// Set implements flag.Value. llama.cpp's engine may have the project's own name.
func (e *engineName) Set(name string) error {
	if name == "llama.cpp" {
		name = LlamaCPP
	}
	*e = engineName(name)
	return nil
}

// addresses are the value of --upstream: the first address, and all further ones.
type addresses struct {
	first   *string
	further *[]string
}

// String implements flag.Value, also for the zero value, as package flag demands.
func (a *addresses) String() string {
	if a.first == nil || *a.first == "" {
		return ""
	}
	return strings.Join(append([]string{*a.first}, *a.further...), ",")
}

// Set implements flag.Value. It adds addresses, which may be separated by commas.
func (a *addresses) Set(list string) error {
	for address := range strings.SplitSeq(list, ",") {
		if address = strings.TrimSpace(address); *a.first == "" {
			*a.first = address
		} else {
			*a.further = append(*a.further, address)
		}
	}
	return nil
}

// modelNames is the value of --upstream-model: all names, and the first one.
type modelNames struct {
	first *string
	all   *[]string
}

// String implements flag.Value, also for the zero value, as package flag demands.
func (m *modelNames) String() string {
	if m.all == nil {
		return ""
	}
	return strings.Join(*m.all, ",")
}

// Set implements flag.Value. It adds names, which may be separated by commas.
func (m *modelNames) Set(list string) error {
	for name := range strings.SplitSeq(list, ",") {
		*m.all = append(*m.all, strings.TrimSpace(name))
	}
	*m.first = (*m.all)[0]
	return nil
}

// Workers returns the configuration of a worker for each server of --upstream, or for each model of one server.
// A single name of a model applies to all servers.
func (c *Config) Workers() ([]Config, error) {
	addresses, names := append([]string{c.Upstream.Upstream}, c.Further...), c.Models
	switch {
	case len(names) <= 1:
		names = slices.Repeat([]string{c.Upstream.Model}, len(addresses))
	case len(addresses) == 1:
		addresses = slices.Repeat(addresses, len(names))
	case len(names) != len(addresses):
		return nil, fmt.Errorf("--upstream-model names %d models, and --upstream %d servers: name one model for all servers, one for each, or several of one server", len(names), len(addresses))
	}
	all := make([]Config, len(addresses))
	seen := map[[2]string]bool{}
	for i, address := range addresses {
		if seen[[2]string{address, names[i]}] {
			return nil, fmt.Errorf("--upstream names %.64q twice", address)
		}
		seen[[2]string{address, names[i]}] = true
		all[i] = *c
		all[i].Name, all[i].Upstream.Upstream, all[i].Upstream.Model, all[i].Further, all[i].Models = NumberedName(i), address, names[i], nil, nil
	}
	return all, nil
}

func (c *Config) validateEngine() error {
	up := &c.Upstream
	if err := c.validateTextOnly(); err != nil {
		return err
	}
	events := c.events()
	if err := events.Validate(); err != nil {
		return err
	}
	if _, ranked := up.Rank.Number(); ranked && !c.NeedsRecognition() && c.Engine != OpenAI && c.Engine != VLLM && (c.Engine != SGLang || !sglang.OverHTTP(up.Upstream)) {
		return fmt.Errorf("--upstream-rank is of use only with --engine %s or %s, or with --engine %s and a URL: SGLang's gRPC service does not let a request choose a rank", OpenAI, VLLM, SGLang)
	}
	if c.NeedsRecognition() {
		return c.validateAddress()
	}
	if c.Events.Events == upstream.OverGRPC && c.Engine != VLLM {
		return fmt.Errorf("--upstream-kv-events %s needs vLLM's gRPC service, --engine %s", upstream.OverGRPC, VLLM)
	}
	switch c.Engine {
	case "", Auto, Embedded, Sim:
		if up.Upstream != "" {
			return fmt.Errorf("--upstream is of use only with --engine %s, %s, %s, %s, %s or %s", Auto, OpenAI, VLLM, SGLang, LlamaCPP, Ollama)
		}
		if c.Events != (upstream.Options{}) {
			return fmt.Errorf("--upstream-kv-events is of use only with --engine %s, %s, %s, %s or %s", OpenAI, VLLM, SGLang, LlamaCPP, Ollama)
		}
		return c.Sim.Validate()
	case OpenAI:
		return up.Validate()
	case VLLM, SGLang, LlamaCPP, Ollama:
		return c.validateOwnAPI()
	default:
		return fmt.Errorf("--engine is %.64q; it must be %s, %s, %s, %s, %s, %s, %s or %s", c.Engine, Auto, Embedded, OpenAI, VLLM, SGLang, LlamaCPP, Ollama, Sim)
	}
}

// events returns where the server publishes the events of the KV cache that this worker uses.
func (c *Config) events() upstream.Options {
	events := c.Events
	events.Rank, _ = c.Upstream.Rank.Number()
	events.Server = c.Upstream.Upstream
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
		return overhttp.Validate(up.Upstream, up.Key)
	default:
		return overgrpc.Validate(up.Upstream)
	}
}

// textOnly reports whether no service has the model's files.
func (c *Config) textOnly() bool { return c.Model == textonly.Model }

// validateTextOnly refuses options that need the files of a model without files.
func (c *Config) validateTextOnly() error {
	switch {
	case !c.textOnly():
		return nil
	case c.Upstream.Upstream == "" || c.Engine != OpenAI && c.Engine != Auto && c.Engine != "":
		return fmt.Errorf("--model %s, text only, works with --upstream and --engine %s", textonly.Model, OpenAI)
	case c.Role != "" && c.Role != Both:
		return fmt.Errorf("--role needs the model's files, and --model is %s", textonly.Model)
	case c.Events != (upstream.Options{}):
		return fmt.Errorf("--upstream-kv-events needs the model's files, and --model is %s: events name blocks of token ids", textonly.Model)
	}
	return nil
}

// overText returns an engine on a server with OpenAI's API, to which conversations pass as text. Without
// a name, the model has the server's.
func (c *Config) overText(hop *metrics.Hop, log *slog.Logger) (*engine, error) {
	model := &lexicon.Model{VocabSize: textonly.VocabSize}
	opts := c.Upstream
	opts.Name, opts.MaxRunning, opts.Log = c.ModelName, c.MaxRunning, log
	e := c.upstreamed(openai.New(model, opts), model.Config(), hop, log)
	return e.named(c, c.ModelName, "", textonly.Checksum), nil
}

// overOpenAI returns an engine on a server with OpenAI's API. The worker has only the model's
// tokenizer and config.json.
func overOpenAI(c *Config, hop *metrics.Hop, dir fs.FS, name string, log *slog.Logger) (*engine, error) {
	model, err := lexicon.Load(dir)
	if err != nil {
		return nil, err
	}
	model.Name = hub.Name(c.Model)
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
	model.Name = hub.Name(c.Model)
	opts := beside.Options{Upstream: c.Upstream.Upstream, Name: name, MaxRunning: c.MaxRunning, Log: log}
	if c.Engine == Ollama {
		return c.upstreamed(ollama.New(model, ollama.Options{Options: opts, Model: c.Upstream.Model, Key: c.Upstream.Key}), model.Config(), hop, log), nil
	}
	return c.upstreamed(llamacpp.New(model, llamacpp.Options{Options: opts, Key: c.Upstream.Key}), model.Config(), hop, log), nil
}

// overIDs returns an engine on a server that takes and returns token ids. The worker has no files
// of the model, or config.json in dir.
func overIDs(c *Config, hop *metrics.Hop, dir fs.FS, name string, log *slog.Logger) (*engine, error) {
	config, files, err := c.described(dir)
	if err != nil {
		return nil, err
	}
	opts := beside.Options{Upstream: c.Upstream.Upstream, Name: name, MaxRunning: c.MaxRunning, Rank: c.Upstream.Rank, Log: log}
	if c.Engine == VLLM {
		e, err := vllm.New(opts, config, files)
		if err != nil {
			return nil, err
		}
		return c.upstreamed(e, config, hop, log), nil
	}
	e, err := sglang.New(sglang.Options{Options: opts, Key: c.Upstream.Key, Files: files}, config)
	if err != nil {
		return nil, err
	}
	return c.upstreamed(e, config, hop, log), nil
}

// described returns the description of the model in dir, which may be nil, and the model with its tokenizer,
// which a directory need not have.
func (c *Config) described(dir fs.FS) (*beside.Config, *lexicon.Model, error) {
	if dir == nil {
		return nil, nil, nil
	}
	config, err := beside.LoadConfig(dir)
	if err != nil {
		return nil, nil, err
	}
	files, err := lexicon.Load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return config, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	files.Name = hub.Name(c.Model)
	return config, files, nil
}

// An upstreamEngine is the common interface of the engines on a server.
type upstreamEngine interface {
	Generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error]
	Embed(ctx context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error)
	Score(ctx context.Context, req *workerv1.ScoreRequest) (*workerv1.ScoreResponse, error)
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
		score:    stream.Unary(e.Score),
		info: func() *llmv1.WorkerInfo {
			info := &llmv1.WorkerInfo{
				Engine: c.Engine, Load: e.Load(), Problem: e.Problem(), KvBlockSize: uint32(block()),
				ContextLength: uint32(config.Context), VocabSize: uint32(config.Vocab), EosTokenIds: config.EOS,
			}
			if up := e.Upstream(); up != nil {
				info.Model, info.ContextLength, info.VocabSize, info.EosTokenIds = up.Name, uint32(up.Context), uint32(up.Vocab), up.EOS
				info.Capabilities, info.Resumes = up.Capabilities, up.Resumes
				info.Embeds, info.Scores, info.PoolsOnly = up.AskEmbed != nil, up.AskScore != nil, up.Ask == nil
				info.Server, info.Rendered = strings.Join(slices.Concat(up.Facts, up.Notes), "; "), up.Rendered
			}
			return info
		},
		run:  run,
		held: held,
	}
}
