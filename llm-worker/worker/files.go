package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/whence-dev/whence/internal/gguf"
	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/recognition"
	"github.com/whence-dev/whence/llm-worker/engine/vllm"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// find sets c.Model to the path of the files of the server's model, and returns where they come from: from
// the operator, or else from the first source of the server that has usable ones.
func (c *Config) find(ctx context.Context, s *recognition.Server, log *slog.Logger) (from string, err error) {
	if c.Model != "" {
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
	return "", fmt.Errorf("the files of the server's model are not found; --model names them: the model's directory (weights are not needed), its GGUF file, or its id on the Hugging Face hub (%w)", errors.Join(failed...))
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

// fetching is held while files are fetched: several workers of a process may need the same ones.
var fetching sync.Mutex

// fetch returns the path of the files of an id that the server names.
func (c *Config) fetch(ctx context.Context, id string, log *slog.Logger) (path string, err error) {
	fetching.Lock()
	defer fetching.Unlock()
	return hub.ResolveID(ctx, id, hub.Options{NoDownload: c.NoDownload, Progress: c.Progress, Log: log})
}

// resolve returns the path of the files of --model, which may be an id of the hub.
func (c *Config) resolve(ctx context.Context, log *slog.Logger) (path string, err error) {
	fetching.Lock()
	defer fetching.Unlock()
	return hub.Resolve(ctx, c.Model, hub.Options{NoDownload: c.NoDownload, Progress: c.Progress, Log: log})
}

// usable reports why the files at a path cannot describe a model to an engine on a server, or nil.
func usable(path string) error {
	if err := process.CheckModel(path, tokenizer.Files()...); err != nil {
		return err
	}
	dir, err := gguf.Description(path)
	if err != nil {
		return err
	}
	_, err = lexicon.Load(dir)
	return err
}
