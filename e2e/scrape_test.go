package e2e

import (
	"testing"

	"github.com/whence-dev/whence/lab"
)

// measured makes every service answer scrapes.
var measured = []string{"--metrics-listen", "127.0.0.1:0"}

// scrape asks every process once.
func (w *whence) scrape(t *testing.T) (all lab.Samples) {
	t.Helper()
	for _, p := range w.all() {
		all = all.Plus(p.scrape(t))
	}
	return all
}

// scrape asks one process.
func (p *process) scrape(t *testing.T) lab.Samples {
	t.Helper()
	samples, err := p.Scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return samples
}
