package main

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/server"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/lab"
)

var refusalRows = []trial.Row{
	refusing("upstream engine answers 429, another worker answers", http.StatusTooManyRequests),
	refusing("upstream engine answers 500 at once, another worker answers", http.StatusInternalServerError),
}

// refusing returns a row with a second worker, whose server refuses every request with a status.
func refusing(name string, status int) trial.Row {
	var p *server.Provider
	prepare := func(t *trial.Trial, l *lab.Layout) (err error) {
		if p, err = server.NewProvider(reader.Model, status); err != nil {
			return err
		}
		t.Closers = append(t.Closers, p)
		dir, err := os.MkdirTemp("", "trust-model")
		if err != nil {
			return err
		}
		t.Closers = append(t.Closers, directory(dir))
		if err := os.CopyFS(dir, whencetiny.FS()); err != nil {
			return err
		}
		l.Workers, l.Own = 2, map[string][]string{"llm-worker/1": {"--engine", "openai", "--upstream", p.URL, "--model", dir, "--model-name", whencetiny.Name}}
		return nil
	}
	return trial.Row{Name: name, Layout: one, Prepare: prepare, Play: func(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
		before := p.Requests.Load()
		all := t.Ask(ctx, "", 10, time.Minute)
		touched := p.Requests.Load() - before
		return []trial.Finding{
			{What: "new requests that fail", Got: float64(reader.Unanswered(all))},
			{What: "attempts at the worker that refuses, for each request", Got: 100 * float64(touched) / float64(len(all))},
		}, nil
	}}
}

// A directory is removed by Close.
type directory string

func (dir directory) Close() error { return os.RemoveAll(string(dir)) }
