package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/llm-worker/engine/recognition"
	"github.com/whence-dev/whence/llm-worker/engine/sglang"
	"github.com/whence-dev/whence/pkg/rpc/problem"
)

// askEvery is the time between two attempts to recognise a server.
const askEvery = 2 * time.Second

// NeedsRecognition reports whether the server of c.Upstream must be recognised before there can be an engine
// on it, because c lacks the engine, the model's files or the scheme of the address.
func (c *Config) NeedsRecognition() bool {
	at := c.Upstream.Upstream
	if at == "" || c.Server != "" {
		return false
	}
	switch c.Engine {
	case "", Auto:
		return true
	case OpenAI, LlamaCPP, Ollama:
		return c.Model == "" || !strings.Contains(at, "://")
	case SGLang:
		return c.Model == "" && (c.Files || sglang.OverHTTP(at))
	case VLLM:
		return c.Model == "" && c.Files
	default:
		return false
	}
}

// validateAddress checks the address and the key of a server that is still to be recognised.
func (c *Config) validateAddress() error {
	at := c.Upstream.Upstream
	if err := recognition.Validate(at); err != nil {
		return fmt.Errorf("--upstream is %.64q; %w", at, err)
	}
	if !strings.Contains(at, "://") {
		at = "http://" + at
	}
	return overhttp.Validate(at, c.Upstream.Key)
}

// Recognize asks the server of c.Upstream what it is, until it answers, and completes c by that: the
// engine, the form of the address, the model's name and files, and c.Server. It does nothing if c needs
// none of that. waits gets why the server cannot be used yet, for people, and "" in the end; it may be nil.
// Aliases are further names of the model, under which clients of the server know it.
func (c *Config) Recognize(ctx context.Context, log *slog.Logger, waits func(problem string)) (aliases []string, err error) {
	if !c.NeedsRecognition() {
		return nil, nil
	}
	if waits == nil {
		waits = func(string) {}
	}
	s, err := c.ask(ctx, log, waits)
	if err != nil {
		return nil, err
	}
	at, free := c.Upstream.Upstream, c.Engine == "" || c.Engine == Auto
	if err := c.choose(s); err != nil {
		return nil, err
	}
	named := c.Model == "" || c.Model == textonly.Model || c.Files // whether the operator leaves the name to the server
	from, err := c.find(ctx, s, free, log)
	if err != nil {
		return nil, err
	}
	if c.ModelName == "" && named {
		c.ModelName = shown(s)
	}
	if s.Model != c.ModelName && c.ModelName != "" {
		aliases = []string{s.Model}
	}
	c.Adapters = s.Limits.Adapters
	facts := s.Limits.String()
	c.Server = fmt.Sprintf("%s, with %s; files from %s", s, facts, from)
	log.Info("server recognised", "upstream", at, "server", s.String(), "engine", c.Engine, "model", cmp.Or(c.ModelName, hub.Name(c.Model)), "files", c.Model, "from", from, "limits", facts)
	if n := len(s.Models); n > 1 && c.Upstream.Model == s.Model && (c.Engine == OpenAI || c.Engine == Ollama) {
		log.Info("the server has more than one model; --upstream-model names another", "model", s.Model, "models", n)
	}
	waits("")
	return aliases, c.Validate()
}

// ask asks the server until the server answers. It logs each problem at once, and then with growing pauses.
func (c *Config) ask(ctx context.Context, log *slog.Logger, waits func(string)) (*recognition.Server, error) {
	var due problem.Log
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		s, err := recognition.Ask(ctx, c.Upstream.Upstream, recognition.Options{Key: c.Upstream.Key, Model: c.Upstream.Model})
		if err == nil || ctx.Err() != nil {
			return s, cmp.Or(err, ctx.Err())
		}
		waits(err.Error())
		if due.Due(err.Error()) {
			log.Warn("waiting for a model server", "upstream", c.Upstream.Upstream, "problem", err.Error(), "then", fmt.Sprintf("it is asked every %v", askEvery))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// choose sets the engine, unless the operator has chosen one, and what that engine needs to know.
func (c *Config) choose(s *recognition.Server) error {
	if c.Engine == "" || c.Engine == Auto {
		c.Engine = s.Engine
	}
	overGRPC := c.Engine == VLLM || c.Engine == SGLang && s.GRPC
	switch {
	case s.GRPC && !overGRPC:
		return fmt.Errorf("--engine %s speaks HTTP, and --upstream is the gRPC port of %s: leave --engine out, or name its HTTP port", c.Engine, s.Make)
	case !s.GRPC && overGRPC:
		return fmt.Errorf("--engine %s speaks gRPC, and --upstream is the HTTP port of %s: leave --engine out, or name its gRPC port", c.Engine, s)
	}
	c.Upstream.Upstream = s.Address
	if c.Engine == OpenAI || c.Engine == Ollama {
		c.Upstream.Model = s.Model
	}
	return nil
}

// shown returns the name of the server's model in requests to this project: the server's own name, unless
// that is a path or has Ollama's default tag.
func shown(s *recognition.Server) string {
	name := strings.TrimSuffix(s.Model, ":latest")
	if strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".") {
		name = path.Base(name)
	}
	return name
}
