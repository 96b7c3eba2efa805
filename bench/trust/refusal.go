package main

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/bench/trust/server"
	"github.com/whence-dev/whence/bench/trust/stand"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/internal/whencetiny"
)

var refusalRows = []trial.Row{
	refusing("a worker answers 429, another is healthy", http.StatusTooManyRequests),
	refusing("a worker answers 500, another is healthy", http.StatusInternalServerError),
}

// refusing returns a row with a second worker, whose server refuses every request with a status.
func refusing(name string, status int) trial.Row {
	var p *server.Provider
	prepare := func(t *trial.Trial, l *stand.Layout) (err error) {
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
		l.OtherWorkers = [][]string{{"--engine", "openai", "--upstream", p.URL, "--model", dir, "--model-name", whencetiny.Name}}
		return nil
	}
	return trial.Row{Name: name, Layout: one, Prepare: prepare, Play: func(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
		before := p.Requests.Load()
		all := t.Ask(ctx, "", 10, time.Minute)
		touched := p.Requests.Load() - before
		return []trial.Finding{
			{What: "new requests that fail", Got: float64(reader.Unanswered(all))},
			{What: "attempts at the worker that refuses, for each request", Unit: report.Percent, Got: 100 * float64(touched) / float64(len(all)), Bound: 5},
		}, nil
	}}
}

// A directory is removed by Close.
type directory string

func (dir directory) Close() error { return os.RemoveAll(string(dir)) }
