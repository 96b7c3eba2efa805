package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/whence-dev/whence/internal/gguf"
	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/recognition"
	"github.com/whence-dev/whence/llm-worker/engine/vllm"
)

// find sets c.Model to the path of the files of the server's model, and returns where they come from: from
// the operator, or else from the first source of the server that has usable ones. Without any, the server is
// used text only, unless free is false: the operator has chosen an engine that needs files.
func (c *Config) find(ctx context.Context, s *recognition.Server, free bool, log *slog.Logger) (from string, err error) {
	switch c.Model {
	case "":
		if s.Pools && !s.GRPC && (free || c.Engine == OpenAI) {
			return noFiles, c.textOnlyOn(s, free)
		}
	case textonly.Model:
		return textOnly, c.textOnlyOn(s, free)
	default:
		if c.Model, err = c.resolve(ctx, log); err != nil {
			return "", err
		}
		return "--model", usable(c.Model)
	}
	if s.GRPC && !c.Files {
		return "none are needed", nil
	}
	var failed []error
	for _, source := range c.sources(s, log) {
		path, err := source.find(ctx)
		if err == nil {
			err = usable(path)
		}
		if err == nil {
			c.Model = path
			return source.name, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", source.name, err))
	}
	if len(failed) == 0 {
		failed = append(failed, errors.New("the server names neither a path nor an id of its model"))
	}
	why := errors.Join(failed...)
	if err := c.textOnlyOn(s, free); err != nil || ctx.Err() != nil {
		return "", fmt.Errorf("the files of the server's model are not found (%w), and %w; %s", why, cmp.Or(err, ctx.Err()), nameThem)
	}
	log.Warn("text only: the files of the server's model are not found, so the server renders conversations and parses answers", "server", s.String(), "why", why.Error(),
		"without", "token ids, log-probabilities of tokens, guides of Whence, moves after the first token, the cache's content for --policy kv", "then", nameThem)
	return textOnly, nil
}

const (
	textOnly = "nowhere, so text only"
	noFiles  = "nowhere: to embed and to rate documents, none are needed"
	nameThem = "--model names them: the model's directory (weights are not needed), its GGUF file, or its id on the Hugging Face hub"
)

// textOnlyOn makes c use a server without files of its model.
func (c *Config) textOnlyOn(s *recognition.Server, free bool) error {
	switch {
	case s.GRPC:
		return errors.New("text only needs the HTTP port of the server")
	case !free && c.Engine != OpenAI:
		return fmt.Errorf("text only needs --engine %s or %s", OpenAI, Auto)
	}
	c.Engine, c.Model = OpenAI, textonly.Model
	if c.Upstream.Model = s.Model; s.Make == recognition.LlamaCPP {
		c.Upstream.Model = "" // it has one model, under the name of a path
	}
	return nil
}

// A source is where the files of a server's model may come from.
type source struct {
	name string // for people
	find func(ctx context.Context) (path string, err error)
}

// sources returns where the files of a server's model may be, in the order in which they are looked for. A
// path is read only if the server is on this machine: it would name other files here.
func (c *Config) sources(s *recognition.Server, log *slog.Logger) (all []source) {
	server := hub.Server{URL: s.Address, Key: c.Upstream.Key}
	switch {
	case s.Make == recognition.LlamaCPP:
		return []source{{"the path that the server names", server.LlamaCPP}}
	case s.Make == recognition.Ollama:
		return []source{{"what the server tells about its model", func(ctx context.Context) (string, error) { return server.Ollama(ctx, s.Model) }}}
	case s.Root == "":
	case !filepath.IsAbs(s.Root):
		if path := besideServer(s); path != "" { // a path that exists beside the server is not an id, even if it looks like one
			return []source{{"the path that the server names", func(context.Context) (string, error) { return path, nil }}}
		}
		all = append(all, source{"the id that the server names", func(ctx context.Context) (string, error) {
			log.Info("the model's configuration, tokenizer and template come from the cache or the hub of Hugging Face, by the id that the server names", "server", s.String(), "model", s.Root, "download", !c.NoDownload)
			return c.fetch(ctx, s.Root, log)
		}})
	case recognition.Local(s.Address):
		all = append(all, source{"the path that the server names", func(context.Context) (string, error) { return s.Root, nil }})
	default:
		all = append(all, source{"the path that the server names", func(context.Context) (string, error) {
			return "", fmt.Errorf("%s is a path of the server's machine, which is another than this one", s.Root)
		}})
	}
	if s.Make == recognition.VLLM && s.GRPC {
		all = append(all, source{"files that the server sends", func(ctx context.Context) (string, error) { return vllm.Files(ctx, s.Address, hub.Store{}) }})
	}
	return all
}

// besideServer returns the absolute path of a model that a server on this machine names by a relative path, or ""
// if there is no such file.
func besideServer(s *recognition.Server) string {
	if s.GRPC || !recognition.Local(s.Address) {
		return ""
	}
	return hub.Beside(s.Address, s.Root)
}

// fetching is held while files are fetched: several workers of a process may need the same ones.
var fetching sync.Mutex

// fetch returns the path of the files of an id that the server names.
func (c *Config) fetch(ctx context.Context, id string, log *slog.Logger) (path string, err error) {
	fetching.Lock()
	defer fetching.Unlock()
	return hub.ResolveID(ctx, id, c.hubOptions(log))
}

// resolve returns the path of the files of --model, which may be an id of the hub.
func (c *Config) resolve(ctx context.Context, log *slog.Logger) (path string, err error) {
	fetching.Lock()
	defer fetching.Unlock()
	return hub.Resolve(ctx, c.Model, c.hubOptions(log))
}

func (c *Config) hubOptions(log *slog.Logger) hub.Options {
	return hub.Options{NoDownload: c.NoDownload, Progress: c.Progress, Log: log}
}

// usable reports why the files at a path cannot describe a model to an engine on a server, or nil.
func usable(path string) error {
	dir, err := gguf.Description(path)
	if err == nil {
		_, err = lexicon.Load(dir)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
