package trial

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/whence-dev/whence/lab"
)

// Pace is the number of tokens a second of a stream.
const Pace = 20

// simulated are the flags of a worker with a simulated engine.
var simulated = []string{"--engine", "sim", "--pace", strconv.Itoa(Pace), "--max-running", "8192", "--kv-tokens", "8388608", "--sim-context", "4096"}

// start starts the services of a layout. Workers without flags of their own have a simulated engine.
func (t *Trial) start(ctx context.Context, l lab.Layout) (err error) {
	l.All = append([]string{"--metrics-listen", "127.0.0.1:0"}, l.All...)
	l.Chat = append([]string{"--max-streams", "20000"}, l.Chat...)
	l.Edge = append([]string{"--max-streams", "20000"}, l.Edge...)
	own := map[string][]string{}
	for i := range l.Workers {
		own[lab.LLMWorker+"/"+strconv.Itoa(i)] = slices.Concat(simulated, l.Worker)
	}
	maps.Copy(own, l.Own)
	l.Own, l.Worker = own, nil
	if t.Path, err = l.Start(ctx, t.Builds.Start); err != nil {
		return err
	}
	for _, p := range t.All() {
		if p.Admin, err = p.Metrics(); err != nil {
			return err
		}
	}
	return nil
}

// Other starts a server that the services depend on, and returns its URL.
func (t *Trial) Other(c lab.Command, url string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	p, err := lab.Start(c)
	if p != nil {
		t.Others = append(t.Others, p)
	}
	return url, err
}

// Usable waits until every chat-service uses every worker.
func (t *Trial) Usable(ctx context.Context) error {
	return lab.Await(ctx, "every worker is used", func() bool {
		for _, c := range t.Chats {
			if n, err := Sum(ctx, c, "whence_workers_healthy"); err != nil || int(n) < len(t.Workers) {
				return false
			}
		}
		return true
	})
}

// Thaw lets frozen services continue.
func (t *Trial) Thaw() {
	for _, p := range t.Alive() {
		if p.Frozen() {
			_ = p.Signal(syscall.SIGCONT) // it may have ended
		}
	}
}

// Terminate sends SIGTERM to a service and returns the time until it has ended.
func Terminate(p *lab.Process) (time.Duration, error) {
	at := time.Now()
	if err := p.Terminate(); err != nil {
		return 0, err
	}
	if _, err := p.Status(); err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	return time.Since(at), nil
}

// scrapeWithin bounds the wait for an answer: a frozen service does not answer.
const scrapeWithin = time.Second

// Sum returns the sum of a service's samples of a metric.
func Sum(ctx context.Context, p *lab.Process, metric string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeWithin)
	defer cancel()
	samples, err := p.Scrape(ctx)
	return samples.Sum(metric), err
}

// usage returns the current usage of a service.
func usage(ctx context.Context, p *lab.Process) (lab.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeWithin)
	defer cancel()
	return p.Usage(ctx)
}
