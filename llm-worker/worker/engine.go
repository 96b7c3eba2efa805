package worker

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/whencetiny"
)

// The engines that a worker can have.
const (
	Embedded = "embedded" // the model runs in this process
	OpenAI   = "openai"   // a server beside it generates
)

func (c *Config) upstreamFlags(fs *flag.FlagSet) {
	fs.StringVar(&c.Engine, "engine", Embedded, "what generates: embedded, or openai for the server of --upstream")
	fs.StringVar(&c.Upstream.Upstream, "upstream", "", "`URL` of a server with OpenAI's /v1/completions, such as vLLM's http://127.0.0.1:8000")
	fs.StringVar(&c.Upstream.Model, "upstream-model", "", "what that server calls the model; empty for the first one that it lists")
	fs.StringVar(&c.Upstream.Key, "upstream-key", "", "key for that server; others can read it in a command line, but not in the environment")
	fs.StringVar(&c.Upstream.Prompt, "upstream-prompt", openai.PromptAuto, "what that server is given for prompts: ids, text, or auto for ids if it takes them")
}

func (c *Config) validateEngine() error {
	switch c.Engine {
	case "", Embedded:
		if c.Upstream.Upstream != "" {
			return fmt.Errorf("--upstream is of use only with --engine %s", OpenAI)
		}
		return nil
	case OpenAI:
		return c.Upstream.Validate()
	default:
		return fmt.Errorf("--engine is %.64q; it must be %s or %s", c.Engine, Embedded, OpenAI)
	}
}

// An engine is what a worker serves.
type engine struct {
	model    string // its name
	generate Engine
	// info describes the engine as it is now.
	info func() *workerv1.InfoResponse
	// ready says that the engine can answer from the start; run does what it needs until ctx is done, and says when that
	// changes.
	ready bool
	run   func(ctx context.Context, healthy func(bool))
}

// newEngine makes the engine that c asks for; hop counts what it does.
func newEngine(c *Config, hop *metrics.Hop, log *slog.Logger) (*engine, error) {
	dir := whencetiny.FS()
	name, owner := whencetiny.Name, whencetiny.Owner
	if c.Model != "" {
		dir = os.DirFS(c.Model)
		name, owner = filepath.Base(c.Model), ""
	}
	if c.ModelName != "" {
		name = c.ModelName
	}
	choose := embedded
	if c.Engine == OpenAI {
		choose = overOpenAI
	}
	e, err := choose(c, hop, dir, name, log)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", name, err)
	}
	info := e.info
	e.model = name
	e.info = func() *workerv1.InfoResponse {
		i := info()
		i.OwnedBy = owner
		return i
	}
	return e, nil
}

// embedded runs the model in this process.
func embedded(c *Config, hop *metrics.Hop, dir fs.FS, name string, log *slog.Logger) (*engine, error) {
	weights, err := tinyllama.Load(dir)
	if err != nil {
		return nil, err
	}
	model := tinyllama.New(weights, tinyllama.Options{KVTokens: c.KVTokens, Threads: c.Threads})
	queued := c.MaxQueued
	if queued == 0 {
		queued = -1 // none; 0 is batch's default
	}
	opts := batch.Options{MaxRunning: c.MaxRunning, MaxQueued: queued, Pace: c.Pace, Model: name, Log: log}
	if observer := hop.Engine(); observer != nil {
		opts.Observer = observer
	}
	loop := batch.New(model, opts)
	return &engine{
		generate: loop.Generate,
		info: func() *workerv1.InfoResponse {
			return &workerv1.InfoResponse{
				Engine:        Embedded,
				ContextLength: uint32(model.ContextLength()),
				VocabSize:     uint32(model.VocabSize()),
				EosTokenIds:   model.EOS(),
				Continues:     true,
				Load:          loop.Load(),
				Capabilities: &workerv1.Capabilities{
					Prompt: workerv1.Form_FORM_TOKEN_IDS, Answer: workerv1.Form_FORM_TOKEN_IDS, Sampling: sample.Fields(),
				},
			}
		},
		ready: true,
		run:   func(ctx context.Context, _ func(bool)) { loop.Run(ctx) },
	}, nil
}

// overOpenAI lets a server beside this process run the model, of which only the tokenizer and what config.json says is here.
func overOpenAI(c *Config, _ *metrics.Hop, dir fs.FS, name string, log *slog.Logger) (*engine, error) {
	model, err := openai.LoadModel(dir)
	if err != nil {
		return nil, err
	}
	opts := c.Upstream
	opts.Name, opts.MaxRunning, opts.Log = name, c.MaxRunning, log
	e := openai.New(model, opts)
	return &engine{
		generate: e.Generate,
		info: func() *workerv1.InfoResponse {
			length, can := e.Info()
			return &workerv1.InfoResponse{
				Engine:        OpenAI,
				ContextLength: uint32(length),
				VocabSize:     uint32(model.VocabSize),
				EosTokenIds:   model.EOS,
				Load:          e.Load(),
				Capabilities:  can,
			}
		},
		run: e.Watch,
	}, nil
}
