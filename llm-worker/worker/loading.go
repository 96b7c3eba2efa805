package worker

import (
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/whence-dev/whence/internal/progress"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/matrix"
)

// loadingInterval is the time between two log lines about a model that is loading. A model that
// loads faster is not mentioned.
const loadingInterval = 2 * time.Second

// load reads the weights of the embedded engine, and draws its progress on c.Progress, or logs it.
func (c *Config) load(dir fs.FS, name string, log *slog.Logger) (*tinyllama.Weights, error) {
	begun := time.Now()
	next := begun.Add(loadingInterval)
	report := func(done, total int64) {
		if now := time.Now(); now.After(next) {
			next = now.Add(loadingInterval)
			log.Info("model is loading", "model", name, "loaded", fmt.Sprintf("%d%%", done*100/total), "mib", total>>20)
		}
	}
	end := func() {}
	if c.Progress != nil {
		b := progress.NewBar(c.Progress, "loading", name)
		report, end = b.Update, b.End
	}
	weights, err := tinyllama.Load(dir, tinyllama.LoadOptions{Format: c.Weights, Progress: report})
	end()
	if took := time.Since(begun); err == nil && took > loadingInterval {
		log.Info("model loaded", "model", name, "took", took.Round(time.Millisecond), "weights", c.Weights, "code", matrix.Machine())
	}
	return weights, err
}
